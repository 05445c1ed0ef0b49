"""Heads and trailers that are too long or ambiguous are refused, and after a refusal nothing more is read."""

import json
import socket

import pytest
from http_serving import INFER, TOKEN, process, resident_bytes, send_until_closed, serving, until_closed

ENOUGH = 32 * 2**20  # bytes that a client may send before it notices that nobody reads them
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with serving(pets, tmp_path_factory.mktemp("heads") / "state", {"max_body": 20_000}) as server:
        yield server


def refusal(server, *parts):
    """The status and message of what a server answers to bytes before it hangs up."""
    with server.connect() as connection:
        for part in parts:
            connection.sendall(part)
        answer = until_closed(connection).decode()
    head, _, body = answer.partition("\r\n\r\n")
    assert "connection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]


# -- too long -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/login", INFER])
@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("part", [b"a: b\r\n" * 1000, b"a" * 6000])
def test_endless_trailers_are_not_read(server, path, token, part):
    with server.connect() as connection:
        connection.sendall(server.head(CHUNKED, path=path, token=token) + b"0\r\n")
        assert send_until_closed(connection, b"a: " + part if token else part, ENOUGH)


def test_an_endless_chunk_extension_is_not_read(server):
    with server.connect() as connection:
        connection.sendall(server.head(CHUNKED) + b"1;a=")
        assert send_until_closed(connection, b"a" * 6000, ENOUGH)


def test_trailers_are_no_headers(server):
    trailers = b"Authorization: Bearer wrong\r\nHost: evil.example\r\nContent-Encoding: gzip\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(
            server.head(CHUNKED, "Connection: close", path="/streams/default/undo") + b"0\r\n" + trailers
        )
        assert until_closed(connection).startswith(b"HTTP/1.1 409")  # as without them: there is nothing to undo


@pytest.mark.parametrize(
    "headers",
    [
        [f"X-{number}: {'a' * 1000}" for number in range(70)],
        [f"X-{number}: a" for number in range(300)],
        [f"X: {'a' * 70_000}"],
    ],
)
def test_too_many_headers_are_refused_also_in_one_piece(server, headers):
    status, error = refusal(server, server.head(*headers, method="GET", path="/v2"))
    assert status == 400
    assert "at most 65,536 bytes in 256 lines" in error


def test_a_large_head_and_a_large_body_in_one_piece_are_read(server):
    body = b'{"sequence": 0' + b" " * 15_000 + b"}"
    head = server.head(
        *(f"X-{number}: {'a' * 1000}" for number in range(60)),
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        "Connection: close",
        path="/streams/default/rewind?dry_run=true",
    )
    with server.connect() as connection:
        connection.sendall(head + body)
        assert until_closed(connection).startswith(b"HTTP/1.1 200")


def test_requests_far_ahead_of_their_answers_end_the_connection(server):
    with server.connect() as connection:
        connection.sendall(server.head(method="GET", path="/page.css", token="") * 3)
        connection.sendall(server.head("Connection: close", method="GET", path="/v2/health/live"))
        assert until_closed(connection).count(b"HTTP/1.1 200") == 4
    with server.connect() as connection:
        connection.sendall(b"GET /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
        assert until_closed(connection).count(b"HTTP/1.1 200") < 20


# -- ambiguous ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        ["Host: localhost"],
        ["Host: evil.example"],
        ["Authorization: Bearer other"],
        ["Content-Length: " + "0" * 5001],
        ["Content-Length: " + "9" * 5001],
        ["Content-Length: " + "0" * 5000 + "1"],
        ["Content-Length: 1", "Content-Length: 1"],
        ["Content-Length: 1", CHUNKED],
        [CHUNKED, "Content-Length: 1"],
        [CHUNKED, "Transfer-Encoding: identity"],
        ["X: a", " folded"],
        ["X : a"],
    ],
)
def test_an_ambiguous_head_is_refused(server, headers):
    assert refusal(server, server.head(*headers, path="/streams/default/undo"))[0] == 400


# -- after a refusal ------------------------------------------------------------------------------------------------

REFUSED = {
    401: ({"token": ""}, []),
    413: ({}, []),
    415: ({}, ["Content-Encoding: gzip"]),
    421: ({}, []),
    405: ({"method": "PUT"}, []),
}


@pytest.mark.parametrize("status", [*REFUSED])
def test_after_a_refusal_the_body_is_not_read(server, status):
    options, headers = REFUSED[status]
    head = server.head(CHUNKED, *headers, **options)
    if status == 421:
        head = head.replace(b"localhost", b"evil.example")
    with server.connect() as connection:
        connection.sendall(head)
        assert send_until_closed(connection, b"1000\r\n" + b" " * 4096 + b"\r\n", ENOUGH)
    with server.connect() as connection:
        connection.sendall(head + (b"8000\r\n" + b" " * 2**15 if status == 413 else b""))
        answer = until_closed(connection)
        assert answer.startswith(b"HTTP/1.1 %d" % status)
        assert b"connection: close" in answer


def test_a_wrong_token_ends_the_connection(server):
    content = b'{"token": "wrong"}'
    head = server.head(f"Content-Length: {len(content)}", "Content-Type: application/json", path="/login", token="")
    assert refusal(server, head, content)[0] == 401


# -- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.extensive
def test_trailers_and_heads_take_no_memory(pets, tmp_path):
    with process(tmp_path / "state", "--features-only", pets) as server:
        before = resident_bytes(server.process)
        held: list[socket.socket] = []
        try:
            for _ in range(100):
                with server.connect() as connection:
                    connection.sendall(server.head(CHUNKED, path="/login", token="") + b"0\r\n")
                    assert send_until_closed(connection, b"a: b\r\n" * 10_000, ENOUGH)
                held.append(server.connect())
                held[-1].sendall(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 250 + b"X: " + b"a" * 60_000)
            assert server.ask("GET", "/v2").status == 200
            assert resident_bytes(server.process) < before + 100 * 2**20
        finally:
            for connection in held:
                connection.close()
