"""Connections: who sends nothing, half a header or a byte now and then keeps none, and cannot keep others out."""

import json
import resource
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection

import pytest
from http_serving import features, journal_rows, process, serving, until_closed
from processes import PATIENCE, wait_for
from serving import ask, open_service

from pta.errors import InvalidParameter, MachineFailure
from pta.serve.open_files import affordable_connections

SAMPLE = features([[1.0] * 16])
EVENTS = {"method": "GET", "path": "/streams/default/events"}


# -- how long -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(pets, tmp_path_factory):
    """A service that waits half a second for a head."""
    with serving(pets, tmp_path_factory.mktemp("serve") / "state", {"head_timeout": 0.5}) as server:
        yield server


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v2 HTTP/1.1\r\nHost: loc",
        *(pytest.param(one, marks=pytest.mark.extensive) for one in (b"", b"G", b"\r\n")),
    ],
)
def test_a_connection_without_a_whole_head_is_closed(impatient, start):
    with impatient.connect() as connection:
        connection.sendall(start)
        assert until_closed(connection) == b""


def test_a_head_that_comes_byte_by_byte_is_closed(impatient):
    with impatient.connect() as connection, suppress(BrokenPipeError, ConnectionResetError):
        for byte in impatient.head(f"X: {'a' * 20_000}", method="GET"):
            connection.sendall(bytes([byte]))
            time.sleep(0.001)
        pytest.fail("the whole head was read")


def until_in_time(ask):
    """What a call gives, which is repeated where a busy machine lets half a second pass before the token is read."""
    while True:
        with suppress(ConnectionError):
            return ask()


def answered(server, **head):
    """A connection whose first request was answered."""

    def ask():
        connection = server.connect()
        try:
            connection.sendall(server.head(**head))
            if not (answer := connection.recv(2**16)):
                raise ConnectionError
        except BaseException:
            connection.close()
            raise
        assert answer.startswith(b"HTTP/1.1 200")
        return connection

    return until_in_time(ask)


def test_half_a_head_after_an_answer_is_closed(impatient):
    with answered(impatient, method="GET", path="/v2/health/live") as connection:
        connection.sendall(b"GET /v2")
        assert until_closed(connection) == b""


def test_a_body_without_a_token_has_no_more_time(impatient):
    with impatient.connect() as connection:
        connection.sendall(impatient.head("Content-Length: 10", path="/login", token=""))
        assert until_closed(connection) == b""


def test_a_request_with_a_token_has_the_time_it_needs(impatient):
    with answered(impatient, **EVENTS) as watcher:
        for start in (b"", b"G"):
            with impatient.connect() as other:
                other.sendall(start)
                until_closed(other)  # as long as others are waited for
        until_in_time(lambda: impatient.infer(SAMPLE))
        assert watcher.recv(2**16)


# -- how many -------------------------------------------------------------------------------------------------------


@contextmanager
def holding(connection, sent):
    """A connection whose request is not complete."""
    with connection:
        connection.sendall(sent)
        yield connection


def asking_body(server):
    """A request with a token, whose body does not come."""
    return holding(server.connect(), server.head("Content-Length: 10"))


def count_authorised(server):
    return len(server.app.connections._open) - len(server.app.connections._waiting)


@pytest.fixture
def small(pets, tmp_path):
    """A service of four connections."""
    http = {"connections": 4, "body_timeout": PATIENCE, "head_timeout": PATIENCE}
    with serving(pets, tmp_path / "state", http) as server:
        yield server


def test_at_the_limit_the_connection_that_waited_longest_goes(small):
    with ExitStack() as stack:
        idle = [stack.enter_context(small.connect()) for _ in range(4)]
        busy = stack.enter_context(asking_body(small))
        assert until_closed(idle[0]) == b""
        wait_for(lambda: count_authorised(small) == 1)
        for _ in range(20):
            stack.enter_context(small.connect())
        for connection in idle[1:]:
            assert until_closed(connection) == b""
        assert small.infer(SAMPLE).status == 200
        busy.sendall(b"0123456789")
        assert busy.recv(2**16).startswith(b"HTTP/1.1 422")  # it was kept, and is answered


def test_who_opens_many_connections_does_not_end_those_of_others(small):
    with ExitStack() as stack:
        kept = stack.enter_context(closing(HTTPConnection("127.0.0.1", small.port, timeout=PATIENCE)))
        for _ in range(20):
            kept.request("GET", "/v2", headers={"Authorization": f"Bearer {small.token}"})
            assert kept.getresponse().read()
            kept.auto_open = False  # it goes on with this connection, or fails
            for _ in range(8):
                stack.enter_context(small.connect())


