"""Who may ask: a token as a bearer or as a login cookie, for hosts that this service is known by."""

import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pta.door.files import read_text
from pta.door.plain_files import require_plain_file
from pta.errors import InvalidParameter, explaining
from pta.serve.requests import Refused

COOKIE = "pta_login"
CHANGE_HEADER = b"x-pta"
"""A cookie alone changes nothing: other sites can make a browser send it, but not this header."""

HEADERS = (
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)

PAGE = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css", "/page.svg": "page.svg"}
"""The files of the page by path. They reveal nothing, so they need no token."""
_HEALTH = frozenset(("/v2/health/live", "/v2/health/ready"))
_READING = frozenset(("GET", "HEAD"))
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_SHORTEST, _LONGEST = 16, 4096  # letters of a token


class Guard:
    """Decides about a request by its method, path and headers alone."""

    def __init__(self, token: str, hosts: Iterable[str] = (), *, open_health: bool = False) -> None:
        self._token = token.encode()
        self._bearer = b"bearer " + self._token
        self.cookie = blake2b(b"login", key=blake2b(self._token).digest(), digest_size=32).hexdigest()
        self._cookie = self.cookie.encode()
        self._hosts = frozenset(host.lower().encode() for host in (*_LOCAL, *hosts))
        self._open = PAGE.keys() | (_HEALTH if open_health else frozenset())

    def is_token(self, given: str) -> bool:
        """Whether it is the token, found out in a time that does not depend on where they differ."""
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def require(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Refuse a request that may not be answered; whether it has a token. `path` is without the root path."""
        host = headers.get(b"host", b"")
        name, colon, port = host.rpartition(b":")
        if (name if colon and port.isdigit() else host).lower() not in self._hosts:
            told = host.decode("ascii", "replace")[:80]
            raise Refused(f"this service is not known as {told!r}; --allowed-host adds a name", 421)
        if (method in _READING and path in self._open) or (method == "POST" and path == "/login"):
            return False
        given = headers.get(b"authorization", b"")
        if hmac.compare_digest(given[:7].lower() + given[7:], self._bearer):
            return True
        cookies = (part.strip().partition(b"=") for part in headers.get(b"cookie", b"").split(b";"))
        login = next((value for name, _, value in cookies if name == COOKIE.encode()), b"")
        if not hmac.compare_digest(login, self._cookie):
            raise Refused("a token is needed: Authorization: Bearer TOKEN", 401)
        if method not in _READING and CHANGE_HEADER not in headers:
            raise Refused("a change by cookie also needs the header X-PTA: 1", 401)
        return True


def read_token(path: Path) -> str:
    """The token in a file."""
    token = read_text(path, "token", _LONGEST).strip()
    if len(token) < _SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidParameter(f"{path}: a token is one line of at least {_SHORTEST} ASCII letters and digits")
    return token


def own_token(path: Path) -> str:
    """The token of a data folder, made at the first start; only the owner may read the file."""
    with explaining(f"cannot write {path}"):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(f"{new_token()}\n")
        except FileExistsError:
            require_plain_file(path)
            if path.stat().st_mode & 0o077:
                raise InvalidParameter(f"{path} can be read by others; run chmod 600 {path}, or remove it") from None
    return read_token(path)


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


LogFormat = Literal["text", "json", "none"]


@dataclass(frozen=True)
class HttpSettings:
    """What `create_app` needs besides the service."""

    token: str
    allowed_hosts: tuple[str, ...] = ()  # besides localhost, 127.0.0.1 and ::1
    open_health: bool = False  # whether live and ready need no token
    max_body: int = 32 * 2**20  # bytes
    body_timeout: float = 30.0  # seconds
    head_timeout: float = 30.0  # seconds that a connection may be open without a request that has a token
    connections: int = 512  # at the same time
    log: LogFormat = "text"
    root_path: str = ""  # what a proxy takes off the front of the path
    stream_metrics: bool = False  # whether /metrics has the names of streams
