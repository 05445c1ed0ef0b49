"""Registry: what a journal knows of its streams and sources without reading the disk."""

import time
from collections import Counter
from collections.abc import Mapping

from pta.errors import InvalidParameter
from pta.serve.journal.chain import newest_link
from pta.serve.journal.database import JournalDatabase
from pta.serve.journal.loss import CountFile, count_of
from pta.serve.journal.schema import SourceRow, StreamRow, read_streams, value


class Registry:
    """The rows of streams and sources, the samples per source, the ends of both chains, the last operation."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database
        self.streams = {stream.id: stream for stream in read_streams(database.reader)}
        last = "SELECT max(coalesce(max(operation), 0), (SELECT coalesce(max(id), 0) FROM operations)) FROM batches"
        self.operation: int = value(database.writer, last)
        self.read_links()
        self.read_sources()
        self._count = CountFile(database.path.parent)
        self.put({})

    def read_links(self) -> None:
        """The ends of both chains."""
        self.links = {table: newest_link(self._database.writer, table) for table in ("batches", "operations")}

    def read_sources(self) -> None:
        """The sources, and how many samples they have."""
        rows = self._database.read("SELECT * FROM sources")
        counts = self._database.read("SELECT source, count(*) FROM samples GROUP BY source")
        self.sources = {(row[1], row[2]): SourceRow(*row[:-1]) for row in rows}
        self.counts: Counter[int | None] = Counter(dict(counts))

    def stream(self, number: int) -> StreamRow:
        """A stream that is not deleted."""
        known = self.streams.get(number)
        if known is None or known.is_deleted:
            raise InvalidParameter(f"the journal has no stream {number}")
        return known

    def put(self, streams: Mapping[int, StreamRow]) -> None:
        """These rows of streams are written."""
        self.streams = {**self.streams, **streams}
        self._count.write(count_of(self.streams.values()))

    def now(self) -> float:
        """The time, which never goes back, whatever the clock does."""
        return max(time.time(), max((stream.time for stream in self.streams.values()), default=0.0))

    def source(self, stream: int, name: str, sequence: int, new: dict[tuple[int, str], SourceRow]) -> int:
        """The number of a source, which is added to those that are `new` if it is not known."""
        key = stream, name
        known = self.sources.get(key) or new.get(key)
        if known is None:
            free = 1 + max((source.id for source in self.sources.values()), default=0) + len(new)
            known = new[key] = SourceRow(free, *key, sequence)
        return known.id

    def close(self) -> None:
        """End writing the count."""
        self._count.close()
