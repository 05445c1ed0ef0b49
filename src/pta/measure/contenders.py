"""Contenders: the results that are compared, read from record files, their names, and their pairing."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from pta.door.files import read_json, understanding
from pta.errors import InvalidParameter, InvalidSamples, UnreadableFile, naming
from pta.measure.record import Counts, read_right

BySeed = dict[int, Counts]

_NAMED = 12  # contenders in a message
_LARGEST = 2**30  # bytes of a file: some tens of thousands of records
_FIELDS = {"dataset": str, "method": str, "params": dict, "stream": dict, "seed": int, "n": int}


@dataclass(frozen=True, eq=False)
class Contender:
    """A method with its parameters on one kind of stream of one dataset, in the orders of its seeds."""

    dataset: str
    method: str
    params: dict[str, Any]  # every parameter it had
    stream: dict[str, Any]  # what kind of order, and how batches were used
    samples: int  # how many the dataset has
    seen: BySeed = field(default_factory=dict)  # how often each sample came
    right: BySeed = field(default_factory=dict)  # how often it was answered correctly
    labels: str = ""  # a digest of the samples' labels

    @property
    def settings(self) -> dict[str, Any]:
        """What tells it from others of its method: parameters by name, the stream's as `stream.NAME`."""
        return self.params | {f"stream.{name}": value for name, value in self.stream.items()}

    @property
    def identity(self) -> str:
        """Equal for equal method, parameters and stream."""
        return json.dumps([self.method, self.settings], sort_keys=True)


@dataclass(frozen=True)
class Choice:
    """Which contender is meant: one of this method whose settings have these values."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, one: Contender) -> bool:
        """Whether a contender may be meant."""
        own = one.settings
        fitting = (name in own and own[name] == value for name, value in self.settings.items())
        return one.method == self.method and all(fitting)


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
            new = _checked(record)
            _add(found.setdefault((new.dataset, new.identity), new), new)
    return list(found.values())


def _checked(record: Any) -> Contender:
    """The contender of one seed."""
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
    seen, right = read_right(record)
    count, good, given = int(seen.sum()), int(right.sum()), record["accuracy"]
    counted = count and count == record["n"] and not (right > seen).any() and isinstance(given, int | float)
    if not counted or not math.isclose(given, 100 * good / count, abs_tol=1e-6):
        raise UnreadableFile("its parts contradict each other (damaged?); make the file again with pta eval --json")
    described = {name: record[name] for name in ("dataset", "method", "params", "stream")}
    one = Contender(**described, samples=samples, labels=str(record.get("labels")))
    one.seen[record["seed"]], one.right[record["seed"]] = seen, right
    return one


def _add(one: Contender, new: Contender) -> None:
    if new is one:
        return
    for seed in one.right.keys() & new.right:
        raise UnreadableFile(f"seed {seed} of {one.method} on {one.dataset} is there twice; keep one of the two")
    if (new.samples, new.labels) != (one.samples, one.labels):
        raise UnreadableFile(f"{one.dataset} has other samples here than before")
    one.seen.update(new.seen)
    one.right.update(new.right)


def names(contenders: Sequence[Contender]) -> list[str]:
    """The shortest names that tell contenders apart, in the form that `--a` and `--b` take.

    >>> made = [Contender("pets", "pta", {"h": h, "w": 0.01}, {"kind": "iid"}, 9) for h in (5.0, 20.0)]
    >>> names([*made, Contender("pets", "clip", {}, {"kind": "iid"}, 9)])
    ['pta:h=5', 'pta:h=20', 'clip']
    """
    values: dict[tuple[str, str], set[str]] = {}
    for one in contenders:
        for name, value in one.settings.items():
            values.setdefault((one.method, name), set()).add(as_given(value))
    found = []
    for one in contenders:
        telling = [f"{name}={as_given(v)}" for name, v in one.settings.items() if len(values[one.method, name]) > 1]
        found.append(f"{one.method}:{','.join(telling)}" if telling else one.method)
    return found


def as_given(value: Any) -> str:
    """A parameter's value as a user gives it.

    >>> as_given("sum"), as_given(20.0), as_given(True)
    ('sum', '20', 'true')
    """
    return value if isinstance(value, str) else json.dumps(value).removesuffix(".0")


def pair(
    first: Sequence[Contender], second: Sequence[Contender], a: Choice | None = None, b: Choice | None = None
) -> list[tuple[Contender, Contender]]:
    """The pairs to compare on each shared dataset: the only ones, the chosen ones, or those of the same name."""
    pairs: list[tuple[Contender, Contender]] = []
    for dataset in shared_datasets(first, second):
        ours, theirs = ([one for one in side if one.dataset == dataset] for side in (first, second))
        namesakes = _namesakes(ours, theirs) if a is None and b is None else []
        pairs += namesakes or [(_chosen(ours, a, "a"), _chosen(theirs, b, "b"))]
    return pairs


def against(contenders: Sequence[Contender], choice: Choice) -> list[tuple[Contender, Contender]]:
    """On each dataset, the chosen contender with each of the others."""
    pairs = []
    for dataset in shared_datasets(contenders, contenders):
        own = [one for one in contenders if one.dataset == dataset]
        chosen = _chosen(own, choice, "a")
        pairs += [(chosen, other) for other in own if other is not chosen]
    if not pairs:
        raise InvalidParameter(f"there is nothing but {choice.method} to compare")
    return pairs


def shared_datasets(first: Sequence[Contender], second: Sequence[Contender]) -> list[str]:
    """The datasets that are in both, in the order of the first."""
    ours, theirs = (list(dict.fromkeys(one.dataset for one in side)) for side in (first, second))
    shared = [dataset for dataset in ours if dataset in theirs]
    if not shared:
        raise InvalidParameter(f"no dataset is in both: A has {', '.join(ours)}, B has {', '.join(theirs)}")
    return shared


def _namesakes(ours: Sequence[Contender], theirs: Sequence[Contender]) -> list[tuple[Contender, Contender]]:
    """Pairs of the same settings, or else of the same method, if both sides have the same ones."""
    for name in attrgetter("identity"), attrgetter("method"):
        left, right = ({name(one): one for one in side} for side in (ours, theirs))
        if left.keys() == right.keys() and len(left) == len(ours) and len(right) == len(theirs):
            return [(left[key], right[key]) for key in left]
    return []


def _chosen(contenders: Sequence[Contender], choice: Choice | None, side: str) -> Contender:
    fitting = [one for one in contenders if choice is None or choice.fits(one)]
    if len(fitting) == 1:
        return fitting[0]
    listed = [name for name, one in zip(names(contenders), contenders, strict=True) if one in fitting or not fitting]
    known = ", ".join(listed[:_NAMED]) + (", …" if len(listed) > _NAMED else "")
    what = f"{side.upper()} has {'several' if fitting else 'no such result'} on {contenders[0].dataset}"
    raise InvalidParameter(f"{what}; choose one with --{side}: {known}")
