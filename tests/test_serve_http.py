"""The routes of a running service: who may ask, what is refused, and that what is refused changes nothing."""

import base64
import json
import math
import re
import socket
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import numpy as np
import pytest
from http_serving import INFER, TOKEN, binary, features, patched, serving
from processes import PATIENCE

from pta.data.features import load_features
from pta.errors import FileInUse, MachineFailure
from pta.serve.http.gate import as_refused
from pta.serve.http.security import PAGE
from pta.serve.operations import OPERATIONS
from pta.serve.streams.service import Service

LARGEST = 20_000


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    """A service that has learned from two sources."""
    http = {"max_body": LARGEST, "body_timeout": 0.5, "allowed_hosts": ("door.example",)}
    with serving(pets, tmp_path_factory.mktemp("serve") / "state", http, auto_create=1, batch=8) as server:
        server.samples = load_features(pets).samples.features.numpy()
        for number, source in enumerate(("left", "right")):
            tensor, raw = binary(server.samples[3 * number : 3 * number + 3])
            assert server.infer(tensor, raw, id=source, parameters={"source": source}).status == 200
        yield server


@pytest.fixture
def unchanged(server):
    """What a test must leave as it was: every row of the journal and the state of every stream, byte for byte."""
    before = server.state()
    yield
    assert server.state() == before


def error_of(answer):
    """The message of an error, without the number of the request."""
    told = json.loads(answer.body)
    assert [*told] == ["error"]
    message, number = re.fullmatch(r"(.*) \(request (\d+)\)", told["error"]).groups()
    assert number == answer.headers["x-request-number"]
    assert "Traceback" not in message
    return message


