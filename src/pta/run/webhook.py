"""Webhook: sends alarms as signed JSON to a URL, without delaying whoever raises them.

The header `X-PTA-Signature` is `sha256=` and the HMAC of the text of `X-PTA-Time`, a full stop and the body. A receiver
refuses a time that is minutes away, so that nobody can repeat an old alarm. An alarm whose answer was lost is sent
again with the same body and a new time.
"""

import hmac
import json
import logging
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread, Timer
from typing import Any

from pta.door.files import existing_file
from pta.errors import InvalidParameter, explaining, first_line

_URL = re.compile(
    r"(?P<place>(?P<scheme>https?)://(?P<netloc>(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?))"
    r"(?P<target>/[!-\"$-~]*)?",  # which may hold a secret, and messages do not show
    re.ASCII,
)
_log = logging.getLogger("pta.alarms")
_MOST_WAITING = 64  # alarms
_STEP_SECONDS, _ATTEMPT_SECONDS = 5.0, 10.0  # for one step, such as connecting, and for all after connecting
_SHORTEST_KEY = 16  # bytes


def read_key(path: str | Path) -> bytes:
    """The key in a file, without the newline at its end."""
    with explaining(f"{path} cannot be read"):
        key = existing_file(path, "key").read_bytes().rstrip(b"\r\n")
    if len(key) < _SHORTEST_KEY:
        raise InvalidParameter(f"{path}: a key has at least {_SHORTEST_KEY} bytes")
    return key


class Receiver:
    """A URL that signed JSON is sent to.

    Args:
        url: with http or https. Redirects are not followed, and proxies are not used.
        key: what signs the messages; None leaves them unsigned.
        allow_private: hosts, as URLs name them, that may belong to this machine or to a private network.
    """

    def __init__(self, url: str, key: bytes | None, allow_private: Sequence[str] = ()) -> None:
        found = _URL.fullmatch(url)
        if found is None or int(found["port"] or 0) >= 2**16:
            raise InvalidParameter("the alarm URL must be http(s)://HOST[:PORT]/PATH in ASCII, without a password")
        self.place, self._netloc, self._target = found["place"], found["netloc"], found["target"] or "/"
        self._context = ssl.create_default_context() if found["scheme"] == "https" else None
        self._port = int(found["port"] or (80 if self._context is None else 443))
        self._host = found["host"].strip("[]").lower()
        self._may_be_private = self._host in {host.strip("[]").lower() for host in allow_private}
        if ":" in self._host or self._host.rpartition(".")[2].isdigit():
            self._require_allowed(self._host)
        self._key, self._failures = key, 0

    def post(self, body: bytes) -> None:
        """Send it once, after a failure to the next address of the host; raises OSError or ValueError.

        A host has the addresses that are checked: no name is resolved after that.
        """
        try:
            self._post(body)
        except (OSError, ValueError, HTTPException) as error:
            self._failures += 1
            if isinstance(error, HTTPException):
                raise ConnectionError(first_line(error)) from None
            raise

    def _post(self, body: bytes) -> None:
        seconds = str(int(time.time()))
        headers = {"Content-Type": "application/json", "Host": self._netloc, "X-PTA-Time": seconds}
        if self._key is not None:
            signed = hmac.new(self._key, f"{seconds}.".encode() + body, "sha256").hexdigest()
            headers["X-PTA-Signature"] = f"sha256={signed}"
        addresses = [one[4] for one in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)]
        for address in addresses:
            self._require_allowed(str(address[0]))
        with closing(_Connection(self._host, self._context, addresses[self._failures % len(addresses)])) as connection:
            connection.request("POST", self._target, body, headers)
            status = connection.getresponse().status
        if not 200 <= status < 300:
            raise ConnectionError(f"the answer was {status}")

    def _require_allowed(self, address: str) -> None:
        if not (self._may_be_private or _is_public(address)):
            where = f"the host {self._host} of the alarm URL has the address {address}, which is not public"
            raise InvalidParameter(f"{where}; name it with --alarm-host if that is meant")


class Webhook:
    """Sends alarms in a thread that ends with the process; `pauses` are seconds before each further attempt."""

    def __init__(self, receiver: Receiver, *, pauses: Sequence[float] = (1.0, 4.0)) -> None:
        self._receiver = receiver
        self._pauses, self.sent, self.lost = pauses, 0, 0
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="pta-alarms", daemon=True)
        self._thread.start()

    def send(self, payload: Mapping[str, Any]) -> None:
        """Queue an alarm and return at once; it is lost if too many are waiting."""
        if self._stopped.is_set() or self._waiting.qsize() >= _MOST_WAITING:
            self._lose("too many are waiting")
        else:
            self._waiting.put(json.dumps(dict(payload), sort_keys=True).encode())

    def close(self, timeout: float = 10.0) -> None:
        """Wait at most `timeout` seconds until all alarms are sent; the others are lost."""
        self._waiting.put(None)
        try:
            self._thread.join(timeout)
        finally:  # also if Ctrl-C ends the wait
            self._stopped.set()
        if self._thread.is_alive():
            self._lose("there was no time left for it and those after it")

    def _lose(self, problem: str) -> None:
        self.lost += 1
        _log.warning("an alarm was not sent to %s: %s", self._receiver.place, problem)

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            problem = ""
            for pause in (0.0, *self._pauses):
                if self._stopped.wait(pause):
                    return
                try:
                    self._receiver.post(body)
                    self.sent += 1
                    break
                except (OSError, ValueError) as error:
                    problem = first_line(error)
            else:
                self._lose(problem)


class _Connection(HTTPConnection):
    """A connection to an address of a host that was checked, which ends after some seconds."""

    def __init__(self, host: str, context: ssl.SSLContext | None, address: Sequence[Any]) -> None:
        super().__init__(host)
        self._context, self._address = context, address
        self._timer = Timer(_ATTEMPT_SECONDS, self._abort)
        self._timer.daemon = True

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address[0], self._address[1]), _STEP_SECONDS)
        self._timer.start()
        if self._context is not None:
            wrap = self._context.wrap_socket  # the handshake comes later, so that it can be aborted
            self.sock = wrap(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock.do_handshake()

    def close(self) -> None:
        self._timer.cancel()
        super().close()

    def _abort(self) -> None:
        with suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)  # not that of TLS, which is not safe for threads


def _is_public(text: str) -> bool:
    """Whether an address belongs to one host of the public internet."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    is_special = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    return address.is_global and not is_special
