"""check_adapter passes what is right and names what is wrong: each law is broken once, on purpose."""

from functools import partial

import pytest
import torch

from pta import CLIP, PTA, check_adapter
from pta.adapters.checks import BrokenLaw
from pta.errors import InvalidParameter

LAWS = check_adapter(CLIP)


@pytest.mark.parametrize(
    "factory",
    [
        CLIP,
        PTA,
        partial(PTA, variant="paper"),
        partial(PTA, anchor="fixed", order="predict-first"),
        partial(PTA, weight="raw", fusion="probabilities"),
        partial(PTA, w=0.0),
        partial(PTA, h=1000.0, w=0.3),
        partial(PTA, min_probability=0.0),
        partial(PTA, renormalise=False),
        partial(PTA, state_dtype="float16"),
    ],
    ids=str,
)
def test_the_methods_obey_every_law(factory):
    assert check_adapter(factory) == LAWS


class LearnsFromBatches(PTA):
    """Learns a batch before it scores any of it."""

    def _step(self, samples):
        super()._step(samples)
        return self._predict(samples)


class LearnsWhilePredicting(PTA):
    def _predict(self, samples):
        return self._step(samples)


class ForgetsWhenSaved(PTA):
    def save(self, path):
        self.knowledge *= 0.5
        super().save(path)


class RemembersAfterReset(PTA):
    def reset(self, classes=None):
        kept = self.knowledge.clone()
        super().reset(classes)
        self.knowledge = kept


class WritesToTheCallersFeatures(PTA):
    def _checked(self, samples):
        checked = super()._checked(samples)
        checked.features.mul_(1.5)
        return checked


class Grows(PTA):
    def _step(self, samples):
        logits = super()._step(samples)
        self.seen = torch.cat([self.seen.reshape(-1), torch.zeros(len(samples), dtype=torch.int64)])
        return logits


class IsRandom(PTA):
    def _step(self, samples):
        return super()._step(samples) + 1e-4 * torch.rand(1)


class LearnsBeforeChecking(PTA):
    def step(self, samples):
        self.seen += 1
        return super().step(samples)


class IsCoarseInFloat32(PTA):
    def _step(self, samples):
        logits = super()._step(samples)
        return logits.half().to(logits.dtype) if logits.dtype == torch.float32 else logits


class DividesByZero(PTA):
    def _step(self, samples):
        return super()._step(samples).masked_fill_(samples.features[:, :1] < 0, float("nan"))


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (LearnsFromBatches, "batch_equals_loop"),
        (LearnsWhilePredicting, "predict_is_pure"),
        (ForgetsWhenSaved, "saving_changes_nothing"),
        (RemembersAfterReset, "reset_equals_new"),
        (WritesToTheCallersFeatures, "nothing_is_shared_with_the_caller"),
        (Grows, "memory_is_bounded"),
        (IsRandom, "the_same_stream_gives_the_same_answers"),
        (LearnsBeforeChecking, "a_bad_batch_changes_no_state"),
        (IsCoarseInFloat32, "float32_agrees_with_float64"),
        (DividesByZero, "logits_are_finite"),
    ],
)
def test_each_law_catches_who_breaks_it(broken, law):
    others = {name: "not what this test is about" for name in LAWS if name != law}
    with pytest.raises(BrokenLaw):
        check_adapter(broken, except_for=others)


def test_an_exception_needs_a_known_law_and_a_reason():
    with pytest.raises(InvalidParameter, match="did you mean 'predict_is_pure'"):
        check_adapter(CLIP, except_for={"predict_is_puer": "because"})
    with pytest.raises(InvalidParameter, match="say why"):
        check_adapter(CLIP, except_for={"predict_is_pure": " "})
    assert "predict_is_pure" not in check_adapter(CLIP, except_for={"predict_is_pure": "shown here"})
