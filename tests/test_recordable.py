"""A step that can be recorded: it reads no number on the host, keeps its tensors, and leaves nothing but its state."""

from typing import Any

import pytest
import torch
from cases import CACHES, ORDER, other_values
from streams import clip_like_stream, with_views

from pta.engines import local_prior
from pta.methods import Adapter, create_adapter
from pta.run.gpu.recordable import is_recordable

CLASSES, DIM, SAMPLES, VIEWS = 7, 8, 2, 12
LEARNING = [
    "adapt",
    "bca",
    "boostadapter",
    "dota",
    "dpe",
    "freetta",
    "oga",
    "onzeta",
    "point-cache",
    "sca",
    "tda",
    "wpta",
]
RECORDABLE = ["clip", "gs-bias", "mta", "tps", "zero", *LEARNING]
SETTINGS = [
    *(
        (name, {parameter: value})
        for name, parameters in other_values()
        for parameter, value in parameters.items()
        if name in RECORDABLE
        and (not isinstance(value, float) or value == 0.0)  # other numbers change no operation
        and (name not in ("boostadapter", "point-cache") or parameter not in CACHES)  # which are TDA's
    ),
    ("dota", {"scoring": "float16"}),
    ("boostadapter", {"share": 0.0}),
    ("point-cache", {"prefill": True}),
    ("dpe", {"first_views": 12, "answer": "views"}),
    *(("etta", {"prompts": "one", "first_views": views, "order": order}) for views in (1, 12) for order in ORDER),
]


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of a fixed length do in every round what they do in the first two."""
    for length in ("methods.mta._ROUNDS", "methods.mta._STEPS", "engines.gaussian.gaussians._SQUARINGS"):
        monkeypatch.setattr(f"pta.{length}", 2)
    monkeypatch.setattr("pta.engines.gaussian.gaussians._SIGN_STEPS", 2)


def made(name: str, parameters: dict[str, Any]) -> Adapter:
    stream = clip_like_stream(0, classes=CLASSES, dim=DIM, count=SAMPLES).to(torch.float32)
    return create_adapter(name, stream.classifier, source=with_views(stream, VIEWS), **parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "samples"),
    [
        *((name, {}, SAMPLES) for name in RECORDABLE),
        *(pytest.param(name, {}, 1, marks=pytest.mark.extensive) for name in RECORDABLE),
        *(pytest.param(*one, SAMPLES, marks=pytest.mark.extensive) for one in SETTINGS),
    ],
    ids=str,
)
def test_methods_that_learn_by_fixed_steps_are_recordable(name: str, parameters: dict[str, Any], samples: int) -> None:
    assert is_recordable(made(name, parameters), samples)


@pytest.mark.parametrize("name", ["pta", "transclip", "stata"])
def test_methods_that_decide_on_the_host_are_not(name: str) -> None:
    assert not is_recordable(made(name, {}))


def test_asking_changes_nothing() -> None:
    adapter = made("onzeta", {})
    adapter.step(torch.ones(3, DIM))
    before = adapter.state()
    values = adapter.snapshot().tensors
    assert is_recordable(adapter)
    assert all(tensor is before[name] and torch.equal(tensor, values[name]) for name, tensor in adapter.state().items())


def test_asking_leaves_nothing_without_numbers_behind() -> None:
    local_prior._kept_block.cache_clear()
    assert is_recordable(made("adapt", {"prior": "local"}), SAMPLES)
    answers = made("adapt", {"prior": "local"}).step(torch.ones(SAMPLES, DIM))
    assert type(answers) is torch.Tensor


class Counting(Adapter):
    """Adds the mean of all features so far; subclasses do it in ways that a replay repeats, or does not."""

    name = "counting"
    max_batch = None

    def __init__(self, classifier, **given):
        super().__init__(classifier, **given)
        self.add_state("total", lambda c: c.anchors.new_zeros(c.dim), per_class=False)
        self.steps, self.ones, self.cache = 0, None, None

    def _step(self, samples):
        self.total.add_(samples.features.sum(dim=0))
        return self._predict(samples)

    def _predict(self, samples):
        return self.zero_shot(samples).logits + self.classifier.anchors @ self.total


class KeepsAConstant(Counting):
    def _predict(self, samples):
        if self.ones is None:
            self.ones = torch.ones_like(self.classifier.anchors)
        return super()._predict(samples) * self.ones.sum()


class KeepsWhatItRecomputes(Counting):
    def _predict(self, samples):
        self.cache = self.classifier.anchors @ self.total
        return self.zero_shot(samples).logits + self.cache


class CountsOnTheHost(Counting):
    def _step(self, samples):
        self.steps += 1
        return super()._step(samples) / self.steps


class ReadsANumber(Counting):
    def _step(self, samples):
        return super()._step(samples) if samples.features.sum() > 0 else self._predict(samples)


class ReadsANumberOfItsOwn(Counting):
    def _step(self, samples):
        copied = torch.zeros(1)
        copied[0] = samples.features.sum()
        return super()._step(samples) * copied.tolist()[0]


class RebindsItsState(Counting):
    def _step(self, samples):
        self.total = self.total + samples.features.sum(dim=0)
        return self._predict(samples)


class KeepsACache(Counting):
    def _step(self, samples):
        logits = super()._step(samples)
        self.cache = self.classifier.anchors @ self.total
        return logits

    def _predict(self, samples):
        if self.cache is None:
            return super()._predict(samples)
        return self.zero_shot(samples).logits + self.cache


class KeepsAnAnswer(Counting):
    def _predict(self, samples):
        if self.cache is None:
            self.cache = super()._predict(samples)
        return self.cache


class KeepsASample(Counting):
    def _step(self, samples):
        before, self.cache = self.cache, samples.features
        logits = super()._step(samples)
        return logits if before is None else logits + before.sum()


class GrowsAList(Counting):
    def __init__(self, classifier, **given):
        super().__init__(classifier, **given)
        self.kept = []

    def _step(self, samples):
        self.kept.append(samples.features)
        return super()._step(samples)


class CopiesToTheHost(Counting):
    def _step(self, samples):
        return super()._step(samples) + samples.features.to("meta").to(samples.features.device).sum()


@pytest.mark.parametrize("method", [Counting, *Counting.__subclasses__()])
def test_constants_and_what_is_recomputed_may_be_kept_and_nothing_else_that_a_replay_would_miss(method) -> None:
    may_be_recorded = method in (Counting, KeepsAConstant, KeepsWhatItRecomputes)
    assert is_recordable(method(made("clip", {}).classifier), SAMPLES) == may_be_recorded
