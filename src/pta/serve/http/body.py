"""Reading the bodies of requests: each has a limit in bytes and seconds, and all together have one in bytes."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Receive

from pta.errors import shown
from pta.serve.requests import Refused

_ALL_TOGETHER = 256 * 2**20  # bytes


class Limit(NamedTuple):
    """How many bytes a body may have, and how its sender is told."""

    most: int
    told: str


WITHOUT_TOKEN = Limit(4096, "without a token at most {:,} are read")  # for the token itself
OPERATION = Limit(2**18, "an operation takes at most {:,}")  # for a list of classes; it is parsed in the event loop
LABELS = Limit(2**20, "an operation with labels takes at most {:,}")


class ClientLeft(Exception):
    """The client closed the connection before its body ended, so nobody is left to be answered."""


class Bodies:
    """What all requests that are being answered have sent.

    Args:
        largest: the most bytes of a body.
        seconds: the most that a body may take to arrive.
    """

    def __init__(self, largest: int, seconds: float) -> None:
        self.largest, self.seconds = largest, seconds
        self.free = max(_ALL_TOGETHER, largest)  # bytes


class Body:
    """The body of a request, from its headers to the end of its answer."""

    def __init__(self, bodies: Bodies, receive: Receive, headers: Mapping[bytes, bytes]) -> None:
        self._bodies = bodies
        self._receive = receive
        self._headers = headers
        self._taken = 0  # bytes: as many as were announced, or as have come
        self.is_read = not headers.keys() & {b"content-length", b"transfer-encoding"}  # there is none

    async def read(self, limit: Limit | None = None) -> bytes:
        """All of it; what is encoded, too long or too slow is refused as soon as that is known."""
        if self.is_read:
            return b""
        length = self._headers.get(b"content-length")
        encoding = self._headers.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            name = shown(encoding.decode("latin-1"))
            raise Refused(f"Content-Encoding {name} is not read; send the body as it is", 415)
        whole = Limit(self._bodies.largest, "--max-body is {:,}")
        most, told = min(limit or whole, whole)
        if length is not None:
            if int(length) > most:
                raise Refused(f"the body has {int(length):,} bytes; {told.format(most)}", 413)
            self._take(int(length))
        try:
            async with asyncio.timeout(self._bodies.seconds):
                parts, size = [], 0
                while not self.is_read:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise Refused(f"the body has more than {most:,} bytes; {told.format(most)}", 413)
                    self._take(max(0, size - self._taken))
                    self.is_read = not message.get("more_body", False)
                return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            seconds = f"{self._bodies.seconds:g}"
            raise Refused(f"the body did not come within {seconds} seconds (--body-timeout)", 408) from None

    def release(self) -> None:
        """The request is answered, or its client has left."""
        self._bodies.free += self._taken
        self._taken = 0

    def _take(self, size: int) -> None:
        """Take more bytes of those that all bodies share."""
        if size > self._bodies.free:
            raise Refused("the requests that are being answered take all the memory for bodies; try again soon", 503, 1)
        self._bodies.free -= size
        self._taken += size
