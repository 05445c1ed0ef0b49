"""check_adapter passes what is right and names what is wrong: each law is broken once, on purpose."""

from contextlib import suppress
from functools import partial

import pytest
import torch

from pta import CLIP, PTA, TDA, Adapter, ZeroShotClassifier, check_adapter, create_adapter, list_adapters
from pta.core.parameters import number
from pta.engines.zero_shot import ZeroShot
from pta.errors import InvalidParameter, PtaError
from pta.methods import adapter_class, registry
from pta.methods.checks import BrokenLaw
from pta.methods.state import Bound
from pta.methods.toys import ToyStream

LAWS = check_adapter(CLIP)
WHOLE_BATCH = {"batch_equals_loop": "an answer depends on the whole batch"}
FIRST_STEPS = {"float32_agrees_with_float64": "the paper's first steps magnify the rounding of the anchors"}
EXCEPTIONS = {"adapt-transductive": WHOLE_BATCH, "transclip": WHOLE_BATCH, "stata": WHOLE_BATCH, "onzeta": FIRST_STEPS}
SLOW = {"adapt", "difftpt", "difftpt-augmented", "dpe", "gs-bias", "histpt", "tca", "tpt"}
WITH_PRIOR = [name for name in list_adapters() if "prior" in adapter_class(name).declared]
SETTINGS = [
    ("adapt", {"order": "predict-first", "similarity": "fresh", "count_current": "once", "slots": 2}),
    ("bca", {"centre_count": 3, "update": "likelihood", "order": "update-first"}),
    ("boostadapter", {"delta": 1, "share": 0.4, "order": "predict-first"}),
    *(("combined", {"base": base}) for base in ("adapt", "bca", "mta", "sca", "wpta")),
    *(("combined", {"base": base}) for base in ("dpe", "gs-bias", "tpt", "difftpt", "difftpt-augmented", "histpt")),
    ("dmn", {"first_views": 12, "keep": 0.3, "slots": 2}),
    ("dmn", {"version": "tta-vlm", "slots": 1}),
    ("dota", {"covariance": "shared", "order": "update-first"}),
    ("dota", {"initial_count": 0.0}),
    ("dpe", {"first_views": 12, "keep": 0.3, "answer": "views"}),
    ("ecalp", {"max_rows": None}),
    ("ecalp", {"max_rows": 9, "text_neighbours": 1}),
    ("etta", {"prompts": "one", "order": "predict-first"}),
    ("etta", {"first_views": 12, "keep": 0.3}),
    ("freetta", {"order": "update-first", "renormalise": True}),
    ("freetta", {"inverse": "shrunk"}),
    ("gs-bias", {"alpha": 50.0, "keep": 0.1}),
    ("oga", {"mean": "count", "renormalise": True, "order": "predict-first", "slots": 3}),
    ("onzeta", {"order": "update-first"}),
    ("pta", {"variant": "paper"}),
    ("pta", {"anchor": "fixed", "order": "predict-first"}),
    ("pta", {"weight": "raw", "fusion": "probabilities"}),
    ("pta", {"w": 0.0}),
    ("pta", {"h": 1000.0, "w": 0.3}),
    ("pta", {"min_probability": 0.0}),
    ("pta", {"renormalise": False}),
    ("pta", {"state_dtype": "float16"}),
    ("sca", {"order": "predict-first", "gamma": 1.0}),
    ("sca", {"cache": "product"}),
    ("stata", {"counts": "soft"}),
    ("tda", {"order": "predict-first", "min_entropy": 0.01, "negative_slots": 1}),
    ("tps", {"steps": 3, "selection": "first"}),
    ("tps", {"least_gradient": 1e-3}),
    ("wpta", {"depth": 2, "refresh_every": 10}),
    ("wpta", {"text_weight": 0.0, "min_probability": 0.01}),
    ("zero", {"temperature": "float16"}),
    *((name, {"prior": "local"}) for name in WITH_PRIOR),
    *(
        (name, {"offset": "centre", "centre_share": 0.8})
        for name in ("clip", "combined", "mta", "pta", "tda", "wpta", "zero")
    ),
    *((name, {"calibration": "matched"}) for name in ("clip", "combined", "mta", "tda")),
    ("pta", {"prior": "local", "calibration": "matched", "fusion": "probabilities"}),
    ("combined", {"prior": "local", "calibration": "matched", "base": "sca"}),
]


def held_by(name, **parameters):
    return check_adapter(partial(create_adapter, name, **parameters), except_for=EXCEPTIONS.get(name))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.extensive) if name in SLOW else name for name in list_adapters()]
)
def test_every_registered_method_obeys_every_law(name):
    assert set(held_by(name)) == set(LAWS) - set(EXCEPTIONS.get(name, {}))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [one if one[0] == "pta" else pytest.param(*one, marks=pytest.mark.extensive) for one in SETTINGS],
    ids=str,
)
def test_methods_obey_the_laws_with_other_parameters(name, parameters):
    held_by(name, **parameters)


