"""The login of a camera: from a file or a variable, never shown, and how a request proves it (RFC 7617, RFC 7616)."""

import hashlib
import os
import re
import secrets
import stat
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pta.errors import InvalidParameter, UnreadableFile, explaining

_LONGEST = 4096
_PARTS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')
_HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}
ASKED = "the camera asks for a user and a password; give --login FILE with USER:PASSWORD"
REFUSED = "the camera refuses the user or the password"


@dataclass(frozen=True)
class Login:
    """A user and a password.

    >>> Login("me", "secret")
    Login()
    """

    user: str = field(repr=False)
    password: str = field(repr=False)

    @classmethod
    def parse(cls, text: str, where: str) -> "Login":
        """The login that is written USER:PASSWORD."""
        user, colon, password = text.partition(":")
        if not colon or not user or not text.isprintable():
            raise InvalidParameter(f"{where} must hold one line USER:PASSWORD")
        return cls(user, password)

    @classmethod
    def from_file(cls, path: str | Path) -> "Login":
        """The login in the first line of a file that only its owner can read."""
        require_private(path)
        with explaining(f"{path} cannot be read"), Path(path).open(encoding="utf-8", errors="replace") as file:
            return cls.parse(file.readline(_LONGEST).rstrip("\r\n"), str(path))

    @classmethod
    def from_environment(cls, name: str) -> "Login":
        """The login in a variable of the environment."""
        if name not in os.environ:
            raise InvalidParameter(f"the variable {name} is not set; it holds USER:PASSWORD")
        return cls.parse(os.environ[name], f"the variable {name}")

    def answer(self, challenges: Iterable[str], method: str, target: str) -> str | None:
        """The header `Authorization` for a request, after headers `WWW-Authenticate`; None if there is no answer."""
        challenge = max(challenges, key=lambda one: one.lower().startswith("digest"), default="")
        scheme, _, rest = challenge.strip().partition(" ")
        if scheme.lower() == "basic":
            return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()
        asked = {name.lower(): quoted or bare for name, quoted, bare in _PARTS.findall(rest)}
        algorithm = asked.get("algorithm", "MD5").upper()
        if scheme.lower() != "digest" or algorithm not in _HASHES or "realm" not in asked or "nonce" not in asked:
            return None
        # headers are bytes, each a sign here, as `http.client` has them
        user, password = (text.encode().decode("latin-1") for text in (self.user, self.password))
        parts = {"username": user, "realm": asked["realm"], "nonce": asked["nonce"], "uri": target}
        with_qop = "auth" in re.split(r"[\s,]+", asked.get("qop", ""))
        count, own = "00000001", secrets.token_hex(8)

        def digest(*texts: str) -> str:
            return _HASHES[algorithm](":".join(texts).encode("latin-1")).hexdigest()

        first, second = digest(user, asked["realm"], password), digest(method, target)
        between = (count, own, "auth") if with_qop else ()
        parts["response"] = digest(first, asked["nonce"], *between, second)
        if "opaque" in asked:
            parts["opaque"] = asked["opaque"]
        text = ", ".join(f'{name}="{value}"' for name, value in parts.items())
        more = f', qop=auth, nc={count}, cnonce="{own}"' if with_qop else ""
        return f"Digest {text}, algorithm={algorithm}{more}"


def require_private(path: str | Path) -> None:
    """Refuse a file with a password others can read. What systemd gives a service (`LoadCredential=`) is private."""
    with explaining(f"{path} cannot be read"):
        status = Path(path).stat()
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    if given and Path(path).parent == Path(given):
        return
    if status.st_mode & 0o077 or not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
        raise UnreadableFile(f"{path} holds a password, so only its owner may read it: chmod 600 {path}")
