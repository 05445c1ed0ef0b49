"""`python -m fuzzing`: many calls in worker processes, their violations grouped by cause.

PTA_FUZZ_CALLS and PTA_FUZZ_SEED say how many calls and which; PTA_FUZZ_CALL=NUMBER makes one of them and shows it.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch

from fuzzing.calls import Violation
from fuzzing.targets import numbered_call, target_of

_MEMORY = 4 * 2**30  # bytes that calls may take beyond what a worker has
_CPU_SECONDS = 20  # of one call; after twice as many a worker that is busy in a library is killed
_SILENCE = 600  # seconds that one call may wait, on however busy a machine, before its worker is killed
_SECONDS_BETWEEN_LINES = 30


def main() -> None:
    """Run what the environment asks for."""
    seed = int(os.environ.get("PTA_FUZZ_SEED", "1"))
    if len(sys.argv) == 4:
        _work(seed, *map(int, sys.argv[1:]))
    elif number := os.environ.get("PTA_FUZZ_CALL"):
        with tempfile.TemporaryDirectory() as scratch:
            found = numbered_call(seed, int(number), Path(scratch))
        print("clean" if found is None else found)
        sys.exit(found is not None)
    else:
        _run(_Tally(seed, int(os.environ.get("PTA_FUZZ_CALLS", "20000"))))


class _Tally:
    """What was found until now, by cause."""

    def __init__(self, seed: int, calls: int) -> None:
        self.seed, self.calls, self.done = seed, calls, 0
        self.groups: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, number: int, found: Violation | None) -> None:
        """Count a call; the first of a kind is told at once, with how to make it again."""
        with self._lock:
            self.done += 1
            if found is not None:
                self.groups[found.group] += 1
            if found is not None and self.groups[found.group] == 1:
                again = f"PTA_FUZZ_SEED={self.seed} PTA_FUZZ_CALL={number} make test-fuzz"
                print(f"{found.where or '-'} | {found.kind} | {found.target} | {again}", flush=True)

    def __str__(self) -> str:
        found = f"{self.groups.total()} violations of {len(self.groups)} kinds"
        return f"{self.done:,} of {self.calls:,} calls, seed {self.seed}: {found}"


def _run(tally: _Tally) -> None:
    count = os.cpu_count() or 1
    workers = [threading.Thread(target=_watch_workers, args=(tally, start, count)) for start in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        while worker.is_alive():
            worker.join(_SECONDS_BETWEEN_LINES)
            print(tally, flush=True)
    sys.exit(bool(tally.groups))


def _watch_workers(tally: _Tally, number: int, step: int) -> None:
    """Make every n-th call in a process, and the rest in another one when that dies; a death is a violation."""
    while number < tally.calls:
        numbers = map(str, (number, tally.calls, step))
        process = subprocess.Popen([sys.executable, "-m", "fuzzing", *numbers], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            tally.add(number, Violation(**found) if found else None)
            number += step
        if code := process.wait():
            death = f"died: {signal.Signals(-code).name}" if code < 0 else f"died: exit code {code}"
            tally.add(number, Violation(target_of(tally.seed, number)[0].name, death, "", ""))
            number += step


def _work(seed: int, start: int, stop: int, step: int) -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, _too_long)
    told = os.fdopen(os.dup(1), "w")  # calls may do what they like with standard output
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(start, stop, step):
            used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
            resource.setrlimit(resource.RLIMIT_CPU, (used + 2 * _CPU_SECONDS, resource.RLIM_INFINITY))
            signal.alarm(_SILENCE)
            signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
            found = numbered_call(seed, number, Path(scratch))
            signal.setitimer(signal.ITIMER_PROF, 0)
            print(json.dumps(found and asdict(found)), file=told, flush=True)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {_CPU_SECONDS} seconds of a processor")


if __name__ == "__main__":
    main()
