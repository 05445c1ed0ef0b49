"""Bodies: little is read without a token, and all that are on their way together have a limit."""

import json
from contextlib import ExitStack

import pytest
from http_serving import INFER, TOKEN, features, process, resident_bytes, serving, until_closed
from processes import PATIENCE, wait_for

from pta.serve.http import protocol

LARGEST = 32 * 2**20
ALL = 8  # bodies of the largest size that fit


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with serving(pets, tmp_path_factory.mktemp("bodies") / "state", {"body_timeout": PATIENCE}) as server:
        server.sample = features([[1.0] * 16])
        yield server


def login(server, content, **headers):
    return server.ask("POST", "/login", content, headers, token="none")


def free_bytes(server):
    return server.app._bodies.free


def test_a_login_of_more_than_4_kib_is_not_read(server):
    for head in (
        server.head(f"Content-Length: {31 * 2**20}", path="/login", token=""),
        server.head("Transfer-Encoding: chunked", path="/login", token="") + b"2000\r\n" + b" " * 2**13,
    ):
        with server.connect() as connection:
            connection.sendall(head)
            answer = until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"without a token at most 4,096 are read" in answer


def test_a_login_looks_at_one_field(server):
    others = {str(number): [number] for number in range(200)}
    assert login(server, {**others, "token": TOKEN}).status == 204
    assert login(server, {**others, "token": "wrong"}).status == 401
    for content in (others, {"token": 1}, [TOKEN], b"[" * 4000, b"{"):
        assert login(server, content).status == 422


def test_an_operation_takes_256_kib(server):
    """A larger one would be parsed in the event loop, where all others wait."""
    many = {"source": "camera", **{str(number): 1 for number in range(40_000)}}
    refused = server.ask("POST", "/streams/default/unlearn", many)
    assert (refused.status, refused.headers["connection"]) == (413, "close")
    assert "an operation takes at most 262,144" in json.loads(refused.body)["error"]
    named = server.ask("POST", "/streams/default/import", b"x" * 2**19, {"Content-Type": "application/octet-stream"})
    assert named.status == 422  # it was read, and is no state


@pytest.mark.parametrize("where", ["inputs", "outputs", "parameters", "data"])
def test_json_with_more_values_than_a_request_needs_is_not_parsed(server, monkeypatch, where):
    monkeypatch.setattr(protocol, "orjson", None)
    many = [[]] * 20_000
    body = (
        {"inputs": [{**server.sample, "data": many}]} if where == "data" else {"inputs": [server.sample], where: many}
    )
    refused = server.ask("POST", INFER, body)
    assert refused.status == 422
    assert "more values than a request needs" in json.loads(refused.body)["error"]


def test_bodies_on_their_way_have_a_limit_together(server):
    whole = free_bytes(server)
    with ExitStack() as stack:
        for _ in range(ALL):
            stack.enter_context(server.connect()).sendall(server.head(f"Content-Length: {LARGEST}") + b"{")
        wait_for(lambda: free_bytes(server) == 0)
        refused = server.infer(server.sample)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "memory for bodies" in json.loads(refused.body)["error"]
        assert server.ask("GET", "/v2").status == 200  # what has no body is answered
    wait_for(lambda: free_bytes(server) == whole)  # the clients have left
    assert server.infer(server.sample).status == 200
    wait_for(lambda: free_bytes(server) == whole)


def test_a_body_in_chunks_counts_as_far_as_it_has_come(server):
    whole = free_bytes(server)
    with server.connect() as connection:
        connection.sendall(server.head("Transfer-Encoding: chunked") + b"100000\r\n" + b" " * 2**20)
        wait_for(lambda: free_bytes(server) == whole - 2**20)
    wait_for(lambda: free_bytes(server) == whole)


@pytest.mark.extensive
def test_bodies_without_a_token_take_no_memory(pets, tmp_path):
    with process(tmp_path / "state", "--features-only", pets) as server, ExitStack() as stack:
        before = resident_bytes(server.process)
        for path in ("/login", INFER) * 30:
            connection = stack.enter_context(server.connect())
            connection.sendall(server.head(f"Content-Length: {LARGEST - 1}", path=path, token=""))
            until_closed(connection)
        assert server.ask("GET", "/v2").status == 200
        assert resident_bytes(server.process) < before + 50 * 2**20
