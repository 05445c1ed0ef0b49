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


def kill_at(owner, function, calls):
    """Code after which a process is killed as it calls a function of a module or class for the n-th time."""
    return f"""
import os, signal
from pkgutil import resolve_name
owner, calls = resolve_name({owner!r}), []
function = owner.{function}
def counted(*arguments, **options):
    calls.append(1)
    if len(calls) == {calls}:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **options)
owner.{function} = counted
"""


def run_until_killed(owner, function, calls, *arguments, **how):
    """The command in a process that SIGKILL ends at that moment."""
    code = f"{kill_at(owner, function, calls)}\nfrom pta.cli import main\nmain()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **how)
    assert done.returncode == -signal.SIGKILL, done.stderr
