"""Service: named streams that share an encoder and a classifier, each with a state that is the replay of its journal."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pta.serve.requests import Reply, Request
from pta.serve.served import Served, ServiceSettings, Shape


class Service:
    """Answers requests about samples, learns from them once they are in the journal, and undoes what was learned.

    Operations give {"stream", "operation", "samples", "sequence"}: how many samples they concern, and their row. With
    `dry_run` they only count.
    """

    shape: Shape

    @classmethod
    def open(cls, served: Served, folder: Path | None, settings: ServiceSettings | None = None) -> "Service":
        """Recover the streams of a data folder; without a folder nothing is durable."""
        raise NotImplementedError

    def submit(self, request: Request) -> "Future[Reply]":
        """Queue a request; never blocks. The future gives the reply or raises what is wrong (`Refused`)."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        raise NotImplementedError

    @property
    def reason(self) -> str | None:
        """Why it is not ready, or why nothing is learned."""
        raise NotImplementedError

    @property
    def queued(self) -> int:
        """How many samples wait or are being answered."""
        raise NotImplementedError

    def streams(self) -> list[dict[str, Any]]:
        """Name, sequence, position and whether it is frozen, of every stream."""
        raise NotImplementedError

    def summary(self, name: str) -> dict[str, Any]:
        """What the page shows of a stream."""
        raise NotImplementedError

    def version(self, name: str) -> int:
        """A number that changes with every group and operation."""
        raise NotImplementedError

    def create(self, name: str) -> dict[str, Any]:
        """Make a stream, unless it is there."""
        raise NotImplementedError

    def delete(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Erase a stream with all its files."""
        raise NotImplementedError

    def freeze(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Learn nothing more until `thaw`."""
        raise NotImplementedError

    def thaw(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Learn again."""
        raise NotImplementedError

    def reset(self, name: str, classes: Sequence[int] | None = None, *, dry_run: bool = False) -> dict[str, Any]:
        """Forget everything, or what was learned about some classes."""
        raise NotImplementedError

    def rewind(
        self, name: str, *, to_sequence: int | None = None, to_time: float | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """Go back to a moment, given as a sequence number or as seconds since 1970."""
        raise NotImplementedError

    def unlearn(self, name: str, source: str, *, erase: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Be as if the samples of a source had never come; with `erase`, also remove them from the files."""
        raise NotImplementedError

    def undo(self, name: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Lift the last operation in force."""
        raise NotImplementedError

    def export(self, name: str) -> bytes:
        """The state as a file that `pta.load_adapter` and `--state` read."""
        raise NotImplementedError

    def import_(self, name: str, content: bytes, *, dry_run: bool = False) -> dict[str, Any]:
        """Go on from an exported state."""
        raise NotImplementedError

    def drain(self, seconds: float) -> bool:
        """Take no more requests and wait for those that are queued; whether all were answered in time."""
        raise NotImplementedError

    def close(self) -> None:
        """Save a snapshot of every stream and end."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
