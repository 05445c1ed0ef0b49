"""Alarms sent to a URL: signed, in bounded time, and only to places that the user means."""

import hmac
import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pta.errors import InvalidParameter, UnreadableFile
from pta.run import webhook
from pta.run.webhook import Webhook, read_key

KEY = b"0123456789abcdef"
LOCAL = ["127.0.0.1"]
PATIENCE = 20.0  # seconds that pass only if something is wrong


class Receiver(ThreadingHTTPServer):
    """Notes what arrives, and answers with the next of some statuses, the last one for ever."""

    daemon_threads = False

    def __init__(self, statuses=(200,), headers=()):
        self.statuses, self.headers, self.requests = list(statuses), headers, []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self):
        return self.server_address[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hook?secret=1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers, body))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        for name, value in self.server.headers:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def receiving(*statuses, headers=(), context=None):
    with Receiver(statuses or (200,), headers) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.handle_error = lambda *_: None  # of a client that refuses the certificate
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(answer):
    """A server that treats each connection by a function; what it says when the client is gone is lost."""
    over = threading.Event()

    def serve(listener):
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                continue
            with connection, suppress(OSError):
                answer(connection, over)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


def hang(_, over):
    over.wait(PATIENCE)


def drip(connection, over):
    connection.sendall(b"HTTP/1.1 ")
    while not over.wait(0.05):
        connection.sendall(b"2")


def send_one(url, key=None, allow_private=LOCAL, pauses=(0, 0)):
    hook = Webhook(url, key, allow_private, pauses=pauses)
    hook.send({"kind": "drift", "at": 7})
    hook.close(PATIENCE)
    return hook


def counts(hook):
    return hook.sent, hook.failed, hook.dropped


def resolve_to(monkeypatch, *addresses):
    """Names resolve to these addresses; returns the names that were asked for."""
    asked = []

    def getaddrinfo(host, port, *_, **__):
        asked.append(host)
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(kinds[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(webhook.socket, "getaddrinfo", getaddrinfo)
    return asked


def test_signature_verifies():
    with receiving() as server:
        assert counts(send_one(server.url, KEY)) == (1, 0, 0)
    [(path, headers, body)] = server.requests
    assert (path, body) == ("/hook?secret=1", b'{"at": 7, "kind": "drift"}')
    assert headers["Content-Type"] == "application/json"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert abs(int(headers["X-PTA-Time"]) - time.time()) < 60
    signed = hmac.new(KEY, headers["X-PTA-Time"].encode() + b"." + body, sha256).hexdigest()
    assert headers["X-PTA-Signature"] == f"sha256={signed}"


def test_without_key_unsigned():
    with receiving() as server:
        send_one(server.url)
    assert "X-PTA-Signature" not in server.requests[0][1]


def test_proxies_are_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with receiving() as server:
        assert send_one(server.url).sent == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_not_followed(status):
    with receiving() as target, receiving(status, headers=[("Location", target.url)]) as server:
        assert counts(send_one(server.url)) == (0, 1, 0)
    assert (len(server.requests), target.requests) == (1, [])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_server_is_tried_again(status):
    with receiving(status, 200) as server:
        assert counts(send_one(server.url)) == (1, 0, 0)
    assert len(server.requests) == 2
    assert server.requests[0][2] == server.requests[1][2]


@pytest.mark.parametrize(("status", "attempts"), [(503, 3), (400, 1), (404, 1)])
def test_failure_is_logged_once_without_secrets(status, attempts, caplog):
    with receiving(status) as server, caplog.at_level(logging.DEBUG, "pta.alarms"):
        assert counts(send_one(server.url, KEY)) == (0, 1, 0)
    assert len(server.requests) == attempts
    [record] = caplog.records
    assert (record.name, record.levelname) == ("pta.alarms", "WARNING")
    assert record.getMessage() == f"an alarm was not sent to http://127.0.0.1:{server.port}: the answer was {status}"


def test_refused_connection_is_tried_again(monkeypatch):
    attempts = []
    connect = webhook._Connection.connect
    monkeypatch.setattr(webhook._Connection, "connect", lambda self: (attempts.append(1), connect(self)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert counts(send_one(f"http://127.0.0.1:{port}/")) == (0, 1, 0)
    assert len(attempts) == 3


@pytest.mark.parametrize("content", [b"", b"x" * 10_000, b"HTTP/1.1 200", b"HTTP/1.1 2000 OK\r\n", b"HTTP/1.1 99\r\n"])
def test_answer_that_is_not_http_fails(content):
    def answer(connection, _):
        connection.recv(4096)
        connection.sendall(content)

    with answering(answer) as url:
        assert counts(send_one(url, pauses=())) == (0, 1, 0)


@pytest.mark.parametrize("answer", [hang, drip])
def test_slow_server_is_cut_off(answer, monkeypatch, caplog):
    monkeypatch.setattr(webhook, "_STEP_SECONDS", 0.3)
    monkeypatch.setattr(webhook, "_ATTEMPT_SECONDS", 0.4)
    begun = time.monotonic()
    with answering(answer) as url:
        assert counts(send_one(url, pauses=(0,))) == (0, 1, 0)
    assert time.monotonic() - begun < 10
    assert "timed out" in caplog.text


@pytest.mark.parametrize("answer", [hang, drip])
def test_close_returns_in_time(answer, caplog):
    begun = time.monotonic()
    with answering(answer) as url:
        hook = Webhook(url, None, LOCAL)
        for number in range(3):
            hook.send({"number": number})
        hook.close(0.2)
        assert not hook._thread.is_alive()
    assert time.monotonic() - begun < 4  # less than the limit of one step
    assert hook.sent == 0
    assert hook.failed + hook.dropped == 3
    assert f"{hook.dropped} alarms were not sent" in caplog.text


def test_pause_ends_with_close():
    with receiving(503) as server:
        hook = Webhook(server.url, None, LOCAL, pauses=(PATIENCE,))
        hook.send({})
        hook.close(0.3)
        assert not hook._thread.is_alive()
    assert counts(hook) == (0, 1, 0)


def test_queue_is_bounded_and_drops_the_oldest():
    begun = time.monotonic()
    with answering(hang) as url, closing(Webhook(url, None, LOCAL)) as hook:
        for number in range(200):
            hook.send({"number": number})
        assert time.monotonic() - begun < 4
        assert len(hook._waiting) == 64
        assert hook._waiting[-1] == b'{"number": 199}'
        assert hook.dropped in (135, 136)  # one may be on its way
        hook.close(0)
    assert sum(counts(hook)) == 200


def test_nothing_is_sent_after_close():
    with receiving() as server:
        hook = send_one(server.url)
        hook.send({})
        hook.close(0)
    assert counts(hook) == (1, 0, 1)


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2, "a": 3}])
def test_what_is_not_json_is_counted(value, caplog):
    with closing(Webhook("http://example.org", None)) as hook:
        hook.send({"value": value})
    assert counts(hook) == (0, 1, 0)
    assert "cannot be written as JSON" in caplog.text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.org/", "http://"),
        ("example.org", "http://"),
        ("http:///path", "no host"),
        ("https://me:secret@example.org/", "user name"),
        ("https://@example.org/", "user name"),
        ("http://example.org:99999/", "port"),
        ("http://[::1/", "host or port"),
        ("http://example.org/a b", "percent-encode"),
        ("http://example.org/\r\nX: 1", "percent-encode"),
        ("http://10.1.2.3/", "not public"),
        ("http://[::1]/", "not public"),
        ("http://[::ffff:169.254.169.254]/", "not public"),
    ],
)
def test_wrong_url_is_refused(url, message):
    with pytest.raises(InvalidParameter, match=message) as refusal:
        Webhook(url, None)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["93.184.215.14", "127.0.0.1"],
        ["93.184.215.14", "::1"],
        ["::ffff:127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["100.64.0.1"],
        ["0.0.0.0"],
        ["224.0.1.1"],
        ["240.0.0.1"],
        ["fe80::1%lo"],
        ["fd00::1"],
        ["fec0::1"],
        ["ff0e::1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
    ],
)
def test_name_with_an_address_that_is_not_public_is_refused(addresses, monkeypatch, caplog):
    asked = resolve_to(monkeypatch, *addresses)
    monkeypatch.setattr(webhook._Connection, "connect", lambda _: pytest.fail("connected"))
    assert counts(send_one("http://hook.example/", allow_private=["127.0.0.1", "other.example"])) == (0, 1, 0)
    assert asked == ["hook.example"]  # and not tried again
    assert "not public" in caplog.text


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_address_is_allowed(address):
    assert webhook._is_public(webhook.ip_address(address))


