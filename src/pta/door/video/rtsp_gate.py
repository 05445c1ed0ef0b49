"""A gate between ffmpeg and one RTSP camera: ffmpeg knows only an address of this machine, and no password.

ffmpeg would follow a redirect to any host. So it speaks to this gate, which is connected to the one host that was
named, passes on requests and answers, gives the login, checks the certificate of rtsps://, and ends at a redirect.
"""

import re
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from pta.door.video.login import ASKED, REFUSED, Login
from pta.errors import MachineFailure, PtaError, UnreadableFile, first_line

_SECONDS = 10.0  # without a byte of the camera
_LONGEST_HEAD, _LONGEST_BODY = 2**16, 2**20
# ffmpeg reads replies less strictly than they are defined; what it might read in another way is not passed on to it
_HEAD = re.compile(
    rb"(?:RTSP/\d\.\d (?P<status>\d{3})(?= |\r)|[A-Z_]+ [!-~]+ RTSP/)[^\r\n]*(?:\r\n[\w-][^\r\n]*)*\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length:(?:[ \t]*(\d{1,7})(?=[ \t]*\r)|)", re.IGNORECASE)
_CHALLENGE = re.compile(rb"\r\nwww-authenticate:[ \t]*([^\r\n]*)", re.IGNORECASE)
_NO_RTSP = "the camera does not speak RTSP"
_INTERLEAVED = 0x24  # the byte before a packet between the messages


class RtspGate:
    """Serves one connection at `address`; what ffmpeg calls a lost connection has its reason in `require_kept`."""

    def __init__(self, place: str, login: list[str] | None) -> None:
        url = urlsplit(place)
        self._host, self._port = url.hostname or "", url.port or 554
        self._login = None if login is None else Login(*login)
        self._problem: PtaError | None = None
        self._challenges, self._asked, self._answered = list[str](), b"", False
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._base = f"rtsp://{host}" + ("" if self._port == 554 else f":{self._port}")
        self._above = self._connected(url.scheme == "rtsps")
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1)
        token = secrets.token_hex(16)  # another process of this machine does not know it
        self._own = f"rtsp://127.0.0.1:{self._listening.getsockname()[1]}/{token}".encode()
        self.address = self._own.decode() + url.path + (f"?{url.query}" if url.query else "")
        threading.Thread(target=self._serve, daemon=True).start()

    def require_kept(self) -> None:
        """Raise the reason why the gate has ended the connection, if it did."""
        if self._problem is not None:
            raise self._problem

    def _connected(self, is_secure: bool) -> socket.socket:
        try:
            above = socket.create_connection((self._host, self._port), _SECONDS)
            if is_secure:
                above = ssl.create_default_context().wrap_socket(above, server_hostname=self._host)
            return above
        except ssl.SSLCertVerificationError as error:
            raise UnreadableFile(f"the certificate of the camera is not trusted: {error.verify_message}") from None
        except OSError as error:
            raise MachineFailure(f"the camera cannot be reached: {error.strerror or first_line(error)}") from None

    def _serve(self) -> None:
        self._listening.settimeout(_SECONDS)
        with suppress(OSError):
            self._below, _ = self._listening.accept()
            self._listening.close()
            threading.Thread(target=self._pass_up, daemon=True).start()
            self._pass_down()
        self._end()

    def _end(self) -> None:
        for one in (self._above, self._below):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pass_up(self) -> None:
        """Pass requests to the camera, as its own address names them."""
        with suppress(OSError, PtaError):
            for message in _messages(self._below):
                if message[0] != _INTERLEAVED:
                    if not self._asked and self._own not in message.partition(b"\r\n")[0]:
                        break  # not ffmpeg
                    message = message.replace(self._own, self._base.encode())
                    self._asked, self._answered = message, False
                    message = self._with_login(message)
                self._above.sendall(message)
        self._end()

    def _with_login(self, request: bytes) -> bytes:
        line, _, rest = request.partition(b"\r\n")
        method, target, _ = line.decode("latin-1").split(" ", 2)
        answer = self._login and self._login.answer(self._challenges, method, target)
        return line + f"\r\nAuthorization: {answer}\r\n".encode("latin-1") + rest if answer else request

    def _pass_down(self) -> None:
        try:
            for message in _messages(self._above):
                if message[0] == _INTERLEAVED or self._is_for_ffmpeg(message):
                    self._below.sendall(message)
        except TimeoutError:
            self._problem = MachineFailure(f"the camera has sent nothing for {_SECONDS:g} seconds")
        except PtaError as problem:
            self._problem = problem

    def _is_for_ffmpeg(self, reply: bytes) -> bool:
        """Whether an answer is passed on. One that asks for the login is answered with it, once per request."""
        head = _HEAD.match(reply)
        if head is None:
            raise UnreadableFile(_NO_RTSP)
        status = int(head["status"] or 0)  # 0 of a request of the camera
        if 300 <= status < 400:
            raise UnreadableFile(
                "the camera redirects to another address, which is not followed; give that address if it is meant"
            )
        if status == 401:
            self._challenges = [found.decode("latin-1") for found in _CHALLENGE.findall(reply)]
            request = self._with_login(self._asked)
            if self._answered or request == self._asked:
                raise UnreadableFile(REFUSED if self._login else ASKED)
            self._answered = True
            self._above.sendall(request)
            return False
        if status >= 400:
            raise UnreadableFile(f"the camera answers {status}{', there is no such stream' if status == 404 else ''}")
        return True


def _messages(connection: socket.socket) -> Iterator[bytes]:
    """What comes over a connection: messages of text, with their bodies, and packets between them."""
    waiting = bytearray()
    while chunk := connection.recv(2**16):
        waiting += chunk
        while size := _size(waiting):
            message = bytes(waiting[:size])
            del waiting[:size]
            yield message


def _size(waiting: bytearray) -> int:
    """How long the first message is; 0 if it is not complete."""
    if not waiting:
        return 0
    if waiting[0] == _INTERLEAVED:
        size = 4 + int.from_bytes(waiting[2:4], "big")
    else:
        head = waiting.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
        if head < 4:
            if len(waiting) >= _LONGEST_HEAD:
                raise UnreadableFile(_NO_RTSP)
            return 0
        lengths = _LENGTH.findall(waiting, 0, head)
        if len(lengths) > 1 or b"" in lengths:
            raise UnreadableFile(_NO_RTSP)
        size = head + sum(map(int, lengths))
        if size > _LONGEST_HEAD + _LONGEST_BODY:
            raise UnreadableFile("the camera describes itself at too great a length")
    return size if len(waiting) >= max(size, 4) else 0
