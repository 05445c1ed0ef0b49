"""Processes that tests start: waited for as long as they live."""

import multiprocessing
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

    def kill(self):
        """Kill it, and wait for its end."""
        super().kill()
        self.join(PATIENCE)


def wait_for(happened):
    """Wait for something that this process does."""
    patience = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < patience
        time.sleep(0.005)


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
