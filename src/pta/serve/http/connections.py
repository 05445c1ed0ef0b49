"""Connections: how many there may be, and what a client without a token can make the service keep.

Before its token is known, a client can make the service keep a head (first line, headers, trailers) of limited length,
a few requests ahead of their answers, and a connection for a limited time.
"""

from asyncio import TimerHandle, Transport
from itertools import chain
from typing import Any, NoReturn

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LONGEST_HEAD = 2**16  # bytes
_MOST_HEADERS = 256
_BESIDE_A_HEADER = 4  # bytes: colon, space and the end of the line
_SLICE = 2**14  # bytes that are parsed at once
_LONGEST_NUMBER = 19  # digits of a Content-Length
_MOST_AHEAD = 8  # requests that are sent before the answer to an earlier one
_AT_MOST_ONCE = (b"host", b"authorization")
_TOO_LONG = f"the first line and headers of a request have at most {_LONGEST_HEAD:,} bytes in {_MOST_HEADERS} lines"


class Connections:
    """At the limit, the one that has waited longest without an authorised request is closed in favour of a new one.

    Connections that never had one are closed first as soon as they are half of all: a client without a token that opens
    many does not end those of others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[HttpConnection] = set()
        self._waiting: dict[HttpConnection, None] = {}  # without an authorised request, longest first
        self._strangers: dict[HttpConnection, None] = {}  # of these, the ones that never had one

    def admit(self, new: "HttpConnection") -> bool:
        """Whether there is room for a new one, also by closing an idle one."""
        if len(self._open) >= self._most:
            first = self._strangers if 2 * len(self._strangers) >= self._most else self._waiting
            oldest = next((one for one in chain(first, self._waiting) if one.is_idle), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.transport.abort()  # whatever the client has not read yet
        self._open.add(new)
        self._waiting[new] = self._strangers[new] = None
        return True

    def begin(self, connection: "HttpConnection") -> None:
        """It has an authorised request."""
        self._waiting.pop(connection, None)
        self._strangers.pop(connection, None)

    def end(self, connection: "HttpConnection") -> None:
        """Its authorised request is answered."""
        if connection in self._open:
            self._waiting[connection] = None

    def remove(self, connection: "HttpConnection") -> None:
        """It is closed."""
        self._open.discard(connection)
        self.begin(connection)


class HttpConnection(HttpToolsProtocol):
    """HTTP that ends requests which are too long, too slow or ambiguous, with errors that are JSON like all others."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        gate: Any = self.config.app  # a `Gate`, as `configured` takes no other
        self._connections = gate.connections
        self._seconds = gate.settings.head_timeout
        self._is_authorised = self._was_authorised = False
        self._since = self.loop.time()  # the start, or the end of the last answer
        self._deadline: TimerHandle | None = None
        self._unfinished = 0  # bytes that have come since the parser last had something whole
        self._head_size = self._head_lines = 0
        self._in_head = False
        self._wrong: str | None = None  # what is wrong with this request

    # -- how long ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self._seconds, self._check_deadline)
        if not self._connections.admit(self):
            self._refuse("503 Service Unavailable", "all connections are in use; try again soon", "retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        """One side has closed the connection."""
        self._connections.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
        self.pipeline.clear()
        super().connection_lost(exc)

    def authorise(self) -> None:
        """The request that is being answered has a token."""
        self._is_authorised = self._was_authorised = True
        self._connections.begin(self)

    def on_response_complete(self) -> None:
        """An answer was given."""
        self._since = self.loop.time()
        if self._is_authorised:
            self._is_authorised = False
            self._connections.end(self)
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether no request with a token is being answered, and no answer to one is being sent."""
        is_sending = self._was_authorised and self.transport.get_write_buffer_size() > 0
        return not (self._is_authorised or is_sending)

    def _check_deadline(self) -> None:
        left = self._since + self._seconds - self.loop.time()
        if left <= 0 and self.is_idle:
            self.transport.abort()
        else:
            self._deadline = self.loop.call_later(left if left > 0 else self._seconds, self._check_deadline)

    # -- how much ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what the client sends in small parts, so that `_unfinished` counts little that is finished."""
        for start in range(0, len(data), _SLICE):
            part = data[start : start + _SLICE]
            self._unfinished += len(part)
            super().data_received(part)
            if self._unfinished > _LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response(_TOO_LONG)
            if self.transport.is_closing():
                return

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_size = self._head_lines = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A part of its first line has come."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come, or a trailer behind a body, which is counted and not kept."""
        self._unfinished = 0
        self._head_lines += 1
        self._count(len(name) + len(value) + _BESIDE_A_HEADER)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All its headers have come."""
        self._unfinished, self._in_head = 0, False
        headers = dict(self.headers)
        if len(headers) < len(self.headers):
            names = [name for name, _ in self.headers]
            for name in _AT_MOST_ONCE:
                if names.count(name) > 1:
                    self._stop(f"a request has one {name.decode().title()} header")
        if len(headers.get(b"content-length", b"")) > _LONGEST_NUMBER:
            self._stop(f"Content-Length has at most {_LONGEST_NUMBER} digits")
        if len(self.pipeline) >= _MOST_AHEAD:
            self._stop(f"at most {_MOST_AHEAD} requests are taken ahead of an answer")
        self.scope["pta.connection"] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of its body has come."""
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has come."""
        self._unfinished = 0
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _LONGEST_HEAD or self._head_lines > _MOST_HEADERS:
            self._stop(_TOO_LONG)

    def _stop(self, wrong: str) -> NoReturn:
        """Stop the parser, whose error `data_received` turns into a 400."""
        self._wrong = wrong
        raise ValueError(wrong)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request, and hang up; the refusal must not pass for the answer to an earlier request."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and (self.cycle.response_started or not self.cycle.more_body):
            self.transport.close()
        else:
            self._refuse("400 Bad Request", self._wrong or msg)

    def _refuse(self, status: str, message: str, header: str = "") -> None:
        body = orjson.dumps({"error": message})
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n{header}"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
