"""The command; `--help` says what it takes."""

import argparse
import csv
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from shown.results import ROOT
from shown.results import rows as rows_of

from mutants.covering import Tests, first_failure
from mutants.forks import in_forks
from mutants.mutations import Mutation, mutations

RESULT = ROOT / "benchmarks/results/mutants.csv"
FIELDS = ("file", "line", "function", "kind", "before", "after", "outcome", "noticed_by", "seed", "version")
KEY = ("file", "function", "before", "after")
PATIENCE = 8
LOADED = (
    "torch",
    "sympy",
    "numba",
    "hypothesis",
)  # once for all forks, where they are; never pta, which a fork loads changed

_CORE = (
    *("engines/*.py", "adapters/adapter.py", "adapters/checks.py", "adapters/pta.py", "adapters/state_*.py"),
    *("claims.py", "classifier.py", "files.py", "parameters.py", "plain.py", "samples.py", "streams.py"),
    *("evaluation/bits.py", "evaluation/cached_evaluation.py", "evaluation/evaluate.py", "evaluation/metrics.py"),
    *("evaluation/result_store.py", "evaluation/stream.py", "evaluation/stream_run.py"),
)

Row = dict[str, str]


def core_files() -> list[str]:
    """The files that are changed, as paths in the tree: all but the kernels, which run on a GPU."""
    found = (path for pattern in _CORE for path in sorted((ROOT / "src/pta").glob(pattern)))
    return [str(path.relative_to(ROOT)) for path in found if not path.name.startswith("triton")]


def changes(file: str) -> list[tuple[Row, Mutation]]:
    """Every change of a file, with the row that describes it."""
    described = []
    for change in mutations((ROOT / file).read_text()):
        row = {name: str(value) for name, value in change._asdict().items() if name in FIELDS}
        described.append((row | {"file": file, "line": str(change.first)}, change))
    return described


def equivalents() -> list[Row]:
    """The listed changes that make no difference, with their reasons."""
    return tomllib.loads((Path(__file__).parent / "equivalents.toml").read_text())["mutant"]


def key_of(row: Row) -> tuple[str, ...]:
    """What identifies a change, wherever in its function the line is now."""
    return tuple(row[name] for name in KEY)


def drawn(count: int, seed: int, files: Iterable[str]) -> list[tuple[Row, Mutation]]:
    """One change of each of so many lines; fewer are the first of more, and an edit elsewhere changes none of them."""

    def chance(row: Row, *names: str) -> str:
        return hashlib.sha256(repr((seed, *map(row.get, names))).encode()).hexdigest()

    lines: dict[tuple[str, str], list[tuple[Row, Mutation]]] = {}
    for row, change in chain.from_iterable(map(changes, files)):
        place = chance(row, "file", "function", "before"), row["line"]
        lines.setdefault(place, []).append((row, change))
    return [min(lines[place], key=lambda one: chance(one[0], *KEY)) for place in sorted(lines)[:count]]


def noticed_by(base: Path, file: str, text: str, groups: list[tuple[str, list[str]]]) -> str:
    """The first test that fails if a file has this text, or nothing."""
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(base, tree, copy_function=os.link)
        changed = tree / file
        for old in (changed, *changed.parent.glob(f"__pycache__/{changed.stem}.*")):
            old.unlink()
        changed.write_text(text)
        return next(filter(None, (first_failure(tree, name, tests) for name, tests in groups)), "")


def main() -> None:
    parser = argparse.ArgumentParser(description="Change the code in small wrong ways and see whether a test notices.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=200, help="how many lines are changed, one at a time")
    parser.add_argument("--again", action="store_true", help="keep what the result says was noticed; run the others")
    given = parser.parse_args()
    for name in filter(find_spec, LOADED):
        import_module(name)
    version = next(in_forks([("version", float("inf"), _version)]))[1]
    listed = {key_of(row) for row in equivalents()}
    kept = {key_of(row): row for row in rows_of("mutants") if row["outcome"] == "noticed"} if given.again else {}
    rows, left = [], []
    for row, change in drawn(given.lines, given.seed, core_files()):
        row |= {"outcome": "equivalent" if key_of(row) in listed else "", "seed": str(given.seed), "version": version}
        row = kept.get(key_of(row), {}) | {"line": row["line"]} if key_of(row) in kept else row
        rows.append(row)
        if not row["outcome"]:
            left.append((row, change))
    if left:
        _run(left)
    with RESULT.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["file"], int(row["line"]))))
    count = Counter(row["outcome"] for row in rows)
    run = count["noticed"] + count["survived"]
    print(f"{count['equivalent']} changes make no difference (benchmarks/mutants/equivalents.toml)")
    print(f"{count['survived']} of {run} mutants survived, {count['survived'] / max(run, 1):.1%}")


def _run(left: list[tuple[Row, Mutation]]) -> None:
    """Write into each row whether its change was noticed."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        shutil.copytree(ROOT, base, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        tests, jobs = Tests(base, core_files()), []
        for row, change in left:
            groups, seconds = tests.chosen(row["file"], change)
            jobs.append((row, PATIENCE * seconds, partial(noticed_by, base, row["file"], change.text, groups)))
        for number, (row, by, seconds) in enumerate(in_forks(jobs), start=1):
            row["noticed_by"] = "crash or time limit" if by is None else by
            row["outcome"] = "noticed" if row["noticed_by"] else "survived"
            said = f"by {row['noticed_by']}" if row["noticed_by"] else f": {row['before']} → {row['after']}"
            place = f"{row['file']}:{row['line']}"
            print(f"{number} of {len(jobs)} in {seconds:.1f} s: {place} {row['outcome']} {said}", flush=True)


def _version() -> str:
    from pta.evaluation.version import code_version

    return code_version(ROOT / file for file in core_files())


if __name__ == "__main__":
    main()
