"""The labels of an audit as CSV, written anew after every answer, and the list of audits beside the rows."""

import json
from dataclasses import replace
from pathlib import Path

from pta.data.label_file import read_label_file
from pta.door.csv_rows import read_csv
from pta.door.files import read_json, write_atomically
from pta.door.plain_files import require_plain_file
from pta.errors import UnreadableFile, nearest
from pta.measure.audit.audit import NONE, VALUES, Audit, Given
from pta.measure.audit.population import Draws
from pta.measure.texts import csv_text

_OWN = ("label", "answer", "time", "audit")
_NAMING = ("path", "id", "place", "sequence")


def write_labels(path: Path, audit: Audit) -> None:
    """Write the answers so far, so that a kill loses none of them."""
    rows, mark = audit.draws.rows, audit.draws.fingerprint
    naming = [name for name in _NAMING if name in dict(rows[0].named)]
    lines = [
        [*(dict(row.named).get(name, "") for name in naming), one.label, one.answer, one.time, mark]
        for row, one in zip(rows, audit.given, strict=False)
    ]
    write_atomically(path, csv_text([*naming, *_OWN], *lines).encode())


def read_labels(path: Path, draws: Draws) -> tuple[Given, ...]:
    """The answers in a file that `write_labels` wrote for the same draws; none if there is no file."""
    if not path.exists():
        return ()
    found = list[Given]()
    for line, row in read_csv(path, "CSV of labels", *_OWN):
        answer = next((one for one in VALUES if one == row["answer"]), None)
        if answer is None:
            raise UnreadableFile(f"{path}: line {line} was not written by pta audit; choose another --labels")
        if row["audit"] != draws.fingerprint or len(found) == len(draws.rows):
            raise UnreadableFile(
                f"{path} belongs to an audit of other rows or of another --seed; choose another --labels"
            )
        found.append(Given(answer, row["label"], row["time"]))
    return tuple(found)


def simulated(path: Path, audit: Audit) -> Audit:
    """The audit with known labels of its draws, until it ends or a draw is not listed."""
    known, audit = _known_labels(path, audit.class_names), replace(audit, is_simulated=True)
    for row in audit.draws.rows:
        if audit.ending is not None:
            break
        label = known.get((row.key, row.place))
        if label is None:
            return replace(audit, is_stopped=True)
        given = Given("cannot tell") if not label else Given("neither", label)
        if label in (row.adapted, row.zero_shot):
            given = Given("adapted" if label == row.adapted else "zero-shot", label)
        audit = audit.with_answer(given)
    return audit


def _known_labels(path: Path, class_names: tuple[str, ...]) -> dict[tuple[str, int], str]:
    """Labels by path or id, and place: a class, `none`, or empty."""
    known = dict[tuple[str, int], str]()
    for row in read_label_file(path, with_empty=True):
        place, label = f"{path}: line {row.line}", row.label
        if row.key is None:
            raise UnreadableFile(f"{place} has neither a path nor an id")
        if label and label != NONE and label not in class_names:
            unknown = f"'{label}' is not a class of these rows; {nearest(label, class_names)}"
            raise UnreadableFile(f"{place}: {unknown} (--classes adds classes that no row has)")
        if known.setdefault((row.key, row.place), label) != label:
            raise UnreadableFile(f"{place}: {row.key} has two labels, '{known[row.key, row.place]}' and '{label}'")
    return known


def audits_file(rows: Path) -> Path:
    """The list of audits of a file of rows, beside it."""
    return rows.with_name(f"{rows.name}.audits.json")


def count_audits(path: Path, draws: Draws) -> int:
    """How many audits of a stream were begun, with this one."""
    return len({*_begun(path), draws.fingerprint})


def record_audit(path: Path, draws: Draws) -> None:
    """Add an audit to the list, unless it is in it."""
    begun = _begun(path)
    if draws.fingerprint not in begun:
        write_atomically(path, f"{json.dumps([*begun, draws.fingerprint])}\n".encode())


def _begun(path: Path) -> list[str]:
    require_plain_file(path)
    begun = read_json(path, "audit list") if path.exists() else []
    if not isinstance(begun, list) or not all(isinstance(one, str) for one in begun):
        raise UnreadableFile(f"{path} is not a list of audits: pta makes it itself; move it away")
    return begun
