"""Alarms sent to a URL: signed, in bounded time, and only to places that the user means."""

import hmac
import json
import logging
import shutil
import socket
import ssl
import subprocess
import sys
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
    hook = Webhook(webhook.Receiver(url, key, allow_private), pauses=pauses)
    hook.send({"kind": "drift", "at": 7})
    hook.close(PATIENCE)
    return hook.sent, hook.lost


def resolve_to(monkeypatch, *addresses):
    """Names resolve to these addresses the first time, and then to this machine; returns those that were asked for."""
    asked, real = [], socket.getaddrinfo

    def getaddrinfo(host, port, *more, **named):
        if host[-1].isdigit():
            return real(host, port, *more, **named)
        asked.append(host)
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        found = addresses if len(asked) == 1 else LOCAL
        return [(kinds[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_signature_verifies(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which is not used
    with receiving() as server:
        assert send_one(server.url, KEY) == (1, 0)
        send_one(server.url)
    (path, headers, body), unsigned = server.requests
    assert (path, body) == ("/hook?secret=1", b'{"at": 7, "kind": "drift"}')
    assert headers["Content-Type"] == "application/json"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert abs(int(headers["X-PTA-Time"]) - time.time()) < 60
    signed = hmac.new(KEY, headers["X-PTA-Time"].encode() + b"." + body, sha256).hexdigest()
    assert headers["X-PTA-Signature"] == f"sha256={signed}"
    assert "X-PTA-Signature" not in unsigned[1]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_not_followed(status):
    with receiving() as target, receiving(status, headers=[("Location", target.url)]) as server:
        assert send_one(server.url) == (0, 1)
    assert target.requests == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_server_is_tried_again(status):
    with receiving(status, 200) as server:
        assert send_one(server.url) == (1, 0)
    assert server.requests[0][2] == server.requests[1][2]


def test_failure_is_logged_once_without_secrets(caplog):
    with receiving(503) as server, caplog.at_level(logging.DEBUG, "pta.alarms"):
        assert send_one(server.url, KEY) == (0, 1)
    assert len(server.requests) == 3
    [record] = caplog.records
    assert (record.name, record.levelname) == ("pta.alarms", "WARNING")
    assert record.getMessage() == f"an alarm was not sent to http://127.0.0.1:{server.port}: the answer was 503"


@pytest.mark.parametrize("content", [b"", b"x" * 100_000, b"HTTP/1.1 2000 OK\r\n", b"HTTP/1.1 99\r\n"])
def test_answer_that_is_not_http_fails(content):
    def answer(connection, _):
        connection.recv(4096)
        connection.sendall(content)

    with answering(answer) as url:
        assert send_one(url, pauses=()) == (0, 1)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("answer", [hang, drip])
def test_slow_server_is_cut_off(answer, scheme, monkeypatch):
    monkeypatch.setattr(webhook, "_STEP_SECONDS", 0.3)
    monkeypatch.setattr(webhook, "_ATTEMPT_SECONDS", 0.4)
    with answering(answer) as url:
        assert send_one(url.replace("http", scheme), pauses=(0,)) == (0, 1)  # and not after PATIENCE


@pytest.mark.parametrize("answer", [hang, drip])
def test_slow_server_does_not_delay_the_end_of_a_program(answer):
    with answering(answer) as url:
        code = f"""
from pta.run.webhook import Receiver, Webhook
hook = Webhook(Receiver({url!r}, None, ["127.0.0.1"]))
for number in range(200):
    hook.send({{"number": number}})
assert hook._waiting.qsize() <= 64 and hook.lost in (135, 136)
hook.close(0.2)
assert hook.lost in (136, 137)
"""
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE
        )
    assert "too many are waiting" in done.stderr
    assert "there was no time left" in done.stderr


def test_pause_ends_with_close():
    with receiving(503) as server:
        hook = Webhook(webhook.Receiver(server.url, None, LOCAL), pauses=(PATIENCE,))
        hook.send({})
        hook.close(0.3)
        hook._thread.join(PATIENCE / 2)
        assert not hook._thread.is_alive()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "example.org",
        "http:///path",
        "https://me:secret@example.org/",
        "https://@example.org/",
        "http://[::1/",
        "http://example.org:99999/",
        "http://example.org/a b",
        "http://example.org/\r\nX: 1",
        "http://10.1.2.3/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://2130706433/",
    ],
)
def test_wrong_url_is_refused(url):
    with pytest.raises(InvalidParameter, match=r"the alarm URL (must be|has the address .* not public)") as refusal:
        webhook.Receiver(url, None)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "addresses",
    [
        "127.0.0.1",
        "93.184.215.14,127.0.0.1",
        "93.184.215.14,::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.1.1",
        "240.0.0.1",
        "fe80::1%lo",
        "fd00::1",
        "fec0::1",
        "ff0e::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_name_with_an_address_that_is_not_public_is_refused(addresses, monkeypatch, caplog):
    resolve_to(monkeypatch, *addresses.split(","))
    monkeypatch.setattr(webhook._Connection, "connect", lambda _: pytest.fail("connected"))
    assert send_one("http://hook.example/", allow_private=["127.0.0.1", "other.example"], pauses=()) == (0, 1)
    assert "not public" in caplog.text


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_address_is_allowed(address):
    assert webhook._is_public(address)


def test_named_host_may_be_private_and_is_resolved_once(monkeypatch):
    asked = resolve_to(monkeypatch, "127.0.0.1")
    with receiving() as server:
        assert send_one(f"http://Hook.example:{server.port}/", allow_private=["hook.EXAMPLE"]) == (1, 0)
    assert asked == ["hook.example"]
    assert server.requests[0][1]["Host"] == f"Hook.example:{server.port}"


def test_connects_to_the_address_that_was_checked(monkeypatch):
    """A name that is resolved to a public address, and then to a private one, leads to the public one."""
    resolve_to(monkeypatch, "93.184.215.14")
    connected = []
    monkeypatch.setattr(socket, "create_connection", lambda address, _: connected.append(address) or socket.socket())
    send_one("http://hook.example/", allow_private=(), pauses=())
    assert connected == [("93.184.215.14", 80)]


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
        assert send_one(f"https://{host}:{server.port}/", allow_private=[host], pauses=()) == (sent, 1 - sent)
    assert (asked, names, len(server.requests)) == ([host], [host], sent)
    assert ("certificate verify failed" in caplog.text) == (not sent)


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_key_is_read_without_its_newline(ending, tmp_path):
    for key in (KEY, b"\xff\0" * 2048, b"\n" + KEY):
        (tmp_path / "key").write_bytes(key + ending)
        assert read_key(tmp_path / "key") == key


@pytest.mark.parametrize("content", [b"", b"short", b"0123456789abcde\n"])
def test_wrong_key_is_refused(content, tmp_path):
    with pytest.raises(UnreadableFile, match="no such key file"):
        read_key(tmp_path / "key")
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InvalidParameter, match="at least 16 bytes"):
        read_key(tmp_path / "key")


def test_body_is_json_for_any_text():
    with receiving() as server, closing(Webhook(webhook.Receiver(server.url, None, LOCAL))) as hook:
        hook.send({"text": "ä\udcff"})
    assert json.loads(server.requests[0][2]) == {"text": "ä\udcff"}
