"""PTA, as its users meet it: the worked example, what its rule means, and what happens to wrong parameters."""

import re

import numpy as np
import pytest
import torch
from oracle import TOLERANCES, assert_agrees, oracle_pta
from streams import NO_OFFSET, PAPER, RELEASED, clip_like_stream, toy_stream

from pta import PTA, Samples, ZeroShotClassifier
from pta.errors import InvalidParameter, StateMismatch

DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
ONE_BY_ONE = pytest.mark.parametrize("size", [3, 2, 1], ids=["whole", "in two", "one by one"])
PRINTED = {"atol": 1e-5, "rtol": 0}  # the worked numbers have five or six decimals


def step_in_batches(adapter, features, size):
    return torch.cat([adapter.step(batch) for batch in features.split(size)])


def oracle_of(stream, features=None, **switches):
    features = stream.features if features is None else features
    return oracle_pta(stream.anchors, features, scale=stream.scale, **switches)


# -- the worked example ---------------------------------------------------------------------------------------------


@DTYPES
def test_worked_example_zero_shot(dtype):
    toy = toy_stream().to(dtype)
    z = toy.classifier.logits(toy.features)
    expected = [[7.72473, 7.59809, 2.09651], [7.21876, 7.86845, 2.88750], [2.03922, 1.16527, 9.80767]]
    np.testing.assert_allclose(z, expected, **PRINTED)
    s = [[0.530602, 0.467490, 0.001908], [0.341519, 0.653990, 0.004491], [0.000423, 0.000176, 0.999401]]
    np.testing.assert_allclose(z.softmax(dim=1), s, **PRINTED)


@DTYPES
def test_worked_example_of_the_released_rule_after_each_sample(dtype):
    toy = toy_stream().to(dtype)
    adapter = PTA(toy.classifier)

    first = adapter.step(toy.features[:1])
    P = [[0.018511, 0.018141, 0.003702], [0.016335, 0.016008, 0.003267], [0, 0, 0]]
    np.testing.assert_allclose(adapter.knowledge, P, **PRINTED)
    R = [[0.82587, 0.55361, 0.10705], [0.55098, 0.82803, 0.10381], toy.anchors[2].tolist()]
    np.testing.assert_allclose(adapter.anchored, R, **PRINTED)
    prototype_logits = first - toy.classifier.logits(toy.features[:1])
    np.testing.assert_allclose(prototype_logits, [[9.82648, 9.77986, 2.09651]], **PRINTED)
    assert adapter.touched.tolist() == [True, True, False]

    adapter.step(toy.features[1:2])
    np.testing.assert_allclose(adapter.anchored[0], [0.71571, 0.67981, 0.16003], **PRINTED)
    before_third = adapter.knowledge.clone()

    adapter.step(toy.features[2:])
    np.testing.assert_allclose(adapter.anchored[2], [0.16212, 0.09819, 0.98187], **PRINTED)
    assert torch.equal(adapter.knowledge[:2], before_third[:2])


@DTYPES
@ONE_BY_ONE
def test_worked_example_outputs_of_both_rules(dtype, size):
    toy = toy_stream().to(dtype)
    released, paper = (
        step_in_batches(PTA(toy.classifier, variant=variant), toy.features, size) for variant in ("released", "paper")
    )
    expected = [[17.55121, 17.37795, 4.19302], [17.17202, 17.85857, 5.77501], [5.73000, 4.97996, 19.80203]]
    np.testing.assert_allclose(released, expected, **PRINTED)
    expected = [[1.04213, 0.95572, 0.00215], [0.70407, 1.02039, 0.27554], [0.00227, 0.00228, 1.99545]]
    np.testing.assert_allclose(2 * paper.exp(), expected, **PRINTED)  # the equation's sum of two softmaxes


@DTYPES
def test_worked_example_without_a_mask_makes_every_prototype_like_an_image(dtype):
    toy = toy_stream().to(dtype)
    z = toy.classifier.logits(toy.features)
    paper = PTA(toy.classifier, variant="paper", fusion="logits").step(toy.features) - z
    released = PTA(toy.classifier).step(toy.features) - z
    assert paper[1, 2].item() == pytest.approx(9.690, abs=1e-3)
    assert released[1, 2].item() == pytest.approx(2.8875, abs=1e-4)


# -- what the rule means ----------------------------------------------------------------------------------------------


