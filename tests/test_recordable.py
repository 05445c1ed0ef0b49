"""A step that can be recorded: it decides nothing on the host, and its state stays where it is in memory.

Fake tensors have shapes and no numbers: whoever asks one for its values, or for a shape that depends on them, fails.
"""

from typing import Any, get_args

import pytest
import torch
from streams import clip_like_stream, with_views
from torch._subclasses.fake_tensor import FakeTensorMode

from pta.adapters.adapter import Adapter, adapter_class, create_adapter, list_adapters, parameters_of
from pta.engines.rule import Order
from pta.samples import Samples

CLASSES, DIM, SAMPLES, VIEWS = 7, 8, 5, 12
RECORDABLE = [name for name in list_adapters() if adapter_class(name).recordable is True]
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in RECORDABLE),
    *((name, {"order": order}) for name in RECORDABLE if "order" in parameters_of(name) for order in get_args(Order)),
    ("adapt", {"count_current": "once", "similarity": "fresh"}),
    ("bca", {"update": "likelihood"}),
    ("boostadapter", {"negatives": "most-confident", "delta": 2}),
    ("boostadapter", {"share": 0.0}),
    ("dota", {"covariance": "shared", "growth": "samples"}),
    ("dota", {"scoring": "float16"}),
    ("freetta", {"covariance": "printed", "inverse": "shrunk", "scaled_text": False, "renormalise": True}),
    ("oga", {"slots": 2, "mean": "count", "renormalise": True}),
    ("sca", {"threshold": "fixed", "trust": "less-sure", "cache": "product"}),
    ("tda", {"negative_slots": 0}),
    ("zero", {"temperature": "float16"}),
]


def fake_adapter(name: str, parameters: dict[str, Any], mode: FakeTensorMode) -> Adapter:
    stream = clip_like_stream(0, classes=CLASSES, dim=DIM, count=SAMPLES).to(torch.float32)
    adapter = create_adapter(name, stream.classifier, source=with_views(stream, VIEWS), **parameters)
    object.__setattr__(adapter.classifier, "anchors", mode.from_tensor(adapter.classifier.anchors))
    for piece, tensor in adapter.state().items():
        setattr(adapter, piece, mode.from_tensor(tensor))
    return adapter


@pytest.mark.parametrize("batch", [1, SAMPLES])
@pytest.mark.parametrize(("name", "parameters"), SETTINGS, ids=str)
def test_step_reads_no_number_and_keeps_its_tensors(name: str, parameters: dict[str, Any], batch: int) -> None:
    mode = FakeTensorMode()
    adapter = fake_adapter(name, parameters, mode)
    before = adapter.state()
    with mode, torch.no_grad():
        views = torch.empty(batch, VIEWS, DIM) if "views" in adapter.needs else None
        logits = adapter._step(Samples._trusted(torch.empty(batch, DIM), views))
    assert logits.shape == (batch, CLASSES)
    assert all(tensor is before[piece] for piece, tensor in adapter.state().items())


def test_methods_that_learn_by_fixed_steps_are_recordable() -> None:
    learning = {"adapt", "bca", "boostadapter", "dota", "freetta", "oga", "onzeta", "sca", "tda"}
    assert {"clip", "mta", "zero", *learning} <= set(RECORDABLE)
