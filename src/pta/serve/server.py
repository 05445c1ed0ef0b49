"""Running the application: a socket, uvicorn on it, and an orderly end on SIGTERM or SIGINT."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pta.errors import InvalidParameter, reason
from pta.serve.gate import Gate
from pta.serve.service import Service

_ENDING = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_HANG_UP = 2  # for connections that are still open after the drain
_LONGEST_HEAD = 2**16  # bytes of a request's first line and headers


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0 is any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise InvalidParameter(f"cannot listen on {host}:{port}: {reason(error)}; --port chooses another") from None


def run(app: Gate, service: Service, on: socket.socket, *, drain: float, forwarded_allow_ips: str) -> None:
    """Serve until a signal comes; then answer what is queued within `drain` seconds. A second signal ends at once."""
    _Server(configured(app, forwarded_allow_ips), service, drain).run(sockets=[on])


def configured(app: Gate, forwarded_allow_ips: str = "") -> uvicorn.Config:
    """How uvicorn runs the application; it logs errors of its own alone."""
    return uvicorn.Config(
        app,
        http=_Protocol,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=bool(forwarded_allow_ips),
        forwarded_allow_ips=forwarded_allow_ips,
        root_path=app.app.root_path,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_SECONDS_TO_HANG_UP,
    )


class _Protocol(HttpToolsProtocol):
    """HTTP whose headers have a limit, and whose own errors are JSON like all others."""

    _head: int | None = None  # bytes of a request whose headers are not complete

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > _LONGEST_HEAD:
                self.send_400_response(f"the first line and headers of a request have at most {_LONGEST_HEAD:,} bytes")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        """Its headers have come."""
        self._head = None
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and hang up."""
        body = orjson.dumps({"error": msg})
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: "
        self.transport.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """Takes requests while it drains, so that a proxy finds out by `/v2/health/ready`."""

    def __init__(self, config: uvicorn.Config, service: Service, drain: float) -> None:
        super().__init__(config)
        self._service, self._drain = service, drain
        self._draining: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on a signal; uvicorn's own would raise it again at the end, and the exit code would not be 0."""
        loop = asyncio.get_running_loop()
        before = {one: signal.signal(one, lambda *_: loop.call_soon_threadsafe(self._end)) for one in _ENDING}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _end(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain_and_exit())
        else:
            self.should_exit = self.force_exit = True

    async def _drain_and_exit(self) -> None:
        await asyncio.to_thread(self._service.drain, self._drain)
        self.should_exit = True