def test_few_connections_without_a_token_are_not_closed_before_those_that_waited_longer(small):
    with ExitStack() as stack:
        known = []
        for _ in range(4):
            known.append(stack.enter_context(small.connect()))
            known[-1].sendall(small.head(method="GET", path="/v2"))
            assert known[-1].recv(2**16).startswith(b"HTTP/1.1 200")
        wait_for(lambda: count_authorised(small) == 0)
        strangers = [stack.enter_context(small.connect()) for _ in range(2)]
        for connection in known[:2]:
            assert until_closed(connection) == b""
        for connection in (*strangers, *known[2:]):
            connection.sendall(small.head(method="GET", path="/v2"))
            assert connection.recv(2**16).startswith(b"HTTP/1.1 200")


def test_when_all_are_authorised_a_new_one_is_told_to_come_back(small):
    with ExitStack() as stack:
        held = [stack.enter_context(asking_body(small)) for _ in range(4)]
        wait_for(lambda: count_authorised(small) == 4)
        with small.connect() as refused:
            answer = until_closed(refused).decode()
        assert answer.startswith("HTTP/1.1 503")
        assert "retry-after: 1" in answer
        assert [*json.loads(answer.partition("\r\n\r\n")[2])] == ["error"]
        held[0].close()
        wait_for(lambda: count_authorised(small) == 3)
        assert small.ask("GET", "/v2").status == 200


def test_watchers_take_at_most_half(small):
    with ExitStack() as stack:
        for _ in range(2):
            watcher = stack.enter_context(holding(small.connect(), small.head(**EVENTS)))
            assert watcher.recv(2**16).startswith(b"HTTP/1.1 200")
        refused = small.ask("GET", "/streams/default/events")
        assert (refused.status, "half of --connections" in json.loads(refused.body)["error"]) == (503, True)
        assert int(refused.headers["retry-after"]) > 0
        watcher.close()

        def can_watch():
            with small.connect() as again:
                again.sendall(small.head(**EVENTS))
                return again.recv(2**16).startswith(b"HTTP/1.1 200")

        wait_for(can_watch)


# -- open files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("files", "allowed"), [(1024, 512), (512, 384), (129, 1), (resource.RLIM_INFINITY, 512)])
def test_there_are_no_more_connections_than_files_allow(monkeypatch, files, allowed):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert affordable_connections(512) == allowed


def test_too_few_files_for_any_connection_are_told(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (128, 128))
    with pytest.raises(InvalidParameter, match="128 files may be open, and pta serve needs at least 129"):
        affordable_connections(512)


@contextmanager
def no_file_left(pid):
    """No file can be opened in a process."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))  # those that are open stay open
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.extensive
def test_an_erasure_for_which_there_is_no_file_changes_nothing(pets, tmp_path):
    with (
        process(tmp_path / "state", "--features-only", pets) as server,
        closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection,
    ):
        assert server.infer(SAMPLE, parameters={"source": "left"}).status == 200
        before = server.state()
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        connection.request("GET", "/v2", headers=headers)  # so that the service has taken the connection
        with connection.getresponse() as answer:
            assert answer.read()
        with no_file_left(server.process.pid):
            for method, path, body in (
                ("POST", "/streams/default/unlearn", b'{"source": "left", "erase": true}'),
                ("DELETE", "/streams/default", b""),
            ):
                connection.request(method, path, body, headers)
                with connection.getresponse() as answer:
                    assert answer.status == 503
                    assert "nothing was changed: too many files are open" in json.loads(answer.read())["error"]
        assert server.state() == before
        assert server.infer(SAMPLE, parameters={"learn": True}).status == 200
        erased = server.ask("POST", "/streams/default/unlearn", {"source": "left", "erase": True})
        assert erased.status == 200
        assert len(journal_rows(server.folder)["samples"]) == 1


def test_an_erasure_that_ends_for_want_of_a_file_does_not_end_writing(tmp_path):
    with open_service(tmp_path) as service:
        assert ask(service, 0, count=2, source="left").learned
        with no_file_left(0), pytest.raises(MachineFailure, match="the rows are deleted, but their bytes may still be"):
            service._journal.erase(1, "left", 2)
        assert service._journal.read_only is None
        assert ask(service, 1, learn="true").learned


@pytest.mark.extensive
def test_idle_connections_leave_files_for_an_erasure(pets, tmp_path):
    with process(tmp_path / "state", "--features-only", pets, files=256) as server, ExitStack() as stack:
        assert "--connections 512 is lowered to 128" in server.log.read_text()
        assert server.infer(SAMPLE, parameters={"source": "left"}).status == 200
        for number in range(600):
            connection = stack.enter_context(server.connect())
            with suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: loc" if number % 2 else b"")
        erased = server.ask("POST", "/streams/default/unlearn", {"source": "left", "erase": True})
        assert erased.status == 200
        assert server.infer(SAMPLE, parameters={"learn": True}).status == 200
