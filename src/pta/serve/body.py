"""Reading the body of a request: no more than so many bytes, and no longer than so many seconds."""

import asyncio
from collections.abc import Mapping

from starlette.types import Receive

from pta.errors import shown
from pta.serve.refusals import Refused


class ClientLeft(Exception):
    """The client closed the connection before its body ended, so nobody is left to be answered."""


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], most: int, seconds: float) -> bytes:
    """The whole body; what is encoded, too long or too slow is refused as soon as that is known."""
    length = headers.get(b"content-length")
    if length is None and b"transfer-encoding" not in headers:
        return b""
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        raise Refused(415, f"Content-Encoding {shown(encoding.decode('latin-1'))} is not read; send the body as it is")
    if length is not None and int(length) > most:
        raise Refused(413, f"the body has {int(length):,} bytes; --max-body is {most:,}")
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, most)
    except TimeoutError:
        raise Refused(408, f"the body did not come within {seconds:g} seconds (--body-timeout)") from None


async def _read(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise Refused(413, f"the body has more than {most:,} bytes (--max-body)")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
