"""An object store on this machine that fails when a test says so: moto's server, behind a proxy that makes the faults.

    with faulty_storage(monkeypatch) as store:
        store.put("bucket/photos/a.png", content)
        store.fault = lambda asked: CUT if asked.method == "GET" and asked.path.endswith("a.png") else None

Addresses are `s3://bucket/…`, in this process and in those that it starts: boto reads the environment.
"""

import os
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from storages import closed_in_the_end

BUSY, GONE, FORBIDDEN = 503, 404, 403
CUT, STALE = "cut off", "stale listing"
_CODES = {BUSY: "SlowDown", GONE: "NoSuchKey", FORBIDDEN: "AccessDenied"}
_SECRETS = {"AWS_ACCESS_KEY_ID": "our-key", "AWS_SECRET_ACCESS_KEY": "our-secret"}
_SCOPE = "Credential=our-key/20260101/us-east-1/s3/aws4_request"
_SIGNED = {"Authorization": f"AWS4-HMAC-SHA256 {_SCOPE}, SignedHeaders=host, Signature=0"}  # which moto does not check
_OTHER_SOURCES = ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


class Asked(NamedTuple):
    """A request, as a test decides about it."""

    method: str
    path: str  # /BUCKET/KEY
    is_listing: bool
    times: int  # how often the same was asked before


class FaultyStorage:
    """What a test does with the store.

    `fault` takes a request and gives `None`, an HTTP status, seconds to wait, `CUT` (half of the content, then the
    connection ends) or `STALE` (a listing is what it was when it was first asked for).
    """

    def __init__(self, moto, proxy):
        self.moto, self.url = moto, f"http://127.0.0.1:{proxy}"
        self.asked = []  # all requests
        self.fault = lambda asked: None
        self._times, self._listings, self._lock = {}, {}, Lock()

    def put(self, place, content):
        """Store an object at `bucket/key`, past the proxy; its bucket is made if need be."""
        bucket = place.partition("/")[0]
        for path, body in ((f"/{bucket}", b""), (f"/{place}", content)):
            status, _, said = _send(self.moto, "PUT", path, _SIGNED, body)
            assert status in (200, 409), said

    def get(self, place):
        """The content of an object, past the proxy."""
        status, _, content = _send(self.moto, "GET", f"/{place}", _SIGNED, b"")
        assert status == 200, content
        return content

    def note(self, method, target):
        """The fault of a request."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query, keep_blank_values=True)
        with self._lock:
            times = self._times[method, target] = self._times.get((method, target), -1) + 1
            asked = Asked(method, path, method == "GET" and ("list-type" in query or "prefix" in query), times)
            self.asked.append(asked)
            return self.fault(asked)

    def listing(self, target, now):
        """What a listing was when it was first asked for."""
        with self._lock:
            return self._listings.setdefault(target, now)


def _send(port, method, target, headers, body):
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, target, body, headers)
        with connection.getresponse() as answer:
            return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FaultyStorage

    def _pass(self):
        fault = self.store.note(self.command, self.path)
        body = self._body()
        if fault in _CODES:
            said = f"<Error><Code>{_CODES[fault]}</Code><Message>as the test says</Message></Error>".encode()
            self._answer(fault, [("Content-Type", "application/xml")], said)
            return
        if isinstance(fault, float):
            time.sleep(fault)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
        answer = _send(self.store.moto, self.command, self.path, headers, body)
        if self.command == "GET" and "prefix=" in self.path:
            first = self.store.listing(self.path, answer)
            answer = first if fault == STALE else answer
        self._answer(*answer, cut=fault == CUT)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

    def _body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status, headers, content, cut=False):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "date", "server", "content-length"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length", len(content))
        self.send_header("Content-Length", str(length if self.command == "HEAD" else len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection |= cut

    def log_message(self, *_):
        """Nothing."""


@contextmanager
def faulty_storage(monkeypatch):
    """A store for one test, with credentials for it in the environment; skipped without s3fs and moto.

    This process asks once, where s3fs would ask for half a minute: a fault is one that its own repetition did not cure.
    """
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    from s3fs import S3FileSystem

    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    store = FaultyStorage(moto.get_host_and_port()[1], proxy.server_port)
    proxy.RequestHandlerClass = type("_Proxy", (_Proxy,), {"store": store})
    thread = Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    with monkeypatch.context() as patch:
        for name in _OTHER_SOURCES:
            patch.delenv(name, raising=False)
        nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        own = {"AWS_ENDPOINT_URL": store.url, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        for name, value in {**_SECRETS, **own, **nothing, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        patch.setattr(S3FileSystem, "retries", 1)
        _send(store.moto, "POST", "/moto-api/reset", {}, b"")  # what tests before this one stored
        try:
            with closed_in_the_end(
                S3FileSystem, lambda system: system._s3creator, lambda creator: creator.__aexit__(None, None, None)
            ):
                yield store
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
            moto.stop()