def test_knowledge_has_its_closed_form():
    """P_c = Σ_i (1−e^(−s_ic/h))·e^(−(A_c−A_ic)/h)·f_i over the samples i that touch c, with A the running sum of s."""
    stream = clip_like_stream(2, classes=10, dim=16, count=120)
    adapter = PTA(stream.classifier, h=20.0)
    adapter.step(stream.features)
    s = (stream.scale * stream.features @ stream.anchors.T).softmax(dim=1)
    s = s.where(s >= 0.1, 0.0)
    total = s.cumsum(dim=0)
    weights = (1 - (-s / 20).exp()) * (-(total[-1] - total) / 20).exp()
    torch.testing.assert_close(adapter.knowledge, weights.T @ stream.features, atol=1e-12, rtol=0)


@DTYPES
@pytest.mark.parametrize("order", ["update-first", "predict-first"])
def test_until_a_class_is_touched_the_output_is_twice_the_zero_shot_logits(dtype, order):
    stream = clip_like_stream(3, classes=12, dim=24, count=50, scale=1.0).to(dtype)
    outputs = PTA(stream.classifier, order=order).step(stream.features)  # at scale 1 no class reaches 0.1
    torch.testing.assert_close(outputs, 2 * stream.classifier.logits(stream.features))


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("switches", [{"w": 0.0}, {"weight": "raw"}, {"w": 0.0, "weight": "raw"}], ids=str)
def test_no_text_and_raw_weights_are_meaningful(switches, variant):
    """The paper's tables have these rows at chance; in exact arithmetic they are nothing of the kind."""
    stream = clip_like_stream(4, classes=20, dim=32, count=400)
    outputs = PTA(stream.classifier, variant=variant, **switches).step(stream.features)
    assert outputs.isfinite().all()
    predictions = outputs.argmax(dim=1)
    assert len(predictions.unique()) == 20
    assert (predictions == stream.labels).double().mean() > 0.5


@DTYPES
@pytest.mark.parametrize("anchor", ["recursive", "fixed"])
@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("w", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("size", [200, 1])
def test_untouched_classes_keep_exactly_their_text_anchor(dtype, anchor, renormalise, w, size):
    stream = clip_like_stream(5, classes=30, dim=24, count=200, present=0.2).to(dtype)
    adapter = PTA(stream.classifier, w=w, anchor=anchor, renormalise=renormalise)
    step_in_batches(adapter, stream.features, size)
    untouched = ~(stream.probabilities >= 0.1).any(dim=0)
    assert 0 < untouched.sum() < 30
    assert torch.equal(adapter.anchored[untouched], stream.anchors[untouched])
    assert not adapter.knowledge[untouched].any()
    assert torch.equal(adapter.touched, ~untouched)


@DTYPES
def test_means_over_views_keep_their_length(dtype):
    views = clip_like_stream(6, classes=10, dim=24, count=6 * 60, in_order=True).to(dtype)
    means = views.features.unflatten(0, (60, 6)).mean(dim=1)
    assert means.norm(dim=1).max() < 0.99
    outputs = PTA(views.classifier).step(Samples.of(means, normalise=False))
    expected, _, _ = oracle_of(views, means, **RELEASED)
    assert_agrees(outputs, expected, TOLERANCES[dtype])
    unit = PTA(views.classifier).step(Samples.of(means))
    assert (outputs - unit).abs().max() > 1


# -- half precision ---------------------------------------------------------------------------------------------------


def test_half_precision_state_is_near_the_oracle_and_no_nearer():
    stream = clip_like_stream(7, classes=20, dim=32, count=200).to(torch.float32)
    adapter = PTA(stream.classifier, state_dtype="float16")
    outputs = adapter.step(stream.features)
    expected, _, _ = oracle_of(stream, **RELEASED)
    assert adapter.knowledge.dtype == adapter.anchored.dtype == torch.float16
    assert_agrees(outputs, expected, 0.1)  # 100 × a few times 2⁻¹², the rounding of a number below one half
    assert np.abs(outputs.numpy() - expected).max() > TOLERANCES[torch.float32]


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_half_precision_state_differs_by_rounding_alone_in_a_batch_and_one_by_one(variant):
    stream = clip_like_stream(8, classes=20, dim=32, count=200).to(torch.float32)
    whole = PTA(stream.classifier, variant=variant, state_dtype="float16")
    single = PTA(stream.classifier, variant=variant, state_dtype="float16")
    whole.step(stream.features)
    step_in_batches(single, stream.features, 1)
    for name, tensor in whole.state().items():
        torch.testing.assert_close(tensor, single.state()[name], atol=2e-3, rtol=0, msg=name)


@pytest.mark.parametrize("state", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 50])
def test_state_of_another_precision_than_the_anchors_decides_the_precision_of_everything(state, size):
    stream = clip_like_stream(9, classes=10, dim=24, count=50)
    dtype, other = getattr(torch, state), torch.float32 if state == "float64" else torch.float64
    adapter = PTA(stream.to(other).classifier, state_dtype=state)
    outputs = step_in_batches(adapter, stream.to(other).features, size)
    assert (
        adapter.classifier.anchors.dtype == adapter.knowledge.dtype == adapter.anchored.dtype == outputs.dtype == dtype
    )
    expected, _, _ = oracle_of(stream.to(torch.float32), **RELEASED)
    assert_agrees(outputs, expected, TOLERANCES[torch.float32])


