"""A command that is run with each change, without a shell."""

import os
import signal
import subprocess
from contextlib import suppress
from shutil import which
from threading import Lock

from pta.errors import InvalidParameter, shown
from pta.run.watch.change import AnswerChange


class Command:
    """Runs a program with a change in its environment, and ends it with all that it started after some seconds."""

    def __init__(self, arguments: list[str], timeout: float = 30.0) -> None:
        if not arguments or not all(arguments) or any("\0" in one for one in arguments):
            raise InvalidParameter("the command is a program and its arguments, without empty ones")
        if which(arguments[0]) is None:
            raise InvalidParameter(f"the command cannot be run: there is no program {shown(arguments[0])}")
        self._arguments, self._timeout = arguments, timeout
        self._group: int | None = None  # of the processes that run
        self._beginning = Lock()  # held until the group is known, so that `end` misses none

    def deliver(self, change: AnswerChange) -> None:
        """Run it to its end; what it prints goes to standard error."""
        environment = {**os.environ, **change.environment()}
        with self._beginning:
            process = subprocess.Popen(
                self._arguments, env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
            )
            self._group = process.pid
        with process:
            try:
                code = process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                raise OSError(f"it ran for more than {self._timeout:g} seconds and was ended") from None
            finally:
                self.end()  # what it left running, too
        if code:
            raise OSError(f"its exit code was {code}")

    def end(self) -> None:
        """End it now, if it runs."""
        with self._beginning, suppress(ProcessLookupError, PermissionError):
            group, self._group = self._group, None
            if group is not None:
                os.killpg(group, signal.SIGKILL)
