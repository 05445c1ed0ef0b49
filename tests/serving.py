"""A small service for tests: 6 classes in 16 dimensions, and requests for it."""

import hashlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pta import Adapter, create_adapter
from pta.core.classifier import ZeroShotClassifier
from pta.serve.journal.journal import Journal
from pta.serve.requests import Learn, Request
from pta.serve.streams.answering import StreamState
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.served_model import ServedModel, ServiceSettings
from pta.serve.streams.service import Service
from pta.serve.streams.stage import one_thread

CLASSES, DIM = 6, 16
anchors = torch.nn.functional.normalize(torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(1)), dim=1)
CLASSIFIER = ZeroShotClassifier(anchors, [f"class {number}" for number in range(CLASSES)], scale=20.0)


def open_service(folder: Path | None, method: str = "pta", parameters: Any = None, **settings: Any) -> Service:
    """A service of features."""
    served = ServedModel(CLASSIFIER, method, parameters or {})
    return Service.open(served, folder, ServiceSettings(**settings))


def features(seed: int, count: int = 1) -> np.ndarray:
    """Samples near the anchors."""
    random = np.random.default_rng(seed)
    near = anchors.numpy()[random.integers(CLASSES, size=count)]
    return (near + 0.15 * random.standard_normal((count, DIM))).astype(np.float32)


def request(
    given: int | np.ndarray,
    *,
    stream: str = "default",
    id: str | None = None,
    learn: Learn = "true",
    source: str | None = None,
    count: int = 1,
    top: int = 0,
    logits: bool = False,
) -> Request:
    """A request about features, or about those of a seed."""
    rows = features(given, count) if isinstance(given, int) else given
    digest = hashlib.blake2b(rows.tobytes() + repr((learn, source)).encode(), digest_size=16).digest()
    return Request(stream, id, digest, learn, source, top, logits, features=rows)


def ask(service: Service, given: int | np.ndarray, **others: Any) -> Any:
    """The reply to a request."""
    return service.submit(request(given, **others)).result()


def settle(service: Service) -> None:
    """Wait until all that follows from answered requests is applied: their groups, then the rows of their alarms."""
    for _ in range(2):
        service._pipeline.between(lambda: None)


def saved(service: Service) -> None:
    """Wait until the snapshots that are due are written."""
    service._saving.thread.submit(lambda: None).result()


def live_stream(service: Service, name: str = "default") -> LiveStream:
    """A stream as the service has it, which stays loaded while few others are used."""
    with service._streams.using(name) as stream:
        return stream


def state_of(service: Service, stream: str = "default") -> dict[str, torch.Tensor]:
    """A copy of what a stream has learned."""
    with service._streams.using(stream) as live, live.lock:
        return live.state.adapter.snapshot().tensors


def replayed(journal: Journal, method: str = "pta") -> dict[str, torch.Tensor]:
    """The state after all groups of the first stream, learned on one thread as the service does."""
    adapter = create_adapter(method, CLASSIFIER)
    with one_thread("replay") as alone:
        for group in journal.groups(1):
            alone.submit(learn_rows, adapter, group.features).result()
    return adapter.state()


def learn_rows(adapter: Adapter, features: np.ndarray, labels: np.ndarray | None = None) -> None:
    """Learn rows of a journal as a replay does."""
    state = StreamState(adapter, np.zeros(adapter.classifier.classes, np.int64), 0)
    state.learn_again(features, [b""] * len(features), 0, labels)


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two states are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def in_threads(count: int, work: Any) -> list[Any]:
    """What `work(number)` gives in so many threads at once."""
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
