"""A person's session: what they say is on the disk before it counts."""

from dataclasses import replace
from pathlib import Path
from threading import Lock

from pta.measure.audit.audit import Audit
from pta.measure.audit.label_file import record_audit, write_labels

BACK, STOP = "back", "stop"


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
