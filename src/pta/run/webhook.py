"""Webhook: sends alarms as signed JSON to a URL, without delaying whoever raises them.

A receiver that has the key takes the header `X-PTA-Time` and the body as bytes, before it parses them, and compares
`signature(key, time, body)` with the header `X-PTA-Signature` by `hmac.compare_digest`. It also refuses a time that
is more than a few minutes away, so that nobody can repeat an old alarm. An alarm whose answer was lost is sent again
with the same body and a new time.
"""

import hmac
import json
import logging
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any
from urllib.parse import urlsplit

from pta.door.files import existing_file
from pta.errors import InvalidParameter, explaining, first_line

_Address = IPv4Address | IPv6Address
_log = logging.getLogger("pta.alarms")
_MOST_WAITING = 64  # alarms
_STEP_SECONDS, _ATTEMPT_SECONDS = 5.0, 10.0  # for one step, such as connecting, and for all of them
_LONGEST_ANSWER = 4096  # bytes
_SHORTEST_KEY, _LONGEST_KEY = 16, 4096  # bytes
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)\b.*\n")  # a whole line: part of one is not an answer


def read_key(path: str | Path) -> bytes:
    """The key in a file, without the newline at its end."""
    with explaining(f"{path} cannot be read"), existing_file(path, "key").open("rb") as file:
        content = file.read(_LONGEST_KEY + 3)  # a newline may have two bytes
    key = content[:-2] if content.endswith(b"\r\n") else content.removesuffix(b"\n")
    if not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise InvalidParameter(f"{path}: a key has {_SHORTEST_KEY} to {_LONGEST_KEY:,} bytes")
    return key


def signature(key: bytes, seconds: str, body: bytes) -> str:
    """The header `X-PTA-Signature` of a body that is sent at a time.

    >>> signature(b"0123456789abcdef", "1700000000", b"{}")
    'sha256=e4f8e2ec...'
    """
    return f"sha256={hmac.new(key, f'{seconds}.'.encode() + body, 'sha256').hexdigest()}"


