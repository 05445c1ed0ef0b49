"""The command `pta` in processes that start at once and can be killed: forks of one that has imported everything."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_SERVER = """
import json, os, signal, socket, sys
import pta, pta.cli.extract, pta.cli.predict, pta.cli.serve, pta.serve.http.app, pta.serve.http.server
from pta.cli import main
from pta.data.fashion import load_fashion_test

classify = pta.Classifier("embedded", ["bag", "shirt"], cache=None)  # loads what is slow
for given in (load_fashion_test().images[0], list(load_fashion_test().images[:3])):
    classify(given)

asked = socket.socket(fileno=int(sys.argv[1]))
while (message := socket.recv_fds(asked, 2**16, 3))[0]:
    job, streams = json.loads(message[0]), message[1]
    child = os.fork()
    if not child:
        asked.close()
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", 1, errors="backslashreplace")
        os.chdir(job["folder"])
        os.environ |= job["environment"]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
        exec(job["first"])
        sys.argv = ["pta", *job["arguments"]]
        try:
            main()
        except SystemExit as end:
            if job["to_the_end"]:
                raise
            os._exit(end.code)
    for stream in streams:
        os.close(stream)
    asked.send(str(child).encode())
    asked.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
"""


class Commands:
    """Runs one command at a time, on one thread. `stdin`, `stdout` and `stderr` are its pipes."""

    def __init__(self):
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        call = [sys.executable, "-c", _SERVER, str(theirs.fileno())]
        self._server = subprocess.Popen(call, env={**os.environ, **one_thread}, pass_fds=[theirs.fileno()])
        theirs.close()
        self._process, self._pipes = None, []

    def start(self, *arguments, folder, stdout=None, environment=(), first="", to_the_end=False):
        """Start a command in a folder, perhaps with its output to a file, after it has run some code `first`.

        The end of the interpreter, which takes longer than a small command, is left out unless it runs `to_the_end`.
        """
        if self._process:  # a test has failed before it waited
            self.kill()
        self._close_pipes()
        (stdin, self.stdin), (self.stdout, out), (self.stderr, err) = os.pipe(), os.pipe(), os.pipe()
        self.stdin = os.fdopen(self.stdin, "wb", buffering=0)
        self.stdout, self.stderr = os.fdopen(self.stdout), os.fdopen(self.stderr)
        self._pipes = [self.stdin, self.stdout, self.stderr]
        environment = {"PTA_CACHE": str(_own_cache(folder)), **dict(environment)}
        job = {"arguments": list(map(str, arguments)), "folder": str(folder), "environment": environment}
        message = json.dumps(job | {"first": first, "to_the_end": to_the_end}).encode()
        socket.send_fds(self._asked, [message], [stdin, out if stdout is None else stdout.fileno(), err])
        for stream in (stdin, out, err):
            os.close(stream)
        self._process = int(self._asked.recv(100))

    def is_running(self, seconds=0.0):
        """Whether the command still runs after so many seconds."""
        return not select.select([self._asked], [], [], seconds)[0]

    def send_signal(self, number):
        """Send it a signal, unless it has ended."""
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(self._process, number)

    def kill(self):
        """Kill it, unless it has ended, and give its exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def wait(self):
        """Its exit code, when it has ended."""
        self._process = None
        return int(self._asked.recv(100))

    def close(self):
        """End the process that commands are forked from."""
        self._close_pipes()
        self._asked.close()
        self._server.wait()

    def _close_pipes(self):
        for pipe in self._pipes:
            pipe.close()


def _own_cache(folder):
    """A cache for a folder, but for compiled code: a command would compile it anew at each start."""
    own, compiled = folder / "cache", Path(os.environ.get("PTA_CACHE", "")) / "numba"
    own.mkdir(exist_ok=True)
    if compiled.is_symlink() and not (own / "numba").is_symlink():
        (own / "numba").symlink_to(compiled.resolve())
    return own
