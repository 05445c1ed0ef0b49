"""What runs in a decoder's process: reads a request from its standard input, and writes moments until the video ends.

It begins as a new interpreter, so it inherits no socket, lock or thread, and its command line names no camera. It ends
when its standard input does: with the process that started it.
"""

import json
import os
import resource
import sys
import threading
from contextlib import suppress

from pta.door.video.output import Output
from pta.errors import PtaError, UserMistake

_MEMORY = 4 * 2**30  # bytes beside what the largest frames take
_BYTES_PER_PIXEL = 64


def main() -> None:
    """Serve the request on standard input."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # what libraries print belongs to nobody
    os.dup2(nowhere, 2)
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit(request["max_pixels"])
    output = Output(pipe, request)
    try:
        if request["kind"] == "http":
            from pta.door.video.http_camera import play_http as play
        else:
            from pta.door.video.container import play_container as play
        play(request, output)
        output.end(over=True)
    except BrokenPipeError:
        pass
    except PtaError as error:
        output.end(failed=str(error), mistake=isinstance(error, UserMistake))
    except MemoryError:
        output.end(failed="it needs too much memory", mistake=False)
    except Exception as error:  # libraries raise whatever they like on foreign bytes; their words may quote an address
        output.end(failed=f"it cannot be decoded ({type(error).__name__})", mistake=False)
    os._exit(0)  # threads of libraries may hang


def _end_with_parent() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def _limit(max_pixels: int) -> None:
    """Leave no core dump, which could hold a password, and take only so much memory."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = _MEMORY + _BYTES_PER_PIXEL * max_pixels
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
