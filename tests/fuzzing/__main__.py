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
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import torch

from fuzzing.calls import Violation
from fuzzing.numbered import numbered_call, target_of

_MEMORY = 4 * 2**30  # bytes that calls may take beyond what a worker has
_CPU_SECONDS = 20  # of one call
_SILENCE = 600  # seconds without a finished call, on however busy a machine
_SECONDS_BETWEEN_LINES = 30


def main() -> None:
    """Run what the environment asks for."""
    seed = int(os.environ.get("PTA_FUZZ_SEED", "1"))
    if len(sys.argv) == 4:
        return _work(seed, *map(int, sys.argv[1:]))
    if number := os.environ.get("PTA_FUZZ_CALL"):
        return _show(seed, int(number))
    return _run(seed, int(os.environ.get("PTA_FUZZ_CALLS", "20000")))


def _show(seed: int, number: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        found = numbered_call(seed, number, Path(scratch))
    print("clean" if found is None else found)
    sys.exit(found is not None)


# -- the parent --------------------------------------------------------------------------------------------------------


class _Tally:
    """What was found until now, by cause."""

    def __init__(self, seed: int, calls: int) -> None:
        self.seed, self.calls, self.done = seed, calls, 0
        self.groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, number: int, found: Violation | None) -> None:
        """Count a call; the first of a kind is told at once, with how to make it again."""
        with self._lock:
            self.done += 1
            if found is None:
                return
            self.groups[found.group].append(number)
            if len(self.groups[found.group]) == 1:
                again = f"PTA_FUZZ_SEED={self.seed} PTA_FUZZ_CALL={number} make test-fuzz"
                print(f"{found.where or '-'} | {found.kind} | {found.target} | {again}", flush=True)

    def __str__(self) -> str:
        violations = sum(map(len, self.groups.values()))
        counted = f"{self.done:,} of {self.calls:,} calls, seed {self.seed}"
        return f"{counted}: {violations} violations of {len(self.groups)} kinds"


class _Worker(threading.Thread):
    """Makes every n-th call in a process, and the rest in another one when that dies; a death is a violation."""

    def __init__(self, tally: _Tally, start: int, step: int) -> None:
        super().__init__()
        self._tally, self._next, self._step = tally, start, step

    def run(self) -> None:
        """Until all calls are made."""
        while self._next < self._tally.calls:
            self._run_process()

    def _run_process(self) -> None:
        numbers = map(str, (self._next, self._tally.calls, self._step))
        process = subprocess.Popen([sys.executable, "-m", "fuzzing", *numbers], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines, target = [0], "the first call"
        threading.Thread(target=_kill_if_silent, args=(process, lines), daemon=True).start()
        for line in process.stdout:
            lines[0], told = lines[0] + 1, json.loads(line)
            if "target" in told:
                target = told["target"]
            else:
                self._finish(Violation(**told["found"]) if told["found"] else None)
        if code := process.wait():
            death = f"died: {signal.Signals(-code).name}" if code < 0 else f"died: exit code {code}"
            self._finish(Violation(target, death, "", ""))

    def _finish(self, found: Violation | None) -> None:
        self._tally.add(self._next, found)
        self._next += self._step


def _kill_if_silent(process: "subprocess.Popen[str]", lines: list[int]) -> None:
    """Kill a worker that finishes no call: busy in a library, where no signal reaches it, or waiting for something."""
    heard, since, used = 0, time.monotonic(), 0.0
    while process.poll() is None:
        time.sleep(2)
        if heard != lines[0]:
            heard, since, used = lines[0], time.monotonic(), _cpu_seconds(process.pid)
        elif time.monotonic() - since > _SILENCE or _cpu_seconds(process.pid) - used > 2 * _CPU_SECONDS:
            process.kill()


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _run(seed: int, calls: int) -> None:
    tally, count = _Tally(seed, calls), os.cpu_count() or 1
    workers = [_Worker(tally, start, count) for start in range(count)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        workers[0].join(_SECONDS_BETWEEN_LINES / 2)
        workers[-1].join(_SECONDS_BETWEEN_LINES / 2)
        print(tally, flush=True)
    sys.exit(bool(tally.groups))


# -- a worker ----------------------------------------------------------------------------------------------------------


def _work(seed: int, start: int, stop: int, step: int) -> None:
    _limit_memory()
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, _too_long)
    told = os.fdopen(os.dup(1), "w")  # calls may do what they like with standard output

    def tell(**what: object) -> None:
        told.write(json.dumps(what) + "\n")
        told.flush()

    with tempfile.TemporaryDirectory() as scratch:
        for number in range(start, stop, step):
            tell(target=target_of(seed, number)[0].name)
            signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
            found = numbered_call(seed, number, Path(scratch))
            signal.setitimer(signal.ITIMER_PROF, 0)
            tell(found=found and asdict(found))


def _limit_memory() -> None:
    with Path("/proc/self/statm").open() as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {_CPU_SECONDS} seconds of a processor")


if __name__ == "__main__":
    main()