def test_with_short_steps_onzeta_obeys_every_law():
    assert check_adapter(partial(create_adapter, "onzeta", proxy_step=0.05)) == LAWS


class LearnsFromBatches(PTA):
    """Learns a batch before it scores any of it."""

    def _step(self, samples):
        super()._step(samples)
        return self._predict(samples)


class LearnsWhilePredicting(PTA):
    def _predict(self, samples):
        return self._step(samples)


class ForgetsWhenSaved(PTA):
    def to_bytes(self, *, stream=None):
        self.knowledge *= 0.5
        return super().to_bytes(stream=stream)


class RemembersAfterReset(PTA):
    def reset(self, classes=None):
        kept = self.knowledge.clone()
        super().reset(classes)
        self.knowledge = kept


class DependsOnTheNumberOfClasses(PTA):
    def __init__(self, classifier, **given):
        super().__init__(classifier, **given)
        self.add_state("number", lambda classifier: torch.full((classifier.classes,), classifier.classes))


class WritesToTheCallersFeatures(PTA):
    def checked(self, samples):
        checked = super().checked(samples)
        checked.features.mul_(1.5)
        return checked


class Grows(PTA):
    def _step(self, samples):
        logits = super()._step(samples)
        self.touched = torch.cat([self.touched, torch.zeros(len(samples), dtype=torch.bool)])
        return logits


class GrowsOnce(CLIP):
    def _step(self, samples):
        self.add_state("kept", lambda _: torch.zeros(1000))
        return super()._step(samples)


class IsRandom(PTA):
    def _step(self, samples):
        return super()._step(samples) + torch.rand(1)


class LearnsBeforeChecking(PTA):
    def step(self, samples):
        self.knowledge += 1
        return super().step(samples)


class PicklesWithoutState(PTA):
    def __reduce__(self):
        return PicklesWithoutState, (self.classifier,)


class SharesItsState(PTA):
    def clone(self):
        twin = super().clone()
        twin.knowledge = self.knowledge
        return twin


class ClonesWithOtherParameters(PTA):
    def clone(self):
        twin = super().clone()
        twin.parameters = twin.parameters | {"h": 21.0}  # says so, and goes on as before
        return twin


class RoundsOutsideItsState(PTA):
    """What a copy does not have hardly matters, and changes the last digits."""

    rounding = 1.0

    def _step(self, samples):
        logits, self.rounding = super()._step(samples) * self.rounding, 1 + 1e-6
        return logits


class RestoresHalf(PTA):
    def restore(self, snapshot):
        position = self.seen.clone()
        super().restore(snapshot)
        self.seen.copy_(position)


class CountsPredictions(PTA):
    def predict(self, samples):
        self.seen += 1
        return super().predict(samples)


class LearnsInParts(TDA):
    def snapshot(self):
        return None

    def restore(self, snapshot):
        pass


class LeaksGradients(CLIP):
    def step(self, samples):
        return samples.features @ self.classifier.anchors.T


class GivesTheCallersSamplesGradients(CLIP):
    def step(self, samples):
        samples.features.sum().backward()
        return super().step(samples)


class TrustsEveryState(PTA):
    def restore(self, snapshot):
        self._put(snapshot.tensors)


class AnswersWhatIsNoBatch(PTA):
    def predict(self, samples):
        with suppress(PtaError):
            return super().predict(samples)


class TrustsWhatItHasGathered(PTA):
    bounded = False

    def __init__(self, classifier, **given):
        super().__init__(classifier, **given)
        anything = Bound("anything", lambda tensor: True)
        self.add_state("gathered", lambda own: own.anchors.new_zeros(0), within=anything, per_class=False)

    def _step(self, samples):
        self.gathered = torch.cat([self.gathered, samples.features[:, 0]])
        return super()._step(samples)


class IsCoarseInFloat32(PTA):
    def _step(self, samples):
        logits = super()._step(samples)
        return logits.half().to(logits.dtype) if logits.dtype == torch.float32 else logits


class DividesByZero(PTA):
    def _step(self, samples):
        return super()._step(samples).masked_fill_(samples.features[:, :1] < 0, float("nan"))


class PrefersTheLeastProbable(PTA):
    logit_factor = -0.5


