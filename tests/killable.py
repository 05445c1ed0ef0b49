"""The command `pta` in processes that start at once and can be killed: forks of one that has imported everything."""

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

_SERVER = """
import json, os, sys
import pta, pta.cli.extract, pta.cli.predict
from pta.cli import main
from pta.datasets.fashion import load_fashion_test

pta.Classifier("embedded", ["bag", "shirt"], cache=None)(list(load_fashion_test().images[:3]))  # loads what is slow

for line in sys.stdin:
    arguments, log = json.loads(line)
    child = os.fork()
    if not child:
        for descriptor, place in enumerate((os.devnull, os.devnull, log)):
            os.dup2(os.open(place, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["pta", *arguments]
        try:
            main()
        except SystemExit as end:
            os._exit(end.code)  # the end of the interpreter takes longer than the command
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Commands:
    """Runs one command at a time, in a folder, on one thread."""

    def __init__(self, folder):
        self._log = folder / "log"
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = {**os.environ, **one_thread, "PTA_CACHE": str(folder / "cache")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER], cwd=folder, env=environment, bufsize=0, **pipes
        )

    def start(self, *arguments):
        """Start a command."""
        self._server.stdin.write(json.dumps([list(map(str, arguments)), str(self._log)]).encode() + b"\n")
        self._process = int(self._server.stdout.readline())

    def is_running(self, seconds=0.0):
        """Whether the command still runs after so many seconds."""
        return not select.select([self._server.stdout], [], [], seconds)[0]

    def kill(self):
        """Kill it, unless it has ended, and give its exit code."""
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Its exit code, when it has ended."""
        return int(self._server.stdout.readline())

    def said(self):
        """What the last command wrote to standard error."""
        return self._log.read_text()

    def close(self):
        """End the process that commands are forked from."""
        self._server.stdin.close()
        self._server.wait()
