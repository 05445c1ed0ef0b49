"""Which tests run which lines of the core, and pytest on a tree of one's choice."""

import os
import sys
from bisect import bisect
from collections.abc import Callable, Iterable
from functools import partial
from inspect import CO_OPTIMIZED
from itertools import accumulate
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mutants.forks import in_forks
from mutants.mutations import Mutation

# The tests of the core. Others run it too, but through models, pictures and the command line, and slowly.
FILES = (
    *("adapt", "adapters", "admission", "bca", "boostadapter", "checks", "claims", "classifier", "combined", "dota"),
    *("engines", "features", "freetta", "gaussian", "host_readable", "hostile_files", "metrics", "mta", "oga"),
    *("onzeta", "parameters", "presets", "probabilities", "pta", "reference", "samples", "sca", "segments", "stata"),
    *("state_bounds", "store", "stored", "streams", "tca", "tda", "transduction", "zero", "zero_shot"),
)
BUDGET = 100.0  # seconds


class _Watch:
    """A pytest plugin: how long each test that passes takes, and which lines of the core it runs."""

    def __init__(self, tree: Path, core: Iterable[str]) -> None:
        self.core = {str(tree / file): file for file in core}
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.fixtures: set[tuple[str, int]] = set()  # lines that run once for several tests

    def pytest_runtest_logstart(self) -> None:
        self.ran: set[tuple[str, int]] = set()
        sys.settrace(self.trace)

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        file = self.core.get(frame.f_code.co_filename)
        if file is None or not frame.f_code.co_flags & CO_OPTIMIZED:
            return None  # not of the core, or the body of a module or class, which runs once for all tests
        self.ran.add((file, frame.f_lineno))
        return self.trace

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self.fixtures |= self.ran
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid], self.lines[report.nodeid] = report.duration, self.ran


class _Only:
    """A pytest plugin: run these tests in their order, and keep the name of the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self.turn, self.failed = {test: turn for turn, test in enumerate(tests)}, ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.turn), key=lambda item: self.turn[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def first_failure(tree: Path, file: str, tests: list[str]) -> str:
    """The first of these tests of a file that fails on the code of a tree, or nothing."""
    only = _Only(tests)
    return (only.failed or f"{file} cannot be loaded") if _run_pytest(tree, only, file, "-x") else ""


def _run_pytest(tree: Path, plugin: _Watch | _Only, file: str, *options: str) -> int:
    os.chdir(tree)
    sys.path[:0] = ours = [str(tree / folder) for folder in ("src", "tests", "benchmarks")]
    os.environ["PYTHONPATH"] = os.pathsep.join(ours)  # of the processes that tests start
    temporary = tree.with_name("temporary") / Path(file).stem
    temporary.mkdir(parents=True, exist_ok=True)
    return pytest.main([file, f"--basetemp={temporary}", *options], plugins=[plugin])


class Tests:
    """The tests that pass on the unchanged code of a tree."""

    def __init__(self, tree: Path, core: list[str]) -> None:
        self.tree = tree
        self.seconds: dict[str, float] = {}
        self.start: dict[str, float] = {}  # seconds of a file before, between and after its tests
        self.lines: dict[str, dict[str, set[int]]] = {}  # of a test, by file of the core

        def watched(file: str) -> object:
            watch = _Watch(tree, core)
            _run_pytest(tree, watch, file)
            return watch.seconds, {test: list(ran | watch.fixtures) for test, ran in watch.lines.items()}

        with_doctests = [file for file in core if ">>>" in (tree / file).read_text()]
        files = [*(f"tests/test_{name}.py" for name in FILES), *with_doctests]
        for file, answer, took in in_forks((file, float("inf"), partial(watched, file)) for file in files):
            seconds, lines = answer
            print(f"{file}: {len(seconds)} tests pass in {took:.1f} s", flush=True)
            self.seconds |= seconds
            self.start[file] = took - sum(seconds.values())
            for test, ran in lines.items():
                for where, line in ran:
                    self.lines.setdefault(test, {}).setdefault(where, set()).add(line)

    def chosen(self, file: str, mutation: Mutation) -> tuple[list[tuple[str, list[str]]], float]:
        """The tests that a change is run against, by file, short ones first, and their seconds without it."""
        changed = set(range(mutation.first, mutation.last + 1))
        if not any(changed & lines[file] for lines in self.lines.values() if file in lines):  # no line of a function
            name = mutation.before.split()[0].rstrip(":")
            numbered = enumerate((self.tree / file).read_text().splitlines(), start=1)
            changed |= {number for number, line in numbered if name in line}
        places: dict[tuple[bool, str], list[str]] = {}  # the tests by whether they only run other lines, and by file
        for test, lines in self.lines.items():
            if file in lines:
                places.setdefault((not changed & lines[file], test.split("::")[0]), []).append(test)

        def turn(place: tuple[bool, str]) -> tuple[bool, bool, float]:
            seconds = self.start[place[1]] + sum(map(self.seconds.__getitem__, places[place]))
            return place[0], Path(place[1]).stem != f"test_{Path(file).stem}", seconds / len(places[place])

        groups, spent = [], 0.0
        for place in sorted(places, key=turn):
            tests = sorted(places[place], key=self.seconds.__getitem__)
            ends = list(accumulate(map(self.seconds.__getitem__, tests), initial=spent + self.start[place[1]]))[1:]
            fit = bisect(ends, BUDGET)
            if fit:
                groups.append((place[1], tests[:fit]))
                spent = ends[fit - 1]
        return groups, spent
