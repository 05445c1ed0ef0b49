"""Tasks on workers: in this process, or on Ray.

A task is a picklable callable that writes its result under the name of its block, whole or not at all, and gives back a
little. So it may run twice, anywhere and in any order. Workers hold nothing but a model.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

Shared = TypeVar("Shared")
Result = TypeVar("Result")
OnProgress = Callable[[int], None]
"""Told how many tasks are done, after each."""
Phases = Callable[[str, int], OnProgress]
"""Told what begins and of how many tasks it consists."""


class Pool(Protocol):
    """Where tasks run."""

    def each(
        self, tasks: Sequence[Callable[[Shared], Result]], shared: Shared, told: OnProgress = lambda done: None
    ) -> list[Result]:
        """The results of all tasks, in the order of the tasks; each is called with what they share."""


class ThisProcess:
    """One task after another, here: what workers elsewhere must equal."""

    def each(
        self, tasks: Sequence[Callable[[Shared], Result]], shared: Shared, told: OnProgress = lambda done: None
    ) -> list[Result]:
        """The results of all tasks."""
        results: list[Any] = []
        for task in tasks:
            results.append(task(shared))
            told(len(results))
        return results
