"""Workers on Ray: actors of one thread each, which do whatever task comes next.

A worker that dies is replaced and its task done again, by whichever worker is free. A block with samples that a worker
could not read is tried by others, as long as there are such. Ray Data is not used: it cuts rows
into blocks of its own, and here a block is a file that either is there or is computed by one task.
"""

import logging
import os
import secrets
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

import pta
from pta.cluster.blocks.tasks import OnProgress, OnResult, TaskQueue, Tasks, nothing_more, silent
from pta.cluster.ray.orphans import no_orphans
from pta.errors import InvalidParameter, MachineFailure, StateMismatch, first_line
from pta.measure.provenance import code_version

LOCAL = "local"
_ATTEMPTS = 10  # of one task, whose workers died
_WORKERS = 3  # that try a block with samples that one could not read, before these count as unread
_PATIENCE = 10.0  # seconds for an address to answer
_SECONDS = 30.0  # without a block that is done, until a line says so
_OBJECT_STORE = 2**28  # bytes; tasks and what they give back are small
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_OFFLINE = {"HF_HUB_OFFLINE": "1"}  # a model is read from a shared path, not fetched by every worker at once


class _Worker:
    """What an actor does."""

    def __init__(self) -> None:
        self._held: list[Any] = []
        self._shared: Any = None

    def start(self, version: str) -> None:
        """Compute on one thread, by the code that the driver has."""
        torch.set_num_threads(1)
        own = package_version()
        if own != version:
            raise StateMismatch(f"a worker runs pta {own}, the driver {version}; install the same on every machine")

    def run(self, task: Callable[[Any], Any], held: list[Any]) -> Any:
        """Do a task; what all share is fetched once, and stays with what the tasks keep in it."""
        if held != self._held:
            import ray

            self._held, self._shared = held, ray.get(held[0])
        return task(self._shared)


def package_version() -> str:
    """The version of this package, and a digest of its code."""
    return code_version(Path(pta.__file__).parent.rglob("*.py"))


@contextmanager
def connected(cluster: str, *, trust_network: bool = False) -> Iterator[Any]:
    """Ray: one of its own on this machine (`local`), that of the job or machine (`auto`), or at an address."""
    if cluster != LOCAL and not trust_network and os.environ.get("RAY_AUTH_MODE") != "token":
        raise InvalidParameter(
            f"--cluster {cluster}: whoever reaches a Ray without tokens runs code on it; set RAY_AUTH_MODE=token here "
            "and on the cluster (ray get-auth-token --generate), or say --trust-network"
        )
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    given: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster == LOCAL:
        # Ray listens on every interface. The token is known to this process and its workers alone.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ |= _ONE_THREAD | _OFFLINE
        given |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    else:
        package = str(Path(pta.__file__).parent)
        given["runtime_env"] = {"env_vars": _ONE_THREAD | _OFFLINE, "py_modules": [package]}
    import ray  # not before: it reads the environment

    try:
        _require_answer(cluster)
        ray.init(cluster, **given)
    except Exception as error:  # whatever Ray raises where nothing answers
        start = "ray start --head starts one, --cluster local needs none"
        raise MachineFailure(f"no Ray can be reached at {cluster}: {first_line(error)}; {start}") from None
    try:
        with no_orphans() if cluster == LOCAL else nullcontext():
            yield ray
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise MachineFailure(f"the cluster at {cluster} was lost: {first_line(error)}") from None
    finally:
        ray.shutdown()


def _require_answer(cluster: str) -> None:
    """Knock at an address, where Ray would wait for minutes."""
    host, colon, port = cluster.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


class Elsewhere:
    """Who has tried which task without being able to read all of its samples, and what it gave."""

    def __init__(self) -> None:
        self._tried = defaultdict[int, set[Any]](set)
        self._results = dict[int, Any]()

    def may_do(self, worker: Any, number: int) -> bool:
        """Whether a worker has not tried a task."""
        return worker not in self._tried[number]

    def is_needed(self, worker: Any, number: int, result: Any) -> bool:
        """Whether another worker is to try a task that this one gave a result for."""
        if not getattr(result, "unread", None):
            return False
        self._tried[number].add(worker)
        self._results[number] = min(self._results.get(number, result), result, key=lambda one: one.unread.count)
        return len(self._tried[number]) < _WORKERS

    def best(self, number: int, result: Any) -> Any:
        """The last result of a task, or the one with the fewest unread samples."""
        return self._results[number] if getattr(result, "unread", None) else result

    def without_more_workers(self, waiting: Iterable[int]) -> dict[int, Any]:
        """The results of those tasks that all there are have tried."""
        return {number: self._results[number] for number in waiting if number in self._results}


