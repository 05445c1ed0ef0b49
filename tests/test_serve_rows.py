"""Rows of a stream: what learned samples were answered and labelled, page by page."""

import csv
import hashlib
import threading

import pytest
from http_serving import TOKEN, features, serving
from serving import CLASSIFIER, ask, open_service

from pta.data.features import load_features
from pta.measure.audit.row_reading import read_population
from pta.serve.client import Client
from pta.serve.requests import Refused, SampleLabel

NAMES = CLASSIFIER.class_names


def all_rows(service, limit=4096):
    rows, after = [], 0
    while after is not None:
        page = service.rows("default", after, limit)
        assert len(page["rows"]) <= limit
        rows += page["rows"]
        after = page["next"]
    return rows


def hashed(id):
    return hashlib.blake2b(id.encode(), digest_size=16).hexdigest()


def test_a_row_has_what_was_answered(tmp_path):
    with open_service(tmp_path) as service:
        replies = [ask(service, 0, id="a", count=3, source="door")]
        service.operate("default", "answers", answers="zero-shot")
        replies.append(ask(service, 1, id="b", count=2))
        service.operate("default", "label", labels=[SampleLabel(NAMES[2], 2), SampleLabel(None, id="b", place=1)])
        rows = all_rows(service)
    assert [(row["sequence"], row["place"], row["id_hash"], row["source"]) for row in rows] == [
        *((n, n - 1, hashed("a"), "door") for n in (1, 2, 3)),
        *((n, n - 5, hashed("b"), None) for n in (5, 6)),
    ]
    assert [row["learned_label"] for row in rows] == ["", NAMES[2], "", "", "none"]
    for name in ("label", "probability", "zero_shot_label", "zero_shot_probability", "adapted_label", "entropy"):
        assert [row[name] for row in rows] == [value for reply in replies for value in reply.outputs[name].tolist()]
    assert rows[0]["time"] <= rows[-1]["time"]


@pytest.mark.parametrize("limit", [1, 2, 7, 4096])
def test_pages_have_every_row_once_and_none_that_was_erased(tmp_path, limit):
    with open_service(tmp_path) as service:
        for number in range(20):
            ask(service, number, count=1 + number % 4, source=("door", "yard")[number % 2], id=str(number))
        service.operate("default", "unlearn", source="door", erase=True)
        rows = all_rows(service, limit)
        assert [row["sequence"] for row in rows] == [s for g in service._journal.groups(1) for s in g.sequences]
        assert {row["source"] for row in rows} == {"yard"}
        assert rows == all_rows(service)


def test_rows_are_read_while_the_stream_learns(tmp_path):
    with open_service(tmp_path, snapshot_samples=50) as service:
        answered = {}
        stop = threading.Event()

        def learn():
            for number in range(400):
                reply = ask(service, number, count=2)
                answered.update(zip(reply.outputs["sequence"].tolist(), reply.labels, strict=True))
            stop.set()

        thread = threading.Thread(target=learn)
        thread.start()
        while not stop.is_set():
            before = len(answered)
            rows = all_rows(service, 100)
            assert [row["sequence"] for row in rows] == [*range(1, len(rows) + 1)]
            assert len(rows) >= before
        thread.join()
        assert {row["sequence"]: row["label"] for row in all_rows(service)} == answered


def test_rows_without_answers_are_left_out_and_counted(tmp_path):
    with open_service(tmp_path) as service:
        for number in range(4):
            ask(service, number, count=2)
    with open_service(tmp_path) as service:
        with service._journal._database.writing, service._journal._database.transaction() as connection:
            connection.execute("UPDATE batches SET answers = NULL WHERE first = 3")
        page = service.rows("default", 0, 4096)
        assert [row["sequence"] for row in page["rows"]] == [1, 2, 5, 6, 7, 8]
        assert (page["left_out"], page["next"]) == (2, None)


def test_a_service_without_a_journal_has_none():
    with open_service(None) as service, pytest.raises(Refused, match="--no-journal"):
        service.rows("default", 0, 10)


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with serving(pets, tmp_path_factory.mktemp("serve") / "state") as server:
        samples = load_features(pets).samples.features.numpy()
        for number in range(4):
            answer = server.infer(features(samples[2 * number : 2 * number + 2]), id=f"request {number}")
            assert answer.status == 200
        yield server


@pytest.mark.parametrize(
    ("query", "said"),
    [("limit=0", "limit"), ("limit=4097", "limit"), ("after=-1", "after"), ("after=x", "after"), ("after=²", "after")],
)
def test_a_wrong_page_is_refused(server, query, said):
    answer = server.ask("GET", f"/streams/default/rows?{query}".replace("²", "%C2%B2"))
    assert (answer.status, said in answer.body.decode()) == (422, True)
    assert server.ask("GET", "/streams/default/rows", token="wrong").status == 401
    assert server.ask("GET", "/streams/nobody/rows").status == 404


def test_the_client_and_the_command_write_them(server, pta, tmp_path):
    with Client(server.url, TOKEN) as client:
        assert [row["sequence"] for row in client.rows()["rows"]] == [*range(1, 9)]
        assert client.rows(after=6)["rows"] == client.rows()["rows"][6:]
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "ids.csv").write_text("id,path,place\nrequest 1,a.jpg,0\nrequest 1,'=b.jpg,1\nnobody,c.jpg,\n")
    out = tmp_path / "rows.csv"
    call = ("stream", "rows", "default", "--out", out, "--server", server.url, "--token-file", tmp_path / "token")
    assert f"pta: wrote 8 rows of default to {out}\n" in pta(*call, "--ids", tmp_path / "ids.csv").stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["path"], row["place"]) for row in rows[1:5]] == [
        *(("", "", "1"), ("request 1", "a.jpg", "0"), ("request 1", "'=b.jpg", "1"), ("", "", "0")),
    ]
    assert {"label", "zero_shot_label", "adapted_label", "learned_label"} <= rows[0].keys()
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"request {number}\n" for number in range(4)))
    assert pta(*call, "--ids", tmp_path / "ids.csv").returncode == 0
    population = read_population(out)
    assert population.answered == 8
    (tmp_path / "ids.csv").write_text("name\nx\n")
    refused = pta(*call, "--ids", tmp_path / "ids.csv")
    assert (refused.returncode, "the first line must name id" in refused.stderr) == (2, True)
