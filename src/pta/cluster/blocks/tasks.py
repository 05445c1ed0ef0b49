"""Tasks, the queue they wait in, and the pools that do them: this process, or workers elsewhere."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Tasks = Sequence[Callable[[Any], Any]]
"""Calls with what all of them share."""
OnProgress = Callable[[int], None]
"""How many tasks are done, after each and now and then between."""
OnPhase = Callable[[str, int], OnProgress]
"""Given what begins and of how many tasks it consists, where its progress is told."""
OnResult = Callable[[Any, Any], Iterable[Any]]
"""Given a task and its result, the tasks that can begin now."""


def silent(done: int) -> None:
    """Tell nobody."""


def no_progress(what: str, count: int) -> OnProgress:
    """Tell nobody."""
    return silent


def nothing_more(task: Any, result: Any) -> Iterable[Any]:
    """No further tasks."""
    return ()


class Pool(Protocol):
    """Where tasks run."""

    @property
    def workers(self) -> int:
        """How many tasks can run at once."""

    def each(self, tasks: Tasks, shared: Any, told: OnProgress = silent, then: OnResult = nothing_more) -> list[Any]:
        """The results of all tasks, in the order of the tasks; each is called with what they share.

        Tasks that `then` gives for a result are done before those that wait, and their results come last.
        """


@dataclass(frozen=True, repr=False)
class Task:
    """A call of a function with what all tasks share, and with arguments of its own; it can be sent elsewhere."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, shared: Any) -> Any:
        """Do it."""
        return self.function(shared, *self.arguments)

    def __repr__(self) -> str:
        short = tuple(one for one in self.arguments if isinstance(one, int | range))
        return f"{self.function.__name__}{short}"

    @property
    def block(self) -> int | None:
        """The block whose features it reads, if it is of one block."""
        first = self.arguments[0]
        return first if isinstance(first, int) else None


class TaskQueue:
    """Tasks in the order in which they are to be done, if possible by the worker that has their block in memory.

    Args:
        keepers: the worker that read each block last; the queue adds to it.
    """

    def __init__(self, tasks: Iterable[Any], then: OnResult = nothing_more, keepers: dict[int, Any] | None = None):
        self.tasks, self.results = list(tasks), dict[int, Any]()
        self._then, self._keepers = then, {} if keepers is None else keepers
        self.waiting = deque(range(len(self.tasks)))

    @property
    def is_done(self) -> bool:
        """Whether all tasks have results."""
        return len(self.results) == len(self.tasks)

    def take(self, worker: Any = None, may_do: Callable[[Any, int], bool] = lambda worker, number: True) -> int | None:
        """The number of the next task that a worker may do: a block that another worker has comes last."""
        chosen = None
        for chosen in (number for number in self.waiting if may_do(worker, number)):
            if self._keeper(chosen) in (None, worker):
                break
        if chosen is None:
            return None
        self.waiting.remove(chosen)
        block = getattr(self.tasks[chosen], "block", None)
        if block is not None:
            self._keepers[block] = worker
        return chosen

    def finish(self, number: int, result: Any) -> None:
        """Keep the result of a task, and add those that can begin now."""
        self.results[number] = result
        more = list(self._then(self.tasks[number], result))
        self.waiting.extendleft(reversed(range(len(self.tasks), len(self.tasks) + len(more))))
        self.tasks += more

    def ordered(self) -> list[Any]:
        """All results."""
        return [self.results[number] for number in range(len(self.tasks))]

    def _keeper(self, number: int) -> Any:
        return self._keepers.get(getattr(self.tasks[number], "block", None))  # type: ignore[arg-type]


class ThisProcess:
    """One task after another, here: what workers elsewhere must equal."""

    workers = 1

    def each(self, tasks: Tasks, shared: Any, told: OnProgress = silent, then: OnResult = nothing_more) -> list[Any]:
        """The results of all tasks."""
        queue = TaskQueue(tasks, then)
        while (number := queue.take()) is not None:
            queue.finish(number, queue.tasks[number](shared))
            told(len(queue.results))
        return queue.ordered()