class Webhook:
    """Sends alarms to a URL in a thread of its own, which ends with `close`.

    Args:
        url: where to send to, with http or https. Redirects are not followed, and proxies are not used.
        key: what signs the alarms; None leaves them unsigned.
        allow_private: host names and addresses that may belong to this machine or to a private network.
        pauses: seconds before each further attempt.
    """

    def __init__(
        self, url: str, key: bytes | None, allow_private: Sequence[str] = (), *, pauses: Sequence[float] = (1.0, 4.0)
    ) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise InvalidParameter("the alarm URL has an invalid host or port") from None
        for is_wrong, problem in (
            (parts.scheme not in ("http", "https"), "must begin with http:// or https://"),
            (not host, "has no host"),
            ("@" in parts.netloc, "must not have a user name or password; --alarm-key signs alarms"),
            (re.search(r"[^!-~]", url), "has spaces or letters that are not ASCII; percent-encode them"),
        ):
            if is_wrong:
                raise InvalidParameter(f"the alarm URL {problem}")
        self._host, self._port = host, port or (443 if parts.scheme == "https" else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._place = f"{parts.scheme}://{parts.netloc}"  # for messages: the rest of a URL may hold a secret
        self._may_be_private = _plain(host) in map(_plain, allow_private)
        if not isinstance(address := _plain(host), str):
            self._require_allowed(address)
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._key, self._pauses = key, pauses
        self.sent = self.failed = self.dropped = 0
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._changed, self._stopped, self._closing = Condition(), Event(), False
        self._connection: _Connection | None = None
        self._thread = Thread(target=self._run, name="pta-alarms")
        self._thread.start()

    def send(self, payload: Mapping[str, Any]) -> None:
        """Queue an alarm and return at once; if too many are waiting, the oldest is dropped."""
        try:
            body = json.dumps(dict(payload), sort_keys=True, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            self._count(f"it cannot be written as JSON: {first_line(error)}")
            return
        with self._changed:
            if self._closing or len(self._waiting) == _MOST_WAITING:
                self.dropped += 1
            if not self._closing:
                self._waiting.append(body)
                self._changed.notify()

    def close(self, timeout: float = 10.0) -> None:
        """Wait at most `timeout` seconds until all alarms are sent, and drop the rest.

        A name that the system is still resolving can keep the thread alive for longer.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        try:
            self._thread.join(timeout)
        finally:  # also if Ctrl-C ends the wait
            with self._changed:
                self._stopped.set()
                self.dropped += (unsent := len(self._waiting))
                self._waiting.clear()
                if self._connection is not None:
                    self._connection.interrupt()
            self._thread.join(1.0)
        if unsent:
            _log.warning("%d alarms were not sent to %s: there was no time left", unsent, self._place)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                body = self._waiting.popleft()
            self._count(self._deliver(body))

    def _count(self, problem: str) -> None:
        with self._changed:
            self.failed += bool(problem)
            self.sent += not problem
        if problem:
            _log.warning("an alarm was not sent to %s: %s", self._place, problem)

    def _deliver(self, body: bytes) -> str:
        """Send an alarm in several attempts; returns why it failed, or nothing."""
        problem = no_time = "there was no time left"
        for pause in (0.0, *self._pauses):
            if self._stopped.wait(pause):
                break
            try:
                status = self._post(body)
            except ValueError as error:  # an address that is not public, a wrong certificate
                return first_line(error)
            except (OSError, HTTPException) as error:
                problem = no_time if self._stopped.is_set() else first_line(error)
                continue
            if 200 <= status < 300:
                return ""
            problem = f"the answer was {status}"
            if status != 429 and status < 500:
                break
        return problem

    def _post(self, body: bytes) -> int:
        """The status of the answer to one attempt."""
        seconds = str(int(time.time()))
        headers = {"Content-Type": "application/json", "X-PTA-Time": seconds, "Connection": "close"}
        if self._key is not None:
            headers["X-PTA-Signature"] = signature(self._key, seconds, body)
        self._connection = connection = _Connection(self._host, self._port, self._context, self._stopped)
        try:
            connection.addresses = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            for *_, address in connection.addresses:
                self._require_allowed(ip_address(address[0]))
            connection.request("POST", self._target, body, headers)
            return connection.read_status()
        finally:
            with self._changed:
                self._connection = None
            connection.close()

    def _require_allowed(self, address: _Address) -> None:
        if not (self._may_be_private or _is_public(address)):
            raise InvalidParameter(
                f"the host {self._host} of the alarm URL has the address {address}, which is not public; "
                "allow the host with --alarm-host if that is meant"
            )


class _Connection(HTTPConnection):
    """A connection to the first of some checked addresses that answers, with a limit for the time of all its steps."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None, stopped: Event) -> None:
        super().__init__(host, port)
        self.default_port = 80 if context is None else 443  # which the header Host leaves out
        self.addresses: list[Any] = []
        self._context, self._stopped = context, stopped
        self._end = time.monotonic() + _ATTEMPT_SECONDS

    def connect(self) -> None:
        failure: OSError = ConnectionError("the host has no address")
        for family, kind, protocol, _, address in self.addresses:
            self.sock = socket.socket(family, kind, protocol)
            try:
                self._within_time().connect(address)
                break
            except OSError as error:
                self.sock.close()
                failure = error
        else:
            raise failure
        if self._context is not None:
            wrap = self._context.wrap_socket  # the handshake comes later, so that it can be interrupted
            self.sock = wrap(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self._within_time().do_handshake()

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        rest = memoryview(data)
        while rest:
            rest = rest[self._within_time().send(rest) :]

    def read_status(self) -> int:
        """The status of the answer, of which no more is read than it needs."""
        answer = b""
        while b"\n" not in answer and (part := self._within_time().recv(_LONGEST_ANSWER - len(answer))):
            answer += part
        found = _STATUS.match(answer)
        if not found:
            raise ConnectionError("the answer is not HTTP")
        return int(found[1])

    def interrupt(self) -> None:
        """End what another thread waits for."""
        with suppress(OSError):
            if self.sock is not None:
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)  # not that of TLS, which is not safe for threads

    def _within_time(self) -> Any:
        """The socket, whose next step ends in time."""
        left = min(_STEP_SECONDS, self._end - time.monotonic())
        if left <= 0 or self._stopped.is_set():
            raise TimeoutError("timed out")
        self.sock.settimeout(left)
        return self.sock


def _plain(host: str) -> _Address | str:
    """A host in the form in which two can be compared."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return host.lower().rstrip(".")


def _is_public(address: _Address) -> bool:
    """Whether an address belongs to one host of the public internet.

    >>> [_is_public(ip_address(text)) for text in ("8.8.8.8", "10.0.0.1", "::ffff:10.0.0.1", "2002:a00:1::", "ff0e::1")]
    [True, False, False, False, False]
    """
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    is_special = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    return address.is_global and not is_special
