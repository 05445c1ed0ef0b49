"""Record files, as `pta eval --json` and `pta sweep --json` write them: read and checked."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.door.files import read_json, understanding
from pta.errors import InvalidSamples, UnreadableFile, naming
from pta.measure.bits import read_bits
from pta.measure.contenders import Contender
from pta.measure.record import Record

_LARGEST = 2**30  # bytes of a file: some tens of thousands of records
_FIELDS = {"dataset": str, "method": str, "params": dict, "stream": dict, "seed": int, "n": int}


def read_contenders(path: Path) -> list[Contender]:
    """The contenders of a record file; every mistake is one line that names the file and the record."""
    if path.suffix.lower() in (".csv", ".npz", ".safetensors"):
        wrong = path.suffix.lower().removeprefix(".")
        raise UnreadableFile(f"{path}: records are JSON files of pta eval --json or pta sweep --json, not {wrong}")
    records = read_json(path, "record", _LARGEST)
    if not isinstance(records, list) or not records:
        raise UnreadableFile(f"{path} is not a list of records; pta eval --json and pta sweep --json write one")
    found: dict[tuple[str, str], Contender] = {}
    for number, record in enumerate(records, 1):
        with understanding(f"{path}, record {number}", "record"), naming(f"{path}, record {number}"):
            one, seen, right = _checked(record)
            one = found.setdefault((one.dataset, one.identity), one)
            _add(one, record, seen, right)
    return list(found.values())


def _checked(record: Any) -> tuple[Contender, NDArray[np.bool_], NDArray[np.bool_]]:
    if not isinstance(record, dict):
        raise UnreadableFile("not a record of pta eval --json")
    if "experiment" in record:
        raise UnreadableFile("this is a table of pta reproduce; pta compare needs records of pta eval or pta sweep")
    for name, kind in _FIELDS.items():
        if type(record.get(name)) is not kind:
            raise UnreadableFile(f"{name} is missing or damaged; make the file again with pta eval --json")
    if record.get("accuracy") is None:
        raise InvalidSamples(f"{record['dataset']} has no labels, so it is not known which predictions are correct")
    if "right" not in record:
        raise UnreadableFile(
            "it does not record which predictions are correct (an older version?); make it again with pta eval --json"
        )
    samples = record.get("samples")
    if type(samples) is not int or samples < 1:
        raise UnreadableFile("samples is missing or damaged; make the file again with pta eval --json")
    seen, right = (read_bits(record.get(name, ""), samples) for name in ("seen", "right"))
    count, good, given = int(seen.sum()), int(right.sum()), record["accuracy"]
    counted = count and count == record["n"] and not (right & ~seen).any() and isinstance(given, int | float)
    if not counted or not math.isclose(given, 100 * good / count, abs_tol=1e-6):
        raise UnreadableFile("its parts contradict each other (damaged?); make the file again with pta eval --json")
    described = {name: record[name] for name in ("dataset", "method", "params", "stream")}
    return Contender(**described, samples=samples, labels=str(record.get("labels"))), seen, right


def _add(one: Contender, record: Record, seen: NDArray[np.bool_], right: NDArray[np.bool_]) -> None:
    seed = record["seed"]
    if seed in one.right:
        raise UnreadableFile(f"seed {seed} of {one.method} on {one.dataset} is there twice; keep one of the two")
    if (record["samples"], str(record.get("labels"))) != (one.samples, one.labels):
        raise UnreadableFile(f"{one.dataset} has other samples here than before")
    one.seen[seed], one.right[seed] = seen, right
