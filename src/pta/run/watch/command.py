"""A command that is run with each change, without a shell."""

import os
import signal
import subprocess
from contextlib import suppress

from pta.errors import InvalidParameter
from pta.run.watch.change import Change

TRIES = 3  # a command that fails for a reason of its own must not hold up the next changes for long


class Command:
    """Runs a program with a change in its environment, and ends it with all that it started after some seconds."""

    def __init__(self, arguments: list[str], timeout: float = 30.0) -> None:
        if not arguments or not all(arguments) or any("\0" in one for one in arguments):
            raise InvalidParameter("the command is a program and its arguments, without empty ones")
        self._arguments, self._timeout = arguments, timeout

    def deliver(self, change: Change) -> None:
        """Run it to its end; what it prints goes to standard error."""
        environment = {**os.environ, **change.environment()}
        with subprocess.Popen(
            self._arguments, env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        ) as process:
            try:
                code = process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                raise OSError(f"it ran for more than {self._timeout:g} seconds and was ended") from None
            finally:
                with suppress(ProcessLookupError, PermissionError):  # what it left running ends, too
                    os.killpg(process.pid, signal.SIGKILL)
        if code:
            raise OSError(f"its exit code was {code}")
