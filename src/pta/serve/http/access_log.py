"""One line per request: number, method, path, stream, status, milliseconds. Never a token, a feature or a pixel."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb
from typing import Any

import orjson

from pta.door.safe_text import printable
from pta.serve.http.http_settings import LogFormat

_LONGEST_PATH = 200


class AccessLog:
    """Writes lines to stderr."""

    def __init__(self, form: LogFormat) -> None:
        self._as_json = form == "json"

    def request(self, number: int, method: str, path: str, stream: str | None, status: int, seconds: float) -> None:
        """A request was answered."""
        fields = {"request": number, "method": method, "path": path[:_LONGEST_PATH], "stream": stream, "status": status}
        self._write({**fields, "ms": round(1000 * seconds, 3)})

    def failure(self, number: int, error: BaseException) -> None:
        """What went wrong inside, by its kind and places; its message could quote what a client sent."""
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in extract_tb(error.__traceback__)]
        self._write({"request": number, "failure": type(error).__name__, "at": " ".join(places[-8:])})

    def _write(self, fields: dict[str, Any]) -> None:
        now = time.time()
        if self._as_json:
            line = orjson.dumps({"time": round(now, 3), **fields}, option=orjson.OPT_NON_STR_KEYS).decode()
        else:
            clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
            told = (f"{name}={value}" for name, value in fields.items() if value is not None)
            line = printable(f"{clock}Z {' '.join(told)}")
        with suppress(OSError):  # nobody reads it any more
            sys.stderr.write(f"{line}\n")