def test_half_precision_warns_where_it_rounds_the_update_away():
    with pytest.warns(UserWarning, match='in float16 lose small steps at h=1000 .* state_dtype="float32"'):
        PTA(toy_stream().classifier, h=1000.0, state_dtype="float16")


@pytest.mark.parametrize("parameters", [{"h": 20.0, "state_dtype": "float16"}, {"h": 1000.0}], ids=str)
def test_nothing_warns_where_precision_suffices(parameters, recwarn):
    PTA(toy_stream().classifier, **parameters)
    assert not recwarn.list


# -- parameters -------------------------------------------------------------------------------------------------------


PLAIN = {"prior": "none", "gate": "none", "calibration": "fixed", "label_weight": 1.0, **NO_OFFSET}


def test_the_released_rule_with_single_precision_state_is_the_default():
    default = PTA(toy_stream().to(torch.float32).classifier).parameters
    assert default == RELEASED | PLAIN | {"variant": "released", "state_dtype": "float32"}


@pytest.mark.parametrize(
    "switch",
    [
        {},
        {"min_probability": 0.0},
        {"min_probability": 0.1},
        {"anchor": "fixed"},
        {"fusion": "logits"},
        {"fusion": "probabilities"},
        {"order": "predict-first"},
        {"weight": "raw"},
        {"renormalise": True},
        {"renormalise": False},
    ],
    ids=str,
)
@pytest.mark.parametrize(("variant", "switches"), [("released", RELEASED), ("paper", PAPER)])
def test_a_variant_sets_the_documented_switches_but_for_given_ones(variant, switches, switch):
    parameters = PTA(toy_stream().classifier, variant=variant, **switch).parameters
    assert parameters == switches | switch | PLAIN | {"variant": variant, "state_dtype": "float64"}


@pytest.mark.parametrize(
    ("wrong", "bounds"),
    [
        ({"h": 0}, "h must be a number from 0.001 to 1e+09, got 0"),
        ({"w": 1.01}, "w must be a number from 0 to 1, got 1.01"),
        ({"min_probability": -0.1}, "min_probability must be a number from 0 to 1, got -0.1"),
        ({"variant": "relased"}, "variant='relased' is not a choice; did you mean 'released'"),
        ({"state_dtype": "fp16"}, "state_dtype='fp16' is not a choice; did you mean 'float16'"),
        ({"state_dtype": 1}, "state_dtype=1 is not a choice"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_can(wrong, bounds):
    with pytest.raises(InvalidParameter, match=re.escape(bounds)):
        PTA(toy_stream().classifier, **wrong)


@pytest.mark.parametrize("fusion", ["logits", "probabilities"])
def test_a_bias_is_added_to_both_logits_and_changes_no_answer(fusion):
    stream = clip_like_stream(4, classes=6, dim=16, count=30, scale=30.0)
    biased = ZeroShotClassifier(stream.anchors, list("abcdef"), scale=30.0, bias=-4.0)
    expected, found = (PTA(one, fusion=fusion).step(stream.features) for one in (stream.classifier, biased))
    torch.testing.assert_close(found, expected - 8.0 if fusion == "logits" else expected)


def test_a_batch_longer_than_what_is_done_at_once_is_still_one_stream():
    stream = clip_like_stream(6, classes=8, dim=16, count=2500).to(torch.float32)
    classifier = stream.classifier
    whole, cut = PTA(classifier), PTA(classifier)
    logits = torch.cat([cut.step(part) for part in stream.features.split(700)])
    assert_agrees(whole.step(stream.features), logits.double().numpy(), TOLERANCES[torch.float32])
    torch.testing.assert_close(whole.knowledge, cut.knowledge)
    summarised = PTA(classifier)
    summarised.apply(summarised.summarise(stream.features))
    assert summarised.seen == 2500
    torch.testing.assert_close(summarised.knowledge, whole.knowledge)


def test_a_state_in_which_an_untouched_class_has_another_vector_than_its_anchor_is_refused():
    toy = toy_stream()
    adapter = PTA(toy.classifier)
    adapter.step(toy.features[:1])  # which does not touch the third class
    snapshot = adapter.snapshot()
    snapshot.tensors["anchored"][2] = snapshot.tensors["anchored"][0]
    with pytest.raises(StateMismatch, match="another anchored one than their text"):
        adapter.restore(snapshot)