class RayPool(AbstractContextManager["RayPool"]):
    """Actors of a connected Ray.

    Args:
        workers: how many are asked for; None for all that fit.
        cpus, gpus: what each of them takes.
        say: takes what a person should know.
    """

    def __init__(
        self, ray: Any, workers: int | None, *, cpus: float = 1, gpus: int = 0, say: Callable[[str], None] = print
    ) -> None:
        self._ray, self._say = ray, say
        resources = ray.cluster_resources()
        fitting = int(resources.get("CPU", 0) // cpus)
        if gpus:
            fitting = min(fitting, int(resources.get("GPU", 0) // gpus))
        if workers is None and not fitting:
            kind = "GPU" if gpus else f"{cpus:g} CPUs"
            raise InvalidParameter(f"the cluster has no machine with a {kind} for a worker; see --device and --workers")
        self.workers = workers or fitting
        if fitting < self.workers:
            say(f"{self.workers} workers were asked for, the cluster has room for {fitting}; it goes on with those")
        self._actor = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0)(_Worker)
        self._version = package_version()
        self._busy: dict[Any, tuple[Any, int | None]] = {}  # what is awaited → who does it, and which task it is
        self._idle: list[Any] = []
        self._deaths = 0  # since a task was done
        self._shared: Any = None
        self._held: list[Any] = []  # its reference: in a list, which Ray leaves as it is
        self._keepers: dict[int, Any] = {}  # who read which block last

    def __exit__(self, *error: object) -> None:
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._stop(actor)

    def each(self, tasks: Tasks, shared: Any, told: OnProgress = silent, then: OnResult = nothing_more) -> list[Any]:
        """The results of all tasks, in the order of the tasks; after an error the pool can be used again."""
        if shared is not self._shared:  # sent to each machine once
            self._shared, self._held, self._keepers = shared, [self._ray.put(shared)], {}
        try:
            return self._each(TaskQueue(tasks, then, self._keepers), told)
        except BaseException:
            for one in [one for one, (_, number) in self._busy.items() if number is not None]:
                self._stop(self._busy.pop(one)[0])
            raise

    def _each(self, queue: TaskQueue, told: OnProgress) -> list[Any]:
        attempts, elsewhere = Counter[int](), Elsewhere()
        while not queue.is_done:
            for _ in range(self.workers - len(self._idle) - len(self._busy)):
                self._start()
            for actor in [*self._idle]:
                following = queue.take(actor, elsewhere.may_do)
                if following is None:
                    continue
                self._idle.remove(actor)
                task = queue.tasks[following]
                attempts[following] += 1
                if attempts[following] > _ATTEMPTS:
                    raise MachineFailure(f"{_ATTEMPTS} workers died at one block ({task}); is memory short?")
                named = actor.run.options(name=f"pta {task!r}")
                self._busy[named.remote(task, self._held)] = actor, following
            done = self._ray.wait(list(self._busy), num_returns=1, timeout=_SECONDS)[0] if self._busy else []
            if not done and all(number is None for _, number in self._busy.values()):
                for tried, result in elsewhere.without_more_workers(queue.waiting).items():
                    queue.waiting.remove(tried)
                    queue.finish(tried, result)
                if queue.waiting:
                    self._say("no worker has started yet; waiting")
            elif not done:
                told(len(queue.results))  # a line that says so, also while nothing ends
            for one in done:
                actor, number = self._busy.pop(one)
                try:
                    result = self._ray.get(one)
                except self._ray.exceptions.RayTaskError as error:
                    self._stop(actor)
                    raise error.cause from None
                except self._ray.exceptions.RayError:
                    self._stop(actor)
                    self._deaths += 1
                    if self._deaths > _ATTEMPTS * self.workers:
                        raise MachineFailure(f"{self._deaths} workers died in a row; see the logs of Ray") from None
                    if number is not None:
                        queue.waiting.appendleft(number)
                    continue
                self._idle.append(actor)
                if number is not None and elsewhere.is_needed(actor, number, result):
                    queue.waiting.append(number)
                elif number is not None:
                    queue.finish(number, elsewhere.best(number, result))
                    self._deaths = 0
                    told(len(queue.results))
        return queue.ordered()

    def _start(self) -> None:
        actor = self._actor.options(name=f"pta worker {secrets.token_hex(4)}").remote()
        self._busy[actor.start.remote(self._version)] = actor, None

    def _stop(self, actor: Any) -> None:
        for block in [block for block, keeper in self._keepers.items() if keeper is actor]:
            del self._keepers[block]
        with suppress(Exception):
            self._ray.kill(actor)