def test_named_host_may_be_private_and_is_resolved_once(monkeypatch):
    asked = resolve_to(monkeypatch, "127.0.0.1")
    with receiving() as server:
        assert counts(send_one(f"http://Hook.example:{server.port}/", allow_private=["hook.EXAMPLE."])) == (1, 0, 0)
    assert asked == ["hook.example"]
    assert server.requests[0][1]["Host"] == f"hook.example:{server.port}"


def test_next_address_is_tried(monkeypatch):
    resolve_to(monkeypatch, "127.0.0.2", "127.0.0.1")
    with receiving() as server:
        assert send_one(f"http://hook.example:{server.port}/", allow_private=["hook.example"], pauses=()).sent == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a certificate of hook.example and its key, which is of use nowhere else."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "hook.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"]
    subprocess.run(
        ["openssl", "req", *kind, *name, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + path.with_name("hook.pem.crt").read_bytes())
    return path


@pytest.mark.parametrize(
    ("host", "trusted", "sent"), [("hook.example", True, 1), ("hook.example", False, 0), ("other.example", True, 0)]
)
def test_certificates_are_checked(host, trusted, sent, certificate, monkeypatch, caplog):
    asked, names = resolve_to(monkeypatch, "127.0.0.1"), []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _, name, __: names.append(name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with receiving(context=context) as server:
        assert counts(send_one(f"https://{host}:{server.port}/", allow_private=[host])) == (sent, 1 - sent, 0)
    assert (asked, names, len(server.requests)) == ([host], [host], sent)
    assert ("certificate verify failed" in caplog.text) == (not sent)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_key_is_read_without_its_newline(ending, tmp_path):
    for key in (KEY, b"\xff\0" * 2048, b"\n" + KEY):
        (tmp_path / "key").write_bytes(key + ending)
        assert read_key(tmp_path / "key") == key


@pytest.mark.parametrize(
    "content", [b"", b"short", b"0123456789abcde\n", b"x" * 4097, b"x" * 4097 + b"\n", b"x" * 9999]
)
def test_wrong_key_is_refused(content, tmp_path):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InvalidParameter, match="16 to 4,096 bytes"):
        read_key(tmp_path / "key")


def test_missing_key_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="no such key file"):
        read_key(tmp_path / "key")


def test_body_is_json_for_any_text():
    with receiving() as server, closing(Webhook(server.url, None, LOCAL)) as hook:
        hook.send({"text": "ä\udcff"})
    assert json.loads(server.requests[0][2]) == {"text": "ä\udcff"}
