"""How the service is reached."""

from dataclasses import dataclass
from typing import Literal

LogFormat = Literal["text", "json"]


@dataclass(frozen=True)
class HttpSettings:
    """What `create_app` needs besides the service."""

    token: str
    allowed_hosts: tuple[str, ...] = ()  # besides localhost, 127.0.0.1 and ::1
    open_health: bool = False  # whether live and ready need no token
    max_body: int = 32 * 2**20  # bytes
    body_timeout: float = 30.0  # seconds
    head_timeout: float = 30.0  # seconds that a connection may be open without a request that has a token
    connections: int = 512  # at once
    log: LogFormat = "text"
    root_path: str = ""  # what a proxy takes off the front of the path
    stream_metrics: bool = False  # whether /metrics has the names of streams
