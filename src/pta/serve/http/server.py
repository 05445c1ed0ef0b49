"""Running the application: a socket, uvicorn on it, and an orderly end on SIGTERM or SIGINT."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pta.errors import InvalidParameter, reason
from pta.serve.http.connections import HttpConnection
from pta.serve.http.gate import Gate
from pta.serve.streams.service import Service

_ENDING = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_HANG_UP = 2  # for connections that are still open after the drain


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0 is any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise InvalidParameter(f"cannot listen on {host}:{port}: {reason(error)}; --port chooses another") from None


def configured(app: Gate, forwarded_allow_ips: str = "") -> uvicorn.Config:
    """How uvicorn runs the application; it logs errors of its own alone."""
    return uvicorn.Config(
        app,
        http=HttpConnection,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=bool(forwarded_allow_ips),
        forwarded_allow_ips=forwarded_allow_ips,
        root_path=app.settings.root_path,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=_SECONDS_TO_HANG_UP,
    )


class Server(uvicorn.Server):
    """Serves until a signal comes; then answers what is queued within `drain` seconds. A second signal ends at once.

    It takes requests while it drains, so that a proxy finds out by `/v2/health/ready`.
    """

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
