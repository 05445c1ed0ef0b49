"""The labels of an audit as CSV, written anew after every answer before it counts, and the list of audits."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

from pta.data.label_file import NONE_OF_THEM, as_in_csv, read_label_file
from pta.door.claims import sole_writer
from pta.door.csv_rows import read_csv
from pta.door.files import read_json, write_atomically
from pta.door.plain_files import require_plain_file
from pta.errors import UnreadableFile, nearest
from pta.measure.audit.audit import VALUES, Audit, Given
from pta.measure.audit.population import Draws
from pta.measure.texts import csv_text

BACK, STOP = "back", "stop"
_OWN = ("label", "answer", "time", "audit")


def write_labels(path: Path, audit: Audit) -> None:
    """Write the answers so far, so that a kill loses none of them."""
    rows, mark = audit.draws.rows, audit.draws.fingerprint
    naming = audit.draws.naming
    lines = [
        [*(dict(row.named).get(name, "") for name in naming), one.label, one.answer, one.time, mark]
        for row, one in zip(rows, audit.given, strict=False)
    ]
    write_atomically(path, csv_text([*naming, *_OWN], *lines).encode())


def read_labels(path: Path, draws: Draws, class_names: Sequence[str]) -> tuple[Given, ...]:
    """The answers in a file that `write_labels` wrote for the same draws; none if there is no file."""
    if not path.exists():
        return ()
    found = list[Given]()
    labels = {as_in_csv(name): name for name in class_names}
    for line, row in read_csv(path, "label", *_OWN):
        answer = next((one for one in VALUES if one == row["answer"]), None)
        if row["audit"] != draws.fingerprint or len(found) == len(draws.rows):
            raise UnreadableFile(
                f"{path} belongs to an audit of other rows or of another --seed; choose another --labels"
            )
        named = draws.rows[len(found)].named
        if answer is None or any(row.get(name) != as_in_csv(cell) for name, cell in named):
            raise UnreadableFile(f"{path}: line {line} is not as it was written; choose another --labels")
        found.append(Given(answer, labels.get(row["label"], row["label"]), row["time"]))
    return tuple(found)


def simulated(path: Path, audit: Audit) -> Audit:
    """The audit with known labels of its draws, until it ends or a draw is not listed."""
    known, audit = _known_labels(path, audit.class_names), replace(audit, is_simulated=True)
    for row in audit.draws.rows:
        if audit.ending is not None:
            break
        label = known.get((as_in_csv(row.key), row.place))
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
    names = {"": "", NONE_OF_THEM: NONE_OF_THEM} | {as_in_csv(name): name for name in class_names}
    for row in read_label_file(path, with_empty=True):
        place = f"{path}: line {row.line}"
        if row.key is None:
            raise UnreadableFile(f"{place} has neither a path nor an id")
        if row.label not in names:
            unknown = f"'{row.label}' is not a class of these rows; {nearest(row.label, class_names)}"
            raise UnreadableFile(f"{place}: {unknown} (--classes adds classes that no row has)")
        label = names[row.label]
        if (one := known.setdefault((as_in_csv(row.key), row.place), label)) != label:
            raise UnreadableFile(f"{place}: {row.key} has two labels, '{one}' and '{label}'")
    return known


def count_audits(path: Path, draws: Draws) -> int:
    """How many audits of a stream were begun, with this one."""
    return len({*_begun(path), draws.fingerprint})


def record_audit(path: Path, draws: Draws) -> None:
    """Add an audit to the list, unless it is in it."""
    with sole_writer(path, wait=True):
        begun = _begun(path)
        if draws.fingerprint not in begun:
            write_atomically(path, f"{json.dumps([*begun, draws.fingerprint])}\n".encode())


def _begun(path: Path) -> list[str]:
    require_plain_file(path)
    begun = read_json(path, "audit list") if path.exists() else []
    if not isinstance(begun, list) or not all(isinstance(one, str) for one in begun):
        raise UnreadableFile(f"{path} is not a list of audits: pta makes it itself; move it away")
    return begun


class Session:
    """An audit that a person changes by one answer at a time."""

    def __init__(self, audit: Audit, labels: Path, audits: Path) -> None:
        self.audit = audit
        self._labels, self._audits = labels, audits
        self._one_at_a_time = Lock()

    def say(self, number: int, said: str, label: str = "") -> Audit:
        """The audit after an answer to a draw, from 1, or `BACK` or `STOP` there.

        What was said about another draw than the present one, as by a key pressed twice, changes nothing.
        """
        with self._one_at_a_time:
            audit = self.audit
            if number != len(audit) + 1 or audit.ending is not None:
                return audit
            if said == STOP:
                self.audit = replace(audit, is_stopped=True)
                return self.audit
            changed = replace(audit, given=audit.given[:-1]) if said == BACK else audit.said(said, label)
            record_audit(self._audits, audit.draws)
            write_labels(self._labels, changed)
            self.audit = changed
            return changed
