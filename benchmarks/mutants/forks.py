"""Work in forks of this process, which has loaded torch once for all of them."""

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from traceback import format_exc
from typing import IO, Any, NoReturn

Job = tuple[Any, float, Callable[[], object]]
"""A name, the seconds that it may take, and work that gives something JSON can hold."""


def in_forks(jobs: Iterable[Job]) -> Iterator[tuple[Any, Any, float]]:
    """Do as many jobs at once as there are cores; give the name of each, what its work gave, and its seconds.

    Work that crashes or takes too long gives None.
    """
    waiting, running = list(jobs)[::-1], {}
    while waiting or running:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            name, limit, work = waiting.pop()
            answer = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed when it is read)
            child = os.fork()
            if not child:
                _do(work, answer)
            running[child] = name, limit, answer, time.monotonic()
        time.sleep(0.05)
        for child, (name, limit, answer, began) in list(running.items()):
            seconds = time.monotonic() - began
            ended = os.waitpid(child, os.WNOHANG)[0]
            if not ended and seconds < limit:
                continue
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # with the processes that it started
            if not ended:
                os.waitpid(child, 0)
            del running[child]
            with answer:
                answer.seek(0)
                said = json.loads(answer.read() or "{}")
            if "failed" in said:
                raise RuntimeError(said["failed"])
            yield name, said.get("gave"), seconds


def _do(work: Callable[[], object], answer: IO[str]) -> NoReturn:
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        json.dump({"gave": work()}, answer)
    except BaseException:
        json.dump({"failed": format_exc()}, answer)
    answer.flush()
    os._exit(0)
