"""What a Ray of this machine leaves when its driver is killed: agents, which wait a minute for a head that is gone.

Head and workers end by themselves. A process that waits for the end of the driver kills the agents.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_WATCH = """
import os, signal, sys
from contextlib import suppress
agents = []
for process in sys.argv[1:]:
    with suppress(ProcessLookupError):
        agents.append(os.pidfd_open(int(process)))  # never another process of the same number
sys.stdin.read()
for agent in agents:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(agent, signal.SIGKILL)
"""


@contextmanager
def no_orphans() -> Iterator[None]:
    """Let no agent of the Ray that this process has started outlive it, however it ends; on Linux."""
    agents = [
        one for child in _children(os.getpid()) if _said(f"{child}/comm") == "raylet\n" for one in _children(child)
    ]
    call = [sys.executable, "-I", "-c", _WATCH, *agents]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as watch:
        try:
            yield
        finally:
            watch.kill()


def _children(process: int | str) -> list[str]:
    threads = Path(f"/proc/{process}/task").glob("*")
    return [child for thread in threads for child in _said(f"{process}/task/{thread.name}/children").split()]


def _said(name: str) -> str:
    """What the system says about a process; nothing of one that has ended meanwhile."""
    with suppress(OSError):
        return Path("/proc", name).read_text()
    return ""
