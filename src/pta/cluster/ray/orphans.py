"""What a Ray of this machine leaves when its driver is killed: agents, which wait a minute for a head that is gone.

Head and workers end by themselves. A process that waits for the end of the driver kills the agents.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WATCH = """
import os, signal, sys
from contextlib import suppress
agents = [os.pidfd_open(int(process)) for process in sys.argv[1:]]  # never another process of the same number
sys.stdin.read()
for agent in agents:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(agent, signal.SIGKILL)
"""


@contextmanager
def no_orphans() -> Iterator[None]:
    """Let no agent of the Ray that this process has started outlive it, however it ends; on Linux."""
    raylets = [one for one in _children(os.getpid()) if Path(f"/proc/{one}/comm").read_text() == "raylet\n"]
    call = [sys.executable, "-I", "-c", _WATCH, *(agent for raylet in raylets for agent in _children(raylet))]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as watch:
        try:
            yield
        finally:
            watch.kill()


def _children(process: int | str) -> list[str]:
    return [
        child for thread in Path(f"/proc/{process}/task").glob("*/children") for child in thread.read_text().split()
    ]
