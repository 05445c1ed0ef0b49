"""The journal: every learned sample and every operation, on the disk before it is acknowledged."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pta.serve.journal_rows import Committed, Found, GroupRows, NewRequest, Operation, StoredAnswers


class Journal:
    """The journal of a data folder, which this process owns until `close`."""

    read_only: str | None  # why nothing can be written any more

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, Any], *, repair: bool = False) -> "Journal":
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def streams(self) -> dict[str, int]:
        raise NotImplementedError

    def create(self, name: str) -> int:
        raise NotImplementedError

    def delete(self, stream: int) -> None:
        raise NotImplementedError

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        raise NotImplementedError

    def find(self, stream: int, id_hash: bytes) -> Found | None:
        raise NotImplementedError

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> Operation:
        raise NotImplementedError

    def operations(self, stream: int) -> list[Operation]:
        raise NotImplementedError

    def groups(self, stream: int, after: int = 0, until: int | None = None) -> Iterator[GroupRows]:
        raise NotImplementedError

    def count(
        self, stream: int, *, source: str | None = None, after: int | None = None, until: int | None = None
    ) -> int:
        raise NotImplementedError

    def sources(self, stream: int) -> dict[str, int]:
        raise NotImplementedError

    def first(self, stream: int, source: str) -> int | None:
        raise NotImplementedError

    def last(self, stream: int) -> tuple[int, float]:
        raise NotImplementedError

    def oldest(self, stream: int) -> tuple[int, float]:
        raise NotImplementedError

    def sequence_at(self, stream: int, time: float) -> int:
        raise NotImplementedError

    def erase(self, stream: int, source: str, until: int) -> int:
        raise NotImplementedError

    def drop_until(self, stream: int, sequence: int) -> int:
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError

    def checkpoint(self) -> None:
        raise NotImplementedError

    def backup(self, path: Path) -> None:
        raise NotImplementedError

    def check(self) -> list[str]:
        raise NotImplementedError
