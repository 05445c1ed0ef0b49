"""A decoder's process, seen from the one that started it."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import fcntl
from typing import Any, Self

from pta.door.video.wire import Picture, read_message
from pta.errors import MachineFailure, UnreadableFile

_CALL = "from pta.door.video.process import main; main()"
_KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PIPE = 2**20  # bytes
_F_SETPIPE_SZ = 1031


class DecoderProcess:
    """Starts a process that decodes what a request asks for; leaving the block kills it."""

    def __init__(self, request: dict[str, Any], stall: float) -> None:
        self._stall, self._max_pixels = stall, request["max_pixels"]
        places = os.pathsep.join(os.path.realpath(place) for place in sys.path)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {"PYTHONPATH": places}
        call = [sys.executable, "-s", "-P", "-c", _CALL]  # without the current folder
        self._process = subprocess.Popen(
            call,
            env=environment,
            start_new_session=True,  # the terminal's signals are for whoever reads
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        with suppress(OSError):  # elsewhere than on Linux
            fcntl(self._pipe, _F_SETPIPE_SZ, _PIPE)
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def messages(self) -> Iterator[tuple[dict[str, Any], list[tuple[str, Picture]]]]:
        """What it says until the video is over; the reason if it ends otherwise, dies or gives no sign for so long."""
        header: dict[str, Any] = {}
        while "over" not in header:
            try:
                header, pictures = read_message(self._read_into, self._max_pixels)
            except EOFError:
                self.kill()
                raise MachineFailure(f"its decoder has died (exit status {self._process.wait()})") from None
            if "failed" in header:
                raise (UnreadableFile if header["mistake"] else MachineFailure)(str(header["failed"]))
            yield header, pictures

    def _read_into(self, buffer: memoryview) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while buffer:
            if not poll.poll(self._stall * 1000):
                self.kill()
                raise MachineFailure(f"its decoder gave no sign for {self._stall:g} seconds and was stopped")
            count = os.readv(self._pipe, [buffer])
            if not count:
                raise EOFError
            buffer = buffer[count:]

    def kill(self) -> None:
        """End the process at once; whoever reads its messages notices."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its pipes, and waits for it
            self.kill()
