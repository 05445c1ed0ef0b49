"""The progress of a stream, recorded in its state, so that it can be resumed after any stop."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pta.data.sample_set import SampleReference
from pta.errors import StateMismatch
from pta.methods.state_file import read_stream
from pta.run.decoding import PILLOW
from pta.run.rows.row_file import RowMark

_AND = " and "
Reference = TypeVar("Reference", bound=SampleReference)


@dataclass(frozen=True)
class StreamRecord:
    """A position in a stream, and in the file of its rows."""

    taken: int  # samples before it, answered or skipped
    last: str | None  # key of the last of them
    keys: str  # sha256 of all their keys, in order
    rows: RowMark | None  # where their rows end; None if rows are not kept in a file
    decoder: str = PILLOW  # what decoded them

    def __post_init__(self) -> None:
        texts = isinstance(self.keys, str) and isinstance(self.decoder, str) and isinstance(self.last, str | None)
        if not texts or not isinstance(self.taken, int) or not 0 <= self.taken <= sys.maxsize:
            raise TypeError("not a place in a stream")


def read_record(state: Path) -> StreamRecord | None:
    """The record in a state file, if it has one."""
    found = read_stream(state)
    if found is None:
        return None
    try:
        rows = found["rows"]
        return StreamRecord(**{**found, "rows": None if rows is None else RowMark(**rows)})
    except (TypeError, KeyError):
        raise StateMismatch(f"{state}: its record of the stream is damaged") from None


class Progress:
    """How many samples of a stream were taken, and which."""

    def __init__(self, decoder: str = "") -> None:
        self.taken, self.decoder = 0, decoder
        self.last: str | None = None
        self._keys = hashlib.sha256()

    def decoded_by(self, name: str) -> None:
        """Record what decodes the samples, beside what did so before."""
        if name not in self.decoder.split(_AND):
            self.decoder = _AND.join(filter(None, (self.decoder, name)))

    def add(self, keys: Iterable[str]) -> None:
        """Count samples that were taken, in order."""
        for key in keys:
            self.taken += 1
            self.last = key
            self._keys.update(json.dumps(key).encode() + b"\n")

    def record(self, rows: RowMark | None) -> StreamRecord:
        """The place that the stream has reached, with the end of its rows."""
        return StreamRecord(self.taken, self.last, self._keys.hexdigest(), rows, self.decoder)


def skip_taken(samples: Iterable[Reference], record: StreamRecord, state: Path) -> tuple[Iterator[Reference], Progress]:
    """The samples after those of a record, and how far that is; refused if those before are others than recorded."""
    rest, progress = iter(samples), Progress(record.decoder)
    progress.add(sample.key for sample in islice(rest, record.taken))
    if progress.record(record.rows) == record:
        return rest, progress
    if progress.taken < record.taken:
        found = f"{state} has seen {record.taken:,} samples, but there are {progress.taken:,}"
    elif progress.last != record.last:
        found = f"{state} has seen {record.last} as sample {record.taken:,}, which now is {progress.last}"
    else:
        found = f"{state} has seen other samples before {record.last}"
    raise StateMismatch(f"{found}; without --resume all samples are predicted, starting from this state")
