"""Labels over HTTP, by the client and by the command: what is taken, and what is refused in one line."""

import json

import pytest
from http_serving import TOKEN, features, serving
from processes import wait_for

from pta.data.features import load_features
from pta.serve.client import Client
from pta.serve.requests import Refused

LABEL = "/streams/default/label"


@pytest.fixture
def server(pets, tmp_path):
    """Four requests of two samples each."""
    with serving(pets, tmp_path / "state") as server:
        samples = load_features(pets).samples.features.numpy()
        for number in range(4):
            source = {"source": "door" if number % 2 else "yard"}
            given = features(samples[2 * number : 2 * number + 2])
            assert server.infer(given, id=f"request {number}", parameters=source).status == 200
        yield server


@pytest.fixture
def stream(server, pta, tmp_path):
    """`pta stream …` at this service."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    where = ("--server", server.url, "--token-file", tmp_path / "token")
    return lambda *arguments: pta("stream", *arguments, *where)


def labels_of(server):
    """The labels in force, by sequence number, when they are learned."""
    show = lambda: json.loads(server.ask("GET", "/streams/default").body)["corrections"]["waiting"]  # noqa: E731
    wait_for(lambda: not show())
    rows = json.loads(server.ask("GET", "/streams/default/rows").body)["rows"]
    return {row["sequence"]: row["learned_label"] for row in rows if row["learned_label"]}


def test_labels_are_given_by_sequence_and_by_id(server):
    given = [{"sequence": 2, "label": "owl"}, {"id": "request 2", "label": None}]
    counted = json.loads(server.ask("POST", f"{LABEL}?dry_run=true", {"labels": given}).body)
    assert counted == {"stream": "default", "operation": "label", "samples": 2, "sequence": None, "replayed": 8}
    done = json.loads(server.ask("POST", LABEL, {"labels": given}).body)
    assert done == counted | {"sequence": 9}
    with Client(server.url, TOKEN) as client:
        client.operate("default", "label", labels=[{"id": "request 3", "place": 1, "label": "newt"}])
    assert labels_of(server) == {2: "owl", 5: "none", 8: "newt"}
    assert json.loads(server.ask("GET", "/streams/default").body)["position"] == 7


ONE = {"sequence": 1, "label": "cat"}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "labels is required"),
        ({"labels": []}, 422, "minItems 1"),
        ({"labels": [ONE] * 4097}, 422, "maxItems 4,096"),
        ({"labels": {"1": "cat"}}, 422, "labels must be of type list"),
        ({"labels": ["cat"]}, 422, "labels must be of type list"),
        ({"labels": [ONE, {"sequence": 2}]}, 422, "labels[1]: label must be the name of a class, or null"),
        ({"labels": [{"sequence": 2, "label": 3}]}, 422, "labels[0]: label must be the name of a class, or null"),
        ({"labels": [{"sequence": 2, "label": True}]}, 422, "got True"),
        ({"labels": [{"sequence": 2.0, "label": "cat"}]}, 422, "sequence must be a whole number of at least 1"),
        ({"labels": [{"sequence": True, "label": "cat"}]}, 422, "sequence must be a whole number"),
        ({"labels": [{"sequence": 0, "label": "cat"}]}, 422, "sequence must be a whole number"),
        ({"labels": [{"sequence": 2**62, "label": "cat"}]}, 422, "sequence must be a whole number"),
        ({"labels": [{"label": "cat"}]}, 422, "either sequence, or id"),
        ({"labels": [{**ONE, "id": "request 1"}]}, 422, "either sequence, or id"),
        ({"labels": [{**ONE, "place": 0}]}, 422, "either sequence, or id"),
        ({"labels": [{"id": "request 1", "place": -1, "label": "cat"}]}, 422, "place must be a whole number"),
        ({"labels": [{"id": "request 1", "place": 2, "label": "cat"}]}, 422, "places 0 to 1, not at 2"),
        ({"labels": [{"id": "", "label": "cat"}]}, 422, "id must be a text"),
        ({"labels": [{"id": "x" * 129, "label": "cat"}]}, 422, "id must be a text"),
        ({"labels": [{"id": 5, "label": "cat"}]}, 422, "id must be a text"),
        ({"labels": [{**ONE, "weight": 2}]}, 422, "'weight' is not known"),
        ({"labels": [ONE, {"sequence": 2, "label": "unicorn"}]}, 422, "no class is called 'unicorn'"),
        ({"labels": [ONE, {"sequence": 9, "label": "cat"}]}, 404, "ends at 8"),
        ({"labels": [{"id": "nobody", "label": "cat"}]}, 404, "no sample with the id 'nobody'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_changes_nothing(server, body, status, said):
    before = server.state()
    answer = server.ask("POST", LABEL, body)
    error = json.loads(answer.body)["error"]
    assert (answer.status, said in error, "\n" in error) == (status, True, False), error
    assert server.state() == before


def test_a_body_that_is_too_large_is_refused(server):
    with Client(server.url, TOKEN) as client, pytest.raises(Refused, match="1,048,576") as refused:
        client.operate("default", "label", labels=[{"id": "x" * 128, "label": "y" * 200}] * 4000)
    assert refused.value.status == 413


def test_answers_are_switched_by_one_of_two_words(server):
    assert server.ask("POST", "/streams/default/answers", {"answers": "zero-shot"}).status == 200
    assert json.loads(server.ask("GET", "/streams/default").body)["answers"] == "zero-shot"
    for body in ({}, {"answers": "zeroshot"}, {"answers": None}, {"answers": ["adapted"]}):
        assert server.ask("POST", "/streams/default/answers", body).status == 422


def test_the_command_labels_one_sample_after_it_was_asked(stream, server):
    refused = stream("label", "default", "--sequence", 3, "--label", "owl")
    assert refused.returncode == 2
    assert "label default: 1 samples concerned, 8 are replayed; --yes does it without asking" in refused.stderr
    done = stream("label", "default", "--sequence", 3, "--label", "owl", "--yes", "--json", "-")
    assert json.loads(done.stdout)["replayed"] == 8
    assert stream("label", "default", "--id", "request 1", "--place", 1, "--none", "--yes").returncode == 0
    assert labels_of(server) == {3: "owl", 4: "none"}
    assert stream("answers", "default", "zero-shot").returncode == 0
    assert "zero-shot answers" in stream("show", "default").stdout


def test_the_command_reads_a_file(stream, server, tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text(
        "id,place,sequence,label,answer,time\n,,1,owl,first,\nrequest 1,1,,none,neither,\nrequest 2,0,,,cannot tell,\n"
    )
    assert stream("label", "default", file, "--yes").returncode == 0
    assert labels_of(server) == {1: "owl", 4: "none"}


def test_a_long_file_is_sent_in_parts_which_are_one_replay(stream, server, tmp_path, monkeypatch):
    monkeypatch.setattr("pta.cli.stream_samples._PER_REQUEST", 3)
    file = tmp_path / "labels.csv"
    file.write_text("sequence,label\n" + "".join(f"{number},dog\n" for number in range(1, 9)))
    done = json.loads(stream("label", "default", file, "--yes", "--json", "-").stdout)
    assert (done["samples"], done["replayed"]) == (8, 8)
    assert labels_of(server) == dict.fromkeys(range(1, 9), "dog")
    kinds = [one["kind"] for one in json.loads(server.ask("GET", "/streams/default").body)["timeline"]]
    assert (kinds.count("label"), kinds.count("corrected")) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a CSV file, or --sequence or --id with --label or --none"),
        (("--sequence", 1), "give a CSV file, or"),
        (("--sequence", 1, "--id", "x", "--none"), "give a CSV file, or"),
        (("--sequence", 1, "--label", "cat", "--none"), "give a CSV file, or"),
        (("FILE", "--sequence", 1), "either a CSV file, or the options of one sample"),
        (("--sequence", 1, "--label", "unicorn"), "no class is called 'unicorn'"),
        (("--sequence", 99, "--none"), "ends at 8"),
        (("FILE",), "line 3 has the label 'unicorn'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(stream, server, tmp_path, arguments, said):
    file = tmp_path / "labels.csv"
    file.write_text("sequence,label\n1,cat\n2,unicorn\n")
    before = server.state()
    refused = stream("label", "default", *(file if one == "FILE" else one for one in arguments), "--yes")
    lines = [line for line in refused.stderr.splitlines() if not line.startswith("{")]
    assert (refused.returncode, len(lines)) == (2, 1)
    assert said in lines[0]
    assert server.state() == before


@pytest.mark.parametrize(("content", "said"), [("path,label\na.jpg,cat\n", "line 2 needs a sequence or an id")])
def test_a_file_that_names_no_sample_of_a_stream_is_refused(stream, tmp_path, content, said):
    file = tmp_path / "labels.csv"
    file.write_text(content)
    assert said in stream("label", "default", file, "--yes").stderr


def test_a_class_called_none_is_ambiguous_in_a_file(stream, tmp_path, monkeypatch):
    show = Client.show
    more = [{"name": "none"}]
    monkeypatch.setattr(Client, "show", lambda *given: (found := show(*given)) | {"classes": found["classes"] + more})
    file = tmp_path / "labels.csv"
    file.write_text("sequence,label\n1,none\n")
    refused = stream("label", "default", file, "--yes")
    assert "use --label none for the class, --none for none of the classes" in refused.stderr
