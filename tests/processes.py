"""Processes that tests start: waited for as long as they live, and killed at a chosen moment."""

import multiprocessing
import signal
import subprocess
import sys
import time

import pytest

PATIENCE = 1800.0  # seconds; however busy the machine is, only what hangs takes so long


class Forked(multiprocessing.get_context("fork").Process):
    """A function in a process of its own, which need not import anything again; to wait for as for a Popen."""

    stderr = None
    returncode = property(lambda self: self.exitcode)

    def __init__(self, function, *arguments):
        super().__init__(target=function, args=arguments, daemon=True)
        self.args = function.__name__
        self.start()

    def poll(self):
        return self.exitcode


def wait_until(happened, process):
    """Wait for something that a process does, and fail with what it said if it ends without."""
    patience = time.monotonic() + PATIENCE
    while not happened():
        if process.poll() is not None and not happened():
            said = process.stderr.read() if process.stderr else ""
            pytest.fail(f"{process.args} ended with {process.returncode} too early: {said}")
        if time.monotonic() > patience:
            process.kill()
            pytest.fail(f"{process.args} hangs")
        time.sleep(0.005)


_KILLED = """
import os, signal, sys
from pkgutil import resolve_name
owner, name, last = resolve_name(sys.argv[1]), sys.argv[2], int(sys.argv[3])
del sys.argv[1:4]
function, calls = getattr(owner, name), []
def counted(*arguments, **options):
    calls.append(1)
    if len(calls) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **options)
setattr(owner, name, counted)
from pta.cli import main
main()
"""


def run_until_killed(owner, function, calls, *arguments, **how):
    """The command in a process that SIGKILL ends as it calls a function of a module or class for the n-th time."""
    command = [sys.executable, "-c", _KILLED, owner, function, calls, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, **how)
    assert done.returncode == -signal.SIGKILL, done.stderr
