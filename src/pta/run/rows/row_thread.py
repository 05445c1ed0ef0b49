"""RowThread: rows are written while the next batch is computed."""

import queue
import threading
from collections.abc import Sequence
from typing import Protocol

from pta.errors import PtaError
from pta.run.answers import Answers
from pta.run.rows.row_file import RowMark

_BATCHES_AHEAD = 2  # a state keeps their rows if the disk is full


class RowSink(Protocol):
    """Where rows go."""

    def write(self, paths: Sequence[str], answers: Answers) -> None:
        """Add the rows of a batch."""

    def finish(self) -> None:
        """Write what was not written yet; where there are no rows, at least a header."""

    def mark(self) -> RowMark | None:
        """Where the rows end, once they are safe; None if they cannot be found again."""


class RowThread:
    """Writes rows in order, in a separate thread.

    A failure is raised by the next call that could not do its own work because of it. Rows that come after the failure
    are handed on all the same, so that a `RowFile` can keep them for the state.
    """

    def __init__(self, sink: RowSink) -> None:
        self._sink = sink
        self._waiting: queue.Queue[tuple[Sequence[str], Answers] | None] = queue.Queue(_BATCHES_AHEAD)
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="rows", daemon=True)
        self._thread.start()

    def write(self, paths: Sequence[str], answers: Answers) -> None:
        """Add the rows of a batch soon."""
        self._waiting.put((paths, answers))
        self._raise_failure()

    def finish(self) -> None:
        """Wait until all rows are written."""
        self._waiting.join()
        self._raise_failure()
        self._sink.finish()

    def mark(self) -> RowMark | None:
        """Where the rows end, once all of them are safe or, in the mark, kept as unwritten."""
        self._waiting.join()
        if not isinstance(self._failure, PtaError):
            self._raise_failure()
        return self._sink.mark()

    def close(self) -> None:
        """Write what is left, and end."""
        self._waiting.put(None)
        self._thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (rows := self._waiting.get()) is not None:
            try:
                self._sink.write(*rows)
            except Exception as error:  # noqa: BLE001 (whoever has given the rows raises it)
                self._failure = self._failure or error
            self._waiting.task_done()