class RanksByItsOwnProbabilities(PTA):
    def probabilities(self, logits, *, raw=False):
        return super().probabilities(logits, raw=raw).roll(1, dims=1)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (LearnsFromBatches, "batch_equals_loop"),
        (LearnsWhilePredicting, "predict_is_pure"),
        (ForgetsWhenSaved, "saving_changes_nothing"),
        (RemembersAfterReset, "reset_equals_new"),
        (DependsOnTheNumberOfClasses, "an_added_class_starts_at_its_text"),
        (WritesToTheCallersFeatures, "nothing_is_shared_with_the_caller"),
        (Grows, "memory_is_bounded"),
        (IsRandom, "the_same_stream_gives_the_same_answers"),
        (LearnsBeforeChecking, "a_refusal_changes_nothing"),
        (PicklesWithoutState, "pickles"),
        (SharesItsState, "a_clone_is_independent"),
        (ClonesWithOtherParameters, "a_clone_is_independent"),
        (RoundsOutsideItsState, "saving_changes_nothing"),
        (RoundsOutsideItsState, "pickles"),
        (RoundsOutsideItsState, "a_clone_is_independent"),
        (RestoresHalf, "restoring_rewinds"),
        (CountsPredictions, "position_counts_learned_samples"),
        (LearnsInParts, "a_failed_step_changes_nothing"),
        (LeaksGradients, "gradients_stay_inside"),
        (GivesTheCallersSamplesGradients, "gradients_stay_inside"),
        (AnswersWhatIsNoBatch, "a_refusal_changes_nothing"),
        (TrustsEveryState, "an_impossible_state_is_refused"),
        (TrustsWhatItHasGathered, "an_impossible_state_is_refused"),
        (IsCoarseInFloat32, "float32_agrees_with_float64"),
        (DividesByZero, "logits_are_finite"),
        (PrefersTheLeastProbable, "probabilities_keep_the_label"),
        (RanksByItsOwnProbabilities, "probabilities_keep_the_label"),
    ],
)
def test_each_law_catches_who_breaks_it(broken, law):
    others = {name: "not what this test is about" for name in LAWS if name != law}
    with pytest.raises(BrokenLaw):
        check_adapter(broken, except_for=others)


def test_state_that_appears_with_the_first_sample_is_bounded():
    check_adapter(
        GrowsOnce, except_for={name: "not what this is about" for name in LAWS if name != "memory_is_bounded"}
    )


def test_an_exception_needs_a_known_law_and_a_reason():
    with pytest.raises(InvalidParameter, match="did you mean 'predict_is_pure'"):
        check_adapter(CLIP, except_for={"predict_is_puer": "because"})
    with pytest.raises(InvalidParameter, match="say why"):
        check_adapter(CLIP, except_for={"predict_is_pure": " "})
    assert "predict_is_pure" not in check_adapter(CLIP, except_for={"predict_is_pure": "shown here"})


class RunningMean(Adapter):
    """Nothing but its loop: scores a sample against the mean of the samples of each class, and learns by its label."""

    name = "running-mean"
    weight: float = number(2.0, 0.0, 10.0, "weight of the means")

    def _declare_state(self):
        self.add_state("means", lambda classifier: torch.zeros_like(classifier.anchors))

    def _step(self, samples):
        (label,) = self.zero_shot(samples).labels
        self.means[label] += 0.1 * (samples.features[0] - self.means[label])
        return self._predict(samples)

    def _predict(self, samples):
        return self.zero_shot(samples).logits + self.weight * samples.features @ self.means.T


def test_a_method_that_has_nothing_but_its_loop_is_complete(monkeypatch):
    monkeypatch.setitem(registry._registered, RunningMean.name, RunningMean)
    assert check_adapter(RunningMean) == LAWS
    classifier = ZeroShotClassifier(torch.eye(2), ["cat", "dog"], scale=1.0)
    logits = RunningMean(classifier).step([[1.0, 0.0], [0.6, 0.8]])
    torch.testing.assert_close(logits, torch.tensor([[1.2, 0.0], [0.72, 1.0]]))


OWN = {"bca", "dpe", "difftpt", "difftpt-augmented", "etta", "histpt", "tpt"}  # which score class features of their own


@pytest.mark.parametrize("name", sorted(set(list_adapters()) - OWN))
def test_every_method_takes_zero_shot_logits_from_one_place(name, monkeypatch):
    """So that a stage can stand in front of it: logits that are turned upside down change what every method says."""
    stream = ToyStream.make(partial(create_adapter, name), 1)
    plain, turned = (stream.adapter() for _ in range(2))
    for one in (turned, getattr(turned, "other", turned)):
        monkeypatch.setattr(one, "zero_shot", lambda samples: UpsideDown(stream.classifier, samples))
    answers = [(one.step(stream.samples), one.predict(stream.samples)) for one in (plain, turned)]
    for was, now in zip(*answers, strict=True):
        assert (was - now).abs().max() > 1


class UpsideDown(ZeroShot):
    logits = property(lambda self: -super().logits)
    exact_logits = property(lambda self: -super().exact_logits)
    view_logits = property(lambda self: -super().view_logits)