def raw_exchange(server, *parts):
    """What a server sends back to bytes that are written one after the other."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        return connection.recv(2**16).decode()


def routes(server):
    """Every route that the application has, with methods and examples for its parameters."""
    found = [
        (method, path.replace("{name}", "default"))
        for path, methods in server.app.endpoints.items()
        for method in methods
    ]
    assert len(found) > 25
    return found


# -- who may ask ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchanged")
def test_no_route_answers_without_a_token(server):
    for method, path in routes(server):
        if path in PAGE or path == "/login":
            continue
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": TOKEN},
            {"Cookie": f"pta_login={TOKEN}"},
        ):
            with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
                connection.request(method, path, b"{}" if method == "POST" else None, headers)
                with connection.getresponse() as answer:
                    assert answer.status == 401, (method, path)
                    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_routes_are_those_of_the_issue(server):
    assert {path for _, path in routes(server)} == {
        *("/v2", "/v2/health/live", "/v2/health/ready", "/metrics", "/openapi.json", "/login", "/streams", *PAGE),
        *(f"/v2/models/pta{version}{verb}" for version in ("", "/versions/1") for verb in ("", "/ready", "/infer")),
        "/streams/default",
        *(f"/streams/default/{verb}" for verb in (*(OPERATIONS.keys() - {"delete"}), "export", "events", "rows")),
    }
    for path in ("/docs", "/redoc"):
        assert server.ask("GET", path).status == 404


def test_the_page_reveals_nothing_and_loads_nothing_from_elsewhere(server):
    for path in PAGE:
        answer = server.ask("GET", path, token="none")
        assert answer.status == 200
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert TOKEN.encode() not in answer.body


def test_a_login_cookie_reads_and_with_the_header_changes(server):
    assert server.ask("POST", "/login", {"token": "wrong"}, token="none").status == 401
    answer = server.ask("POST", "/login", {"token": TOKEN}, token="none")
    assert answer.status == 204
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    by_cookie = {"Cookie": f"other=1; {cookie.split(';')[0]}"}
    assert server.ask("GET", "/streams", headers=by_cookie, token="none").status == 200
    refused = server.ask("POST", "/streams/default/freeze?dry_run=true", headers=by_cookie, token="none")
    assert (refused.status, error_of(refused)) == (401, "a change by cookie also needs the header X-PTA: 1")
    changed = server.ask(
        "POST", "/streams/default/freeze?dry_run=true", headers={**by_cookie, "X-PTA": "1"}, token="none"
    )
    assert changed.status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((known, 200) for known in ("127.0.0.1", "localhost:80", "LOCALHOST", "[::1]:8080", "door.example")),
        *((other, 421) for other in ("evil.example", "127.0.0.1.evil.example", "", "localhost:x", "door.example.")),
    ],
)
def test_a_host_that_is_not_known_is_misdirected(server, host, status):
    answer = server.ask("GET", "/v2", headers={"Host": host})
    assert answer.status == status
    if status == 421:
        assert "--allowed-host" in error_of(answer)


# -- what is refused ------------------------------------------------------------------------------------------------


def good(server):
    return features(server.samples[:1])


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("status", "said", "change", "more"),
    [
        (422, "NaN, Inf", {"data": [1e39] * 16}, {}),
        (422, "not JSON", {"data": [math.nan] * 16}, {}),
        (422, "no length", {"data": [0] * 16}, {}),
        (422, "shape B×16", {"shape": [1, 15], "data": [1] * 15}, {}),
        (422, "must be FP32", {"datatype": "FP64"}, {}),
        (422, "1 to 8 samples", {"shape": [9, 16], "data": [1] * 144}, {}),
        (422, "no model for pictures", {"name": "image"}, {}),
        (422, "did you mean 'learn'", {}, {"parameters": {"leran": False}}),
        (422, "1 to 64 letters", {}, {"parameters": {"stream": "x y"}}),
        (422, "1 to 64 letters", {}, {"parameters": {"stream": "../x"}}),
        (409, "other", {"data": [1.0] * 16}, {"id": "left", "parameters": {"source": "left"}}),
    ],
)
def test_bad_input_changes_nothing(server, status, said, change, more):
    answer = server.infer({**good(server), **change}, **more)
    assert answer.status == status, answer.body
    assert said in error_of(answer)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/streams/nobody", None, 404),
        ("GET", "/streams/nobody/events", None, 404),
        ("GET", "/streams/nobody/export", None, 404),
        ("POST", "/streams/nobody/freeze", None, 404),
        ("DELETE", "/streams/nobody", None, 404),
        ("PUT", "/streams/a%20b", None, 422),
        ("PUT", f"/streams/{'a' * 65}", None, 422),
        ("GET", "/streams/..%2f..%2fetc", None, 404),
        ("POST", "/streams/default/rewind", {}, 422),
        ("POST", "/streams/default/rewind", {"sequence": -1}, 422),
        ("POST", "/streams/default/rewind", {"sequence": 2**70}, 422),
        ("POST", "/streams/default/rewind", {"sequence": 1, "time": 1}, 422),
        ("POST", "/streams/default/rewind", {"sequence": "1"}, 422),
        ("POST", "/streams/default/rewind", {"time": "1"}, 422),
        ("POST", "/streams/default/rewind", b'{"time": NaN}', 422),
        ("POST", "/streams/default/rewind", b'{"sequence": 1' + b"0" * 5000 + b"}", 422),
        ("POST", "/streams/default/rewind", b"[" * 15_000, 422),
        ("POST", "/streams/default/rewind", b"{", 422),
        ("POST", "/streams/default/rewind", b'{"sequence": "\xff"}', 422),
        ("POST", "/streams/default/unlearn", {"source": ""}, 422),
        ("POST", "/streams/default/unlearn", {"source": "left", "eras": True}, 422),
        ("POST", "/streams/default/reset", {"classes": ["unicorn"]}, 422),
        ("POST", "/streams/default/reset", {"classes": []}, 422),
        ("POST", "/streams/default/import", b"no state", 422),
        ("POST", "/streams/default/undo", None, 409),
        ("POST", "/streams/default/freeze?dry_run=perhaps", None, 422),
        ("GET", "/v2/models/other", None, 404),
        ("POST", "/v2/models/other/infer", {}, 404),
        ("GET", INFER, None, 405),
        ("POST", "/metrics", None, 405),
        ("GET", "/nothing", None, 404),
    ],
)
def test_a_route_refuses_what_it_cannot_do(server, method, path, body, status):
    kind = {"Content-Type": "application/octet-stream"} if path.endswith("import") else {}
    answer = server.ask(method, path, body, kind)
    assert answer.status == status, answer.body
    assert error_of(answer)


def test_a_stream_that_is_full_or_frozen_refuses_to_learn_only_if_it_must(server):
    server.service.operate("default", "freeze")
    try:
        before = server.state()
        answer = server.infer(good(server), parameters={"learn": True})
        assert answer.status == 409
        assert "frozen" in error_of(answer)
        told = json.loads(server.infer(good(server)).body)["parameters"]
        assert (told["learned"], "frozen" in told["reason"]) == (False, True)
        assert server.state() == before
    finally:
        server.service.operate("default", "thaw")


def test_a_disk_that_fails_is_no_mistake_of_the_client(server, monkeypatch):
    monkeypatch.setattr(server.service._journal._database, "read_only", "disk full")
    before = server.state()
    for answer in (
        server.ask("PUT", "/streams/later"),
        server.ask("DELETE", "/streams/default"),
        server.ask("POST", "/streams/default/freeze"),
        server.ask(
            "POST", "/streams/default/import", before[0]["default"], {"Content-Type": "application/octet-stream"}
        ),
        server.infer(good(server), parameters={"stream": "first"}),
    ):
        assert answer.status == 503
        assert "disk full" in error_of(answer)
    assert server.state() == before
    assert not list(server.folder.glob("streams/*/imports/*"))
    for error in (FileInUse("another process reads the journal"), MachineFailure("no space left on device")):
        assert as_refused(error).status == 503


def test_streams_come_on_first_use_up_to_a_number(server):
    for name, status in (("first", 200), ("second", 404)):
        assert server.infer(good(server), parameters={"stream": name}).status == status
    assert server.ask("DELETE", "/streams/first").status == 200


def test_a_service_at_its_limits_says_when_to_come_back(pets, tmp_path):
    sample = features(load_features(pets).samples.features.numpy()[:1])
    with serving(pets, tmp_path / "state", quota=1, queue=1) as server:
        statuses = [server.infer(sample, parameters={"learn": True}) for _ in range(2)]
        assert [answer.status for answer in statuses] == [200, 429]
        assert int(statuses[1].headers["retry-after"]) > 0
        assert not json.loads(server.infer(sample).body)["parameters"]["learned"]
        full = server.infer(features(load_features(pets).samples.features.numpy()[:2]))
        assert (full.status, "retry-after" in full.headers) == (429, True)

        before = server.state()
        server.service.drain(PATIENCE)
        assert server.ask("GET", "/v2/health/live").status == 200
        for answer in (
            server.infer(sample),
            server.ask("GET", "/v2/health/ready"),
            server.ask("GET", "/v2/models/pta/ready"),
        ):
            assert answer.status == 503
            assert "shutting down" in error_of(answer)
        assert server.state() == before


# -- bodies ---------------------------------------------------------------------------------------------------------


def head(server, *headers, path=INFER):
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.token}", *headers)
    return "\r\n".join((*lines, "", "")).encode()


@pytest.mark.usefixtures("unchanged")
def test_a_body_that_is_announced_too_large_is_not_read(server):
    answer = raw_exchange(server, head(server, f"Content-Length: {LARGEST + 1}"))
    assert answer.startswith("HTTP/1.1 413")
    assert f"--max-body is {LARGEST:,}" in answer
    # The token is asked for first, and nobody is told to go on.
    refused = head(server, "Content-Length: 99999", "Expect: 100-continue").replace(b"Bearer", b"Basic")
    assert raw_exchange(server, refused).startswith("HTTP/1.1 401")


def test_a_body_above_the_limit_of_its_endpoint_is_not_read_whatever_the_stream_is_called(pets, tmp_path):
    whole, operation, labels = 32 * 2**20, 2**18, 2**20
    limits = {("POST", INFER): whole, ("POST", "/login"): 4096}
    for name in ("infer", "import", "label", "default"):
        of_operations = {(one.method, one.path.format(name=name)): operation for one in OPERATIONS.values()}
        limits |= {**of_operations, ("PUT", f"/streams/{name}"): operation, ("GET", f"/streams/{name}"): operation}
        limits |= {("POST", f"/streams/{name}/import"): whole, ("POST", f"/streams/{name}/label"): labels}
    with serving(pets, tmp_path / "state") as server:
        for (method, path), most in limits.items():
            announced = server.head(f"Content-Length: {most + 1}", method=method, path=path)
            answer = raw_exchange(server, announced)
            assert answer.startswith("HTTP/1.1 413"), (method, path)
            assert f"the body has {most + 1:,} bytes" in answer
            assert f"{most:,}" in answer


@pytest.mark.usefixtures("unchanged")
def test_a_body_in_chunks_is_read_up_to_the_limit(server):
    chunks = [b"1000\r\n" + b" " * 4096 + b"\r\n"] * (LARGEST // 4096 + 1)
    answer = raw_exchange(server, head(server, "Transfer-Encoding: chunked"), *chunks)
    assert answer.startswith("HTTP/1.1 413")


def test_a_body_in_chunks_is_a_body(server):
    body = json.dumps({"inputs": [good(server)], "parameters": {"learn": False}}).encode()
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:10], body[10:])]
    answer = raw_exchange(server, head(server, "Transfer-Encoding: chunked"), *chunks, b"0\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("header", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_comes_too_slowly_is_not_waited_for(server, header):
    answer = raw_exchange(server, head(server, header), b"5\r\n")
    assert answer.startswith("HTTP/1.1 408")
    assert "connection: close" in answer
    assert "--body-timeout" in answer


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip"])
def test_an_encoded_body_is_not_read(server, encoding):
    answer = server.ask("POST", INFER, {"inputs": [good(server)]}, {"Content-Encoding": encoding})
    assert answer.status == 415
    assert "send the body as it is" in error_of(answer)


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: "])
def test_endless_headers_are_not_kept(server, begin):
    answer = raw_exchange(server, begin + b"a" * 2**17)
    assert answer.startswith("HTTP/1.1 400")
    assert "at most 65,536 bytes" in json.loads(answer.partition("\r\n\r\n")[2])["error"]


def test_what_is_no_http_is_told_so_in_json(server):
    answer = raw_exchange(server, head(server, "Content-Length: many"))
    assert answer.startswith("HTTP/1.1 400")
    assert [*json.loads(answer.partition("\r\n\r\n")[2])] == ["error"]


@pytest.mark.usefixtures("unchanged")
def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head(server, "Content-Length: 100") + b"{")
    assert server.ask("GET", "/v2/health/live").status == 200


# -- what is told ---------------------------------------------------------------------------------------------------


@contextmanager
def events(server, name="default", **headers):
    own = {"Authorization": f"Bearer {server.token}"}
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
        connection.request("GET", f"/streams/{name}/events", headers={**own, **headers})
        with connection.getresponse() as answer:
            yield answer


def next_event(answer):
    lines = []
    while line := answer.readline().decode().strip():
        lines.append(line)
    return dict(line.split(": ", 1) for line in lines)


def test_events_begin_with_a_whole_summary_and_go_on_with_what_changes(server):
    with events(server) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        first = next_event(answer)
        summary = json.loads(first["data"])
        assert "event" not in first
        assert {"classes", "sources", "timeline", "changed", "position"} <= summary.keys()
        server.infer(good(server), parameters={"source": "left"})
        told = summary
        while told["sequence"] == summary["sequence"]:
            later = next_event(answer)
            assert later["event"] == "patch"
            told = patched(told, json.loads(later["data"]))
        assert len(later["data"]) < len(first["data"])
        assert {**told, "rate": 0} == {**json.loads(server.ask("GET", "/streams/default").body), "rate": 0}
    with events(server) as answer:  # who comes back gets a whole summary again
        assert json.loads(next_event(answer)["data"])["sequence"] == told["sequence"]


def test_events_end_with_their_stream(server):
    server.ask("PUT", "/streams/short")
    with events(server, "short") as answer:
        next_event(answer)
        server.ask("DELETE", "/streams/short")
        event = next_event(answer)
        while "event" not in event:
            event = next_event(answer)
        assert event["event"] == "gone"
        assert answer.read() == b""


def test_metrics_have_their_documented_names_and_no_stream(server):
    server.ask("GET", "/streams/nobody")
    text = server.ask("GET", "/metrics").body.decode()
    for name in (
        *('pta_requests_total{route="/v2/models/pta/infer",status="200"}', 'pta_samples_total{outcome="learned"}'),
        *("pta_request_seconds_bucket", "pta_ready 1.0", "pta_learning 1.0", "pta_queued_samples 0.0", "pta_streams"),
        *("process_resident_memory_bytes", 'pta_requests_total{route="/streams/{name}",status="404"}'),
        *("pta_commit_seconds_bucket", 'pta_group_samples_bucket{le="256.0"}', "pta_streams_loaded 1.0"),
    ):
        assert name in text
    assert "default" not in text
    assert "_created" not in text
    assert float(re.search(r"^pta_journal_bytes (\S+)$", text, re.MULTILINE)[1]) > 0
    assert re.search(r'^pta_build_info{method="pta",python="3.+",torch=".+",version=".+"} 1.0$', text, re.MULTILINE)


def test_metrics_count_commits_and_tell_the_age_of_the_newest_snapshot(pets, monkeypatch):
    with serving(pets, None) as server:
        assert "pta_snapshot_age_seconds" not in server.ask("GET", "/metrics").body.decode()
        monkeypatch.setattr(Service, "snapshot_age", 12.5)
        server.service._pipeline.on_commit(0.002, 3)
        text = server.ask("GET", "/metrics").body.decode()
    for line in (
        *("pta_snapshot_age_seconds 12.5", 'pta_group_samples_bucket{le="2.0"} 0.0'),
        *('pta_group_samples_bucket{le="4.0"} 1.0', "pta_commit_seconds_sum 0.002", "pta_journal_bytes 0.0"),
    ):
        assert line in text


def logged(capfd, count, answer):
    """So many lines of the log, from the one about an answer on; a line is written after its answer."""
    lines, text = [], ""
    while len(lines) < count:
        text += capfd.readouterr().err
        whole = [json.loads(line) for line in text.splitlines()[: text.count("\n")]]
        lines = [line for line in whole if line["request"] >= int(answer.headers["x-request-number"])]
        time.sleep(0.01)
    return lines


def test_a_line_per_request_has_no_secrets(server, capfd):
    secret = 0.123456789
    first = server.infer(features(np.full((1, 16), secret)), parameters={"learn": False})
    server.ask("GET", f"/streams?token={TOKEN}")
    server.ask("GET", "/streams/default")
    lines = logged(capfd, 3, first)
    assert [(line["method"], line["path"], line["stream"], line["status"]) for line in lines] == [
        ("POST", INFER, "default", 200),
        ("GET", "/streams", None, 200),
        ("GET", "/streams/default", "default", 200),
    ]
    assert all(line["ms"] > 0 and line["request"] > 0 for line in lines)
    assert not any(hidden in json.dumps(lines) for hidden in (TOKEN, str(secret), "features"))


def fail(name):
    raise RuntimeError("the cat's features are 0.1, 0.2")


def test_a_failure_inside_is_told_by_its_number_alone(server, monkeypatch, capfd):
    monkeypatch.setattr(server.service, "summary", fail)
    answer = server.ask("GET", "/streams/default")
    assert (answer.status, error_of(answer)) == (500, "internal error; the log has more")
    failure, line = logged(capfd, 2, answer)
    assert (failure["failure"], line["status"]) == ("RuntimeError", 500)
    assert "test_serve_http.py" in failure["at"]
    assert "cat's features" not in json.dumps(failure)


def test_without_a_line_per_request_failures_are_still_logged(pets, monkeypatch, capfd):
    with serving(pets, None, {"log": "none"}) as server:
        assert server.infer(features(np.ones((1, 16)))).status == 200
        monkeypatch.setattr(server.service, "summary", fail)
        number = server.ask("GET", "/streams/default").headers["x-request-number"]
    (line,) = capfd.readouterr().err.splitlines()
    assert f"request={number} failure=RuntimeError" in line


def test_a_service_without_a_journal_says_that_nothing_is_durable(server, pets):
    assert json.loads(server.ask("GET", "/v2").body)["durable"]
    with serving(pets, None) as forgetful:
        assert not json.loads(forgetful.ask("GET", "/v2").body)["durable"]
        assert json.loads(forgetful.infer(good(server)).body)["parameters"]["learned"]


def test_openapi_describes_every_route(server):
    document = json.loads(server.ask("GET", "/openapi.json").body)
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    hidden = {("GET", path) for path in (*PAGE, "/openapi.json")} | {
        ("HEAD", path) for path in (*PAGE, "/openapi.json")
    }
    assert {(method, path.replace("{name}", "default")) for method, path in described} == set(routes(server)) - hidden
    assert document["paths"][INFER]["post"]["requestBody"]["content"].keys() == {
        "application/json",
        "application/octet-stream",
    }


def test_pictures_in_base64_are_refused_without_a_model(server):
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(b"GIF8").decode()]}
    assert "no model for pictures" in error_of(server.infer(tensor))
