"""Kernels that are launched ahead read nothing before they wait that the operation before them writes."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream

pytest.importorskip("triton")

from launch_order import LaunchOrder
from random_clip import random_state

from pta.engines.gpu import triton_prior
from pta.engines.gpu.triton_few_tokens import class_tokens_of_few
from pta.methods import create_adapter
from pta.models.clip.encoder import ClipEncoder

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs no interpreter")


@pytest.fixture
def with_kernels(monkeypatch):
    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: True)
    for module in ("layer", "within_class"):
        monkeypatch.setattr(f"pta.engines.whitened.{module}.is_host_readable", lambda tensor: False)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"depth": 2}, {"prior": "none", "gate": "none", "calibration": "fixed"}, {"gate": "none"}],
    ids=str,
)
@pytest.mark.parametrize("by_columns", [False, True])
def test_the_kernels_of_wpta(with_kernels, parameters, by_columns):
    stream = clip_like_stream(3, classes=9, dim=12, count=20)
    features = stream.features.T.contiguous().T if by_columns else stream.features
    labels = np.where(np.arange(20) % 3 == 1, 2, -1)
    with LaunchOrder() as order:
        adapter = create_adapter("wpta", stream.classifier, **parameters)
        for piece in (slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 9)):
            adapter.step(features[piece])
        adapter.step(features[9:12], labels[9:12])
        adapter.reset(classes=[2])
        for piece in (slice(12, 13), slice(13, 14), slice(14, 20)):
            adapter.step(features[piece])
        adapter.predict(features[:1])
    assert order.faults == set()
    assert {"_score_exactly", "_turn", "_learn"} <= order.ahead


def test_a_single_sample_behind_a_batch_of_as_many_as_kernels_take_at_once(with_kernels, monkeypatch):
    monkeypatch.setattr(triton_prior, "MOST_SAMPLES", 8)
    stream = clip_like_stream(3, classes=9, dim=12, count=9)
    with LaunchOrder() as order:
        create_adapter("adapt", stream.classifier, gate="none", prior="local").step(stream.features)
    assert order.faults == set()
    assert "_learn_one" in order.ahead


def test_the_kernels_of_few_tokens():
    blocks = ClipEncoder(random_state("ViT"), quick_gelu=True).visual.transformer.half()
    x = torch.randn(1, 17, 128, generator=torch.Generator().manual_seed(0)).half()
    with LaunchOrder() as order:
        class_tokens_of_few(x, list(blocks.parameters()), blocks._heads, True)
    assert order.faults == set()
    assert order.ahead == {"_product", "_attended", "_add_and_normalise"}
