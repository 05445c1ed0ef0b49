"""The page of an audit, for a browser on this machine: one link with a secret token, and no path from the browser.

Whoever does not know the token gets nothing, and a web page elsewhere cannot ask: the Host must be this address. A
connection is one request, which must arrive within seconds and be short; few are answered at a time.
"""

import hmac
import json
import re
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from threading import BoundedSemaphore, Event, Thread, Timer
from typing import Any

from pta.data.sample_set import SampleReference
from pta.door.safe_text import printable
from pta.errors import PtaError, UserMistake
from pta.measure.audit.label_file import Session
from pta.measure.audit.pictures import shown_picture

_ADDRESS = "127.0.0.1"
_LARGEST_BODY = 4096  # bytes
_SECONDS = 5.0  # to receive a request, and to send an answer
_CONNECTIONS = 16  # at a time; others wait
_POLL = 0.1  # seconds until a server that is closed notices it
_JSON = "application/json"
_FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves the page of a session from its start until it is closed; `samples` are the pictures by draw."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self, session: Session, samples: Sequence[SampleReference], audits: Callable[[], int]) -> None:
        super().__init__((_ADDRESS, 0), _Handler)
        self.session, self.samples, self._audits = session, samples, audits
        self.host = f"{_ADDRESS}:{self.server_port}"
        self.token = secrets.token_urlsafe(32)
        self.link = f"http://{self.host}/{self.token}/"
        self.is_over = Event()
        self._room = BoundedSemaphore(_CONNECTIONS)
        self._open = set[socket.socket]()
        Thread(target=self.serve_forever, args=(_POLL,)).start()

    def state(self) -> dict[str, Any]:
        """What the page shows: counts and the present draw, or the verdict; never which answer is whose."""
        audit = self.session.audit
        if audit.ending is not None:
            return {"verdict": list(map(printable, audit.verdict(self._audits()).sentences()))}
        return {
            "number": len(audit) + 1,
            "answers": list(map(printable, audit.draws.answers(len(audit)))),
            "others": [name for name in audit.class_names if name not in audit.draws.answers(len(audit))],
            "labels": len(audit),
            "most": min(len(audit.draws.rows), audit.most or len(audit.draws.rows)),
        }

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, as soon as one may be started."""
        self._room.acquire()
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        self._open.discard(request)
        self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has left is not an error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Hang up, and wait for all threads."""
        self.shutdown()
        for connection in tuple(self._open):
            hang_up(connection)
        super().server_close()


def hang_up(connection: socket.socket) -> None:
    """End what a connection waits for."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Refused(Exception):
    """A request that is answered with a status and one line."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = _SECONDS

    def setup(self) -> None:
        super().setup()
        self._deadline = Timer(_SECONDS, hang_up, (self.connection,))
        self._deadline.start()

    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def do_GET(self) -> None:
        self._reply(lambda: self._get(self._route()))

    def do_POST(self) -> None:
        try:
            self._reply(lambda: self._post(self._route()))
        finally:  # also if the browser has left
            if self.server.session.audit.ending is not None:
                self.server.is_over.set()

    def _reply(self, answer: Callable[[], tuple[bytes, str]]) -> None:
        try:
            status, (content, kind) = HTTPStatus.OK, answer()
        except _Refused as refused:
            status, text = refused.args
            content, kind = f"{text}\n".encode(), "text/plain; charset=utf-8"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _route(self) -> str:
        """What is asked for, of those who may ask."""
        if self.headers.get_all("Host") != [self.server.host]:
            raise _Refused(HTTPStatus.FORBIDDEN, "this page is not known under that name")
        token, slash, route = self.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            raise _Refused(HTTPStatus.FORBIDDEN, "the link has a token, and this is not it")
        return route

    def _get(self, route: str) -> tuple[bytes, str]:
        self._deadline.cancel()
        if route in _FILES:
            name, kind = _FILES[route]
            return (resources.files("pta.measure.audit") / "page" / name).read_bytes(), kind
        if route == "state":
            return json.dumps(self.server.state()).encode(), _JSON
        if found := re.fullmatch(r"picture/([1-9][0-9]{0,8})", route, re.ASCII):
            return self._picture(int(found[1]))
        raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _picture(self, number: int) -> tuple[bytes, str]:
        """The picture of a draw up to the present one, or its name if it cannot be shown."""
        if number > min(len(self.server.session.audit) + 1, len(self.server.samples)):
            raise _Refused(HTTPStatus.NOT_FOUND, "this was not drawn")
        sample = self.server.samples[number - 1]
        shown = shown_picture(sample)
        return (printable(sample.key).encode(), "text/plain; charset=utf-8") if shown is None else (shown, "image/jpeg")

    def _post(self, route: str) -> tuple[bytes, str]:
        if route != "answer":
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length, re.ASCII):
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a request has a Content-Length")
        if int(length) > _LARGEST_BODY:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {_LARGEST_BODY:,} bytes")
        body = self.rfile.read(int(length))
        self._deadline.cancel()
        try:
            given = json.loads(body)
            number, said, label = given["number"], given["said"], given.get("label", "")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _Refused(HTTPStatus.BAD_REQUEST, "a request is a JSON object with number and said") from None
        if type(number) is not int or not isinstance(said, str) or not isinstance(label, str):
            raise _Refused(HTTPStatus.BAD_REQUEST, "number is a whole number, said and label are texts")
        try:
            self.server.session.say(number, said, label)
        except PtaError as error:
            is_mistake = isinstance(error, UserMistake)
            status = HTTPStatus.BAD_REQUEST if is_mistake else HTTPStatus.INTERNAL_SERVER_ERROR
            raise _Refused(status, printable(str(error))) from None
        return json.dumps(self.server.state()).encode(), _JSON

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    server_version, sys_version = "pta", ""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a path has the token in it."""
