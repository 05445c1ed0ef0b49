"""The GPU's kernels, held to the oracle: on a GPU where there is one, otherwise in Triton's interpreter."""

import os
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import TOLERANCES, assert_agrees, oracle_pta
from streams import (
    PAPER_RULE,
    RELEASED_RULE,
    Stream,
    clip_like_stream,
    cuts,
    rules,
    samples_on_either_side_of,
    with_edges,
)

pytest.importorskip("triton")

import sanitizer
from kernel_margins import InMargins

from pta.core.classifier import ZeroShotClassifier
from pta.engines.gpu import triton as triton_engine
from pta.engines.gpu import triton_metric, triton_prior, triton_stages, triton_touches, triton_whitened
from pta.engines.gpu.triton import advance_on_gpu, works_on
from pta.engines.gpu.triton_touches import find_touches_on_gpu, table_of
from pta.engines.local_prior import LocalPrior
from pta.engines.pta.rule import Prototypes
from pta.methods import create_adapter
from pta.reference.local_prior import local_prior_loop
from pta.run.gpu.recordable import is_recordable

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = TOLERANCES[torch.float32]
SMALL_STREAMS = st.builds(
    clip_like_stream,
    st.integers(0, 2**32 - 1),
    classes=st.integers(2, 6),
    dim=st.integers(4, 40),
    count=st.integers(1, 10),
    spread=st.sampled_from([0.4, 0.15]),
    in_order=st.booleans(),
    duplicates=st.sampled_from([0.0, 0.3]),
    scale=st.sampled_from([100.0, 30.0, 10.0]),
)


@pytest.fixture(scope="module", autouse=True)
def margins():
    """Every tensor that a kernel reads or writes has margins, which it must neither read nor write."""
    with pytest.MonkeyPatch.context() as patch:
        for module, kernels in (
            (triton_engine, ("step", "follow", "score_rested")),
            (triton_touches, ("_sum_blocks", "_find_touches", "_score_exactly")),
            (triton_prior, ("_softmax", "_follow", "_shift", "_learn_one")),
            (triton_whitened, ("_turn", "_learn", "_put_row", "_follow")),
            (triton_metric, ("_put_apart", "_put_relative", "_add_product")),
            (triton_stages, ("_contribute", "_temper", "_answer", "_open")),
        ):
            for kernel in kernels:
                patch.setattr(module, kernel, InMargins(getattr(module, kernel)))
        yield


def run(stream, rule, pieces, probabilities=None, *, bias=0.0, fused=True, precision=torch.float32):
    """What the kernels score the pieces of a stream, and the state after the last."""
    classifier = stream.classifier.to(device=torch.device(DEVICE))
    object.__setattr__(classifier, "bias", bias)
    prototypes = Prototypes.fresh(classifier.anchors)
    scores = []
    for piece in pieces:
        features = stream.features[piece].to(DEVICE)
        z = classifier.logits(features)
        table = None if probabilities is None else table_of(probabilities[piece].to(DEVICE), rule)
        given = features.to(precision), z, rule
        scores.append(advance_on_gpu(prototypes, classifier, *given, onto=z if fused else None, table=table))
    return torch.cat(scores).cpu(), prototypes


def assert_like_the_oracle(stream, rule, pieces, probabilities=None, tolerance=TOLERANCE):
    scores, prototypes = run(stream, rule, pieces, probabilities)
    expected, P, R = oracle_pta(
        *(stream.anchors, stream.features),
        scale=stream.scale,
        fusion="logits",
        probabilities=None if probabilities is None else probabilities.numpy(),
        **asdict(rule),
    )
    assert_agrees(scores, expected, tolerance)
    np.testing.assert_allclose(prototypes.knowledge.cpu(), P, atol=tolerance / 100, rtol=0)
    np.testing.assert_allclose(prototypes.anchored.cpu(), R, atol=tolerance / 100, rtol=0)


def one_by_one(stream):
    return [slice(t, t + 1) for t in range(len(stream.features))]


@given(st.data())
@settings(max_examples=repeated(20))
def test_kernels_agree_with_the_oracle_however_the_stream_is_cut(data):
    stream, rule = data.draw(SMALL_STREAMS).to(torch.float32), data.draw(rules())
    assert_like_the_oracle(stream, rule, data.draw(cuts(len(stream.features))), stream.probabilities)


@given(stream=SMALL_STREAMS, rule=rules(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_kernels_agree_with_the_oracle_at_the_edge_of_the_mask(stream, rule, seed):
    stream = stream.to(torch.float32)
    assert_like_the_oracle(stream, rule, [slice(None)], with_edges(stream.probabilities, rule, seed))


@given(stream=SMALL_STREAMS, rule=rules())
@settings(max_examples=8)
def test_one_sample_in_one_kernel_gives_what_the_batch_gives(stream, rule):
    stream = stream.to(torch.float32)
    whole, after_whole = run(stream, rule, [slice(None)])
    alone, after_each = run(stream, rule, one_by_one(stream))
    torch.testing.assert_close(alone, whole, atol=TOLERANCE, rtol=0)
    for name in ("knowledge", "anchored", "length", "touched"):
        torch.testing.assert_close(getattr(after_each, name), getattr(after_whole, name), atol=2e-5, rtol=1e-5)


FIXED_RULE = replace(RELEASED_RULE, anchor="fixed", order="predict-first", weight="raw")


@pytest.mark.parametrize(
    ("rule", "dim"), [(RELEASED_RULE, 24), (PAPER_RULE, 130), (FIXED_RULE, 130)], ids=["released", "paper", "fixed"]
)
def test_kernels_agree_with_the_oracle_on_a_longer_stream(rule, dim):
    stream = clip_like_stream(1, classes=5, dim=dim, count=24).to(torch.float32)
    assert_like_the_oracle(stream, rule, [slice(0, 1), slice(1, 17), slice(17, 20), slice(20, 24)])


@pytest.mark.parametrize("switches", [{"w": 0.0}, {"w": 0.01, "renormalise": False}], ids=str)
@pytest.mark.parametrize("probability", [1e-15, 1e-9])
def test_a_class_that_was_hardly_touched_is_followed_like_any_other(switches, probability):
    stream = clip_like_stream(5, classes=3, dim=16, count=60).to(torch.float32)
    probabilities = torch.zeros(60, 3)
    probabilities[:, 0], probabilities[0, 1], probabilities[30, 2] = 1.0, probability, probability
    rule = replace(RELEASED_RULE, min_probability=0.0, h=1000.0, **switches)
    assert_like_the_oracle(stream, rule, [slice(0, 40), slice(40, 60)], probabilities)


def test_an_anchor_that_faded_to_nothing_keeps_its_direction_until_it_is_touched():
    stream = clip_like_stream(3, classes=3, dim=8, count=99).to(torch.float32)
    probabilities = torch.zeros(99, 3)
    probabilities[:, 0] = 1.0
    probabilities[-1, 1] = 1.0
    _, state = run(stream, replace(PAPER_RULE, w=1e-4), [slice(0, 50), slice(50, 99)], probabilities)
    torch.testing.assert_close(state.anchored[1].cpu(), stream.features[-1], atol=1e-6, rtol=0)
    torch.testing.assert_close(state.anchored[2].cpu(), stream.anchors[2], atol=1e-6, rtol=0)


def test_a_class_comes_to_rest_and_then_costs_nothing():
    stream = clip_like_stream(6, classes=3, dim=16, count=40).to(torch.float32)
    probabilities = torch.zeros(40, 3)
    probabilities[:4, 1] = 0.9
    for rule in (RELEASED_RULE, PAPER_RULE):
        _, at_once = run(stream, rule, [slice(0, 4)], probabilities)
        assert at_once.resting.tolist() == [True, False, True]
        _, later = run(stream, rule, [slice(0, 4), slice(4, 40)], probabilities)
        assert later.resting.all()
        assert later.touched.tolist() == [False, True, False]


def test_scores_can_stand_alone_and_have_the_bias():
    stream = clip_like_stream(7, classes=3, dim=12, count=6).to(torch.float32)
    touches = torch.zeros(6, 3)
    touches[[0, 3, 4], [1, 1, 2]] = 0.8  # so that classes rest in between and at the end
    z = stream.classifier.logits(stream.features)
    for probabilities, pieces in ((touches, [slice(None)]), (None, one_by_one(stream)), (None, [slice(None)])):
        fused, _ = run(stream, RELEASED_RULE, pieces, probabilities)
        bare, _ = run(stream, RELEASED_RULE, pieces, probabilities, fused=False)
        biased, _ = run(stream, RELEASED_RULE, pieces, probabilities, fused=False, bias=-10.0)
        both, _ = run(stream, RELEASED_RULE, pieces, probabilities, bias=-10.0)
        torch.testing.assert_close(bare + z, fused, atol=1e-4, rtol=0)
        torch.testing.assert_close(biased, bare - 10.0, atol=1e-4, rtol=0)
        torch.testing.assert_close(both, fused - 20.0, atol=1e-4, rtol=0)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16], ids=str)
def test_features_may_be_in_half_precision(precision):
    stream = clip_like_stream(8, classes=4, dim=12, count=6)
    stream = replace(stream, features=stream.features.to(precision)).to(torch.float32)
    for pieces in ([slice(None)], one_by_one(stream)):
        wide, _ = run(stream, RELEASED_RULE, pieces)
        half, _ = run(stream, RELEASED_RULE, pieces, precision=precision)
        torch.testing.assert_close(half, wide, atol=1e-4, rtol=0)


@pytest.mark.parametrize("given", [False, True])
def test_a_batch_that_is_too_large_for_the_table_is_cut(monkeypatch, given):
    stream = clip_like_stream(9, classes=4, dim=12, count=20).to(torch.float32)
    probabilities = stream.probabilities if given else None
    whole, _ = run(stream, RELEASED_RULE, [slice(None)], probabilities)
    monkeypatch.setattr("pta.engines.gpu.triton._NUMBERS_AT_ONCE", 28)
    cut, _ = run(stream, RELEASED_RULE, [slice(None)], probabilities)
    torch.testing.assert_close(cut, whole, atol=1e-4, rtol=0)


def test_programs_share_the_classes(monkeypatch):
    stream = clip_like_stream(11, classes=7, dim=12, count=14).to(torch.float32)
    monkeypatch.setattr("pta.engines.gpu.triton._PROGRAMS", 2)
    assert_like_the_oracle(stream, RELEASED_RULE, [slice(0, 6), slice(6, 14)])


@pytest.mark.parametrize("w", [0.9, 0.99999, 1.0])
def test_anchors_may_hardly_move(w):
    stream = clip_like_stream(12, classes=3, dim=12, count=30).to(torch.float32)
    rule = replace(RELEASED_RULE, w=w, h=1.0)
    assert_like_the_oracle(stream, rule, [slice(0, 1), slice(1, 30)], tolerance=2e-4)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of numpy
def test_a_mixture_of_exactly_nothing_keeps_its_direction():
    anchors = torch.eye(4, dtype=torch.float64)[:2]
    features = torch.stack([-anchors[0], anchors[1], anchors[0]])
    stream = Stream(anchors, features, torch.zeros(3, dtype=torch.int64), 10.0).to(torch.float32)
    probabilities = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    for anchor in ("recursive", "fixed"):
        rule = replace(RELEASED_RULE, w=0.5, weight="raw", anchor=anchor)
        assert_like_the_oracle(stream, rule, [slice(None)], probabilities)


def test_logits_may_lie_in_memory_as_they_like_and_in_any_precision():
    stream = clip_like_stream(13, classes=5, dim=12, count=9).to(torch.float32)
    classifier, features = stream.classifier.to(device=torch.device(DEVICE)), stream.features.to(DEVICE)
    z = classifier.logits(features)
    scores = []
    for logits in (z, z.T.contiguous().T, z.double()):
        rows = features if logits is z else features.T.contiguous().T
        state = Prototypes.fresh(classifier.anchors), classifier, rows, logits, RELEASED_RULE
        scores.append(advance_on_gpu(*state, onto=logits))
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_sample_of_no_numbers_teaches_nothing():
    stream = clip_like_stream(14, classes=4, dim=12, count=8).to(torch.float32)
    spoilt = replace(stream, features=stream.features.clone())
    spoilt.features[3] = float("nan")
    for pieces in (one_by_one(stream), [slice(None)]):
        scores, state = run(spoilt, RELEASED_RULE, pieces)
        assert all(torch.isfinite(tensor).all() for tensor in (state.knowledge, state.anchored, state.length))
        assert torch.isfinite(scores[[0, 1, 2, 4, 5, 6, 7]]).all()


def test_kernels_that_cannot_run_are_done_without(monkeypatch):
    assert works_on(torch.device(DEVICE))

    def broken(*args, **options):
        raise RuntimeError("Failed to find C compiler.\nPlease specify one")

    monkeypatch.setattr("pta.engines.gpu.triton.advance_on_gpu", broken)
    with pytest.warns(UserWarning, match=r"does without its GPU kernels: Failed to find C compiler\.$"):
        assert not works_on(torch.device(DEVICE))


@pytest.fixture(scope="module")
def near_the_threshold():
    """Samples on either side of the threshold for classes in different blocks of four.

    The last class repeats class 6, so that some samples have two classes at the threshold.
    """
    stream = replace(clip_like_stream(4, classes=13, dim=48, count=1), scale=100.0).to(torch.float32)
    stream.anchors[12] = stream.anchors[6]
    near = [samples_on_either_side_of(float(np.float32(0.1)), stream.anchors.roll(-c, 0), each=2) for c in (1, 6, 9)]
    return replace(stream, features=torch.cat(near))


def touches_in_float64(stream):
    return (100 * stream.features.double() @ stream.anchors.double().T).softmax(dim=1).float() >= np.float32(0.1)


@pytest.mark.parametrize(("bias", "at_once"), [(0.0, 1024), (0.0, 4), (-2000.0, 4)])
def test_touches_next_to_the_threshold_are_decided_as_float64_would(monkeypatch, near_the_threshold, bias, at_once):
    """In one block of classes or several, of which the last is not full."""
    monkeypatch.setattr("pta.engines.gpu.triton_touches._CLASSES_AT_ONCE", at_once)
    classifier = near_the_threshold.classifier.to(device=torch.device(DEVICE))
    object.__setattr__(classifier, "bias", bias)
    features = near_the_threshold.features.to(DEVICE)
    table = find_touches_on_gpu(classifier, features, classifier.logits(features), RELEASED_RULE)
    assert torch.equal(table.T.cpu() > 0, touches_in_float64(near_the_threshold))


@pytest.mark.parametrize("bias", [0.0, -2000.0])
def test_a_single_sample_next_to_the_threshold_is_decided_as_float64_would(near_the_threshold, bias):
    exact = touches_in_float64(near_the_threshold)
    for t, touches in enumerate(exact):
        stream = replace(near_the_threshold, features=near_the_threshold.features[t : t + 1])
        _, after = run(stream, RELEASED_RULE, [slice(None)], bias=bias)
        assert torch.equal(after.touched.cpu(), touches)
    assert exact.sum(dim=0)[[1, 6, 9, 12]].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("classes", [5, 40])
def test_probabilities_of_several_blocks_of_classes_are_those_of_one(monkeypatch, classes):
    stream = clip_like_stream(2, classes=classes, dim=16, count=5).to(torch.float32)
    classifier, features = stream.classifier.to(device=torch.device(DEVICE)), stream.features.to(DEVICE)
    inputs = classifier, features, classifier.logits(features), RELEASED_RULE
    whole = find_touches_on_gpu(*inputs)
    monkeypatch.setattr("pta.engines.gpu.triton_touches._CLASSES_AT_ONCE", 4)
    torch.testing.assert_close(find_touches_on_gpu(*inputs), whole)
    assert (whole > 0).any()


# One generation of GPUs (compute capability 9.0) unless said otherwise, as .ci/run does.
@pytest.mark.extensive
@pytest.mark.parametrize("capability", os.environ.get("PTA_TEST_GPUS", "90").split())
def test_kernels_compile_for_real_gpus(capability, tmp_path):
    """The interpreter takes what the compiler refuses: variables that change their type, for example."""
    script = Path(__file__).parent / "triton_for_gpus.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(script), capability]
    done = subprocess.run(
        command, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("compiled"), done.stderr


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("pta", {}),
        *(
            pytest.param(*one, marks=pytest.mark.extensive)
            for one in [
                ("combined", {}),
                ("pta", {"variant": "paper"}),
                *product(["pta", "combined"], [{"h": 5.0, "w": 0.3, "min_probability": 0.02}]),
                *product(["pta", "combined"], [{"prior": "local", "calibration": "matched"}]),
            ]
        ),
    ],
    ids=str,
)
def test_the_adapter_answers_through_the_kernels_as_without_them(monkeypatch, method, parameters):
    stream = clip_like_stream(3, classes=4, dim=16, count=16, in_order=True).to(torch.float32)
    pieces = [slice(0, 1), slice(1, 4), slice(4, 12), slice(12, 16)]
    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: False)
    plain = create_adapter(method, stream.classifier, **parameters)
    expected = torch.cat([plain.step(stream.features[piece]) for piece in pieces])

    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: True)
    through_kernels = create_adapter(method, stream.classifier, **parameters).to(DEVICE)
    assert all(is_recordable(through_kernels, batch) for batch in (1, 16))
    given = torch.cat([through_kernels.step(stream.features[piece]) for piece in pieces]).cpu()
    torch.testing.assert_close(given, expected, atol=TOLERANCE, rtol=0)
    assert through_kernels.position == plain.position == 16
    torch.testing.assert_close(through_kernels.anchored.cpu(), plain.anchored, atol=2e-5, rtol=0)


@given(classes=st.sampled_from([2, 33]), parts=cuts(20), in_order=st.booleans())
@settings(max_examples=4)
def test_kernels_give_the_prior_of_the_loop_however_the_stream_is_cut(classes, parts, in_order):
    stream = clip_like_stream(4, classes=classes, dim=16, count=20, in_order=in_order)
    z = stream.scale * stream.features @ stream.anchors.T
    prior = LocalPrior.fresh(stream.classifier.to(device=torch.device(DEVICE)))
    found = [triton_prior.learn_on_gpu(z[part].to(DEVICE), *vars(prior).values()) for part in parts]
    given = triton_prior.WithPrior(*(torch.cat(pieces).cpu() for pieces in zip(*found, strict=True)))
    np.testing.assert_allclose(given.log_prior, local_prior_loop(z.numpy()), atol=1e-10, rtol=0)
    torch.testing.assert_close(given.text_probabilities, z.softmax(dim=1), atol=1e-14, rtol=0)
    torch.testing.assert_close(given.exact_logits, z + given.log_prior, atol=1e-12, rtol=0)
    torch.testing.assert_close(given.softmax, (z + given.log_prior).softmax(dim=1), atol=1e-12, rtol=0)
    assert int(prior.count) == 20


@pytest.mark.parametrize("at_once", [1, 8])
def test_several_blocks_of_classes_and_of_samples_give_the_prior_of_the_loop(monkeypatch, at_once):
    stream = clip_like_stream(4, classes=70, dim=16, count=20, in_order=True)
    z = stream.scale * stream.features @ stream.anchors.T
    monkeypatch.setattr(triton_prior, "_CLASSES_AT_ONCE", 32)
    monkeypatch.setattr(triton_prior, "_MOST_CLASSES_IN_A_PROGRAM", 32)
    monkeypatch.setattr(triton_prior, "MOST_SAMPLES", at_once)
    prior = LocalPrior.fresh(stream.classifier.to(device=torch.device(DEVICE)))
    found = triton_prior.learn_on_gpu(z.to(DEVICE), *vars(prior).values())
    np.testing.assert_allclose(found.log_prior.cpu(), local_prior_loop(z.numpy()), atol=1e-10, rtol=0)
    torch.testing.assert_close(found.softmax.cpu(), (z + found.log_prior.cpu()).softmax(dim=1), atol=1e-12, rtol=0)


STAGES = [
    {"prior": "none", "gate": "none", "calibration": "fixed"},
    {"depth": 2},
    {"gate": "none"},
    {"calibration": "fixed"},
]


@pytest.mark.parametrize("parameters", STAGES, ids=str)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
def test_wpta_answers_and_learns_through_the_kernels_as_without_them(monkeypatch, parameters, precision):
    stream = clip_like_stream(3, classes=19, dim=12, count=40, in_order=True, scale=40.0).to(precision)
    object.__setattr__(stream.classifier, "bias", -2.0)
    pieces = [*one_by_one(stream)[:3], slice(3, 15), *one_by_one(stream)[15:20], slice(20, 40)]
    labels = np.where(np.arange(40) % 7 == 4, 1, -1)

    def answers(adapter):
        given = [adapter.step(stream.features[piece], labels[piece]) for piece in pieces[:-1]]
        adapter.reset(classes=[2])
        return torch.cat([*given, adapter.step(stream.features[pieces[-1]]), adapter.predict(stream.features[:5])])

    plain = create_adapter("wpta", stream.classifier, **parameters)
    expected = answers(plain)
    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: True)
    for module in ("layer", "within_class"):
        monkeypatch.setattr(f"pta.engines.whitened.{module}.is_host_readable", lambda tensor: False)
    through_kernels = create_adapter("wpta", stream.classifier, **parameters).to(DEVICE)
    assert all(is_recordable(through_kernels, batch) for batch in (1, 16))
    torch.testing.assert_close(answers(through_kernels).cpu(), expected, atol=TOLERANCES[precision], rtol=0)
    for name, tensor in through_kernels.state().items():
        torch.testing.assert_close(tensor.cpu(), plain.state()[name], atol=1e-4, rtol=0)


@pytest.mark.parametrize("gate", ["none", "balance"])
def test_stages_of_a_long_stream_are_those_without_kernels(monkeypatch, gate):
    """Of more samples than a kernel takes at once, and than count in full for the calibration."""
    stream = clip_like_stream(5, classes=6, dim=8, count=330, in_order=True)
    plain = create_adapter("adapt", stream.classifier, gate=gate, calibration="matched")
    expected = plain.step(stream.features)
    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: True)
    through_kernels = create_adapter("adapt", stream.classifier, gate=gate, calibration="matched").to(DEVICE)
    torch.testing.assert_close(through_kernels.step(stream.features.to(DEVICE)).cpu(), expected, atol=1e-10, rtol=0)
    for name in plain.state():
        if name.startswith(("gate_", "calibration_")):
            torch.testing.assert_close(through_kernels.state()[name].cpu(), plain.state()[name], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("opened", [0.0, 0.3, 0.7, 1.0])
def test_stages_go_on_from_any_state_as_without_kernels(monkeypatch, opened):
    """Also where the gate is closed beside large logits, and where gaps are given that no sample has made."""
    stream = clip_like_stream(5, classes=6, dim=8, count=3).to(torch.float32)

    def gone_on(device):
        adapter = create_adapter("wpta", stream.classifier, image_weight=100.0).to(device)
        adapter.gate_open.fill_(opened)
        adapter.calibration_gaps.copy_(torch.linspace(0.4, -0.4, 13))
        return adapter.step(stream.features.to(device)).cpu(), adapter.calibration_gaps.cpu()

    expected = gone_on("cpu")
    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: True)
    torch.testing.assert_close(gone_on(DEVICE), expected, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("prior", ["none", "local"])
def test_a_class_of_exactly_the_minimum_probability_learns_from_one_sample_and_from_several(monkeypatch, prior):
    monkeypatch.setattr("pta.engines.gpu.processors.triton_runs_on", lambda device: True)
    classifier = ZeroShotClassifier(np.ones((19, 4)), [str(c) for c in range(19)])
    for samples in (1, 2):
        adapter = create_adapter("wpta", classifier, min_probability=1 / 19, prior=prior, gate="none").to(DEVICE)
        adapter.step(np.ones((samples, 4)) / 2)
        assert bool((adapter.weights > 0).all())


@pytest.mark.parametrize(("coarse", "tolerance"), [(False, 1e-6), (True, 2e-3)])
def test_products_are_those_of_torch(coarse, tolerance):
    rng = torch.Generator().manual_seed(0)
    left, right, onto = (torch.randn(*shape, generator=rng) for shape in ((130, 70), (90, 70), (130, 90)))
    given = (one.to(DEVICE) for one in (left, right, onto))
    found, transposed = triton_metric.add_product_on_gpu(*given, beta=2.0, alpha=0.5, coarse=coarse)
    expected = torch.addmm(onto.double(), left.double(), right.T.double(), beta=2.0, alpha=0.5)
    assert torch.linalg.matrix_norm(found.cpu() - expected) <= tolerance * torch.linalg.matrix_norm(expected)
    assert torch.equal(found.T, transposed)


@pytest.mark.parametrize("spread", [[1.0], [30.0, 1.0], [0.0], list(range(64))], ids=str)
def test_kernels_invert_whatever_lies_between_the_bounds(spread):
    rng = torch.Generator().manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(64, 64, generator=rng, dtype=torch.float64))
    shares = torch.tensor([*spread, *[0.0] * (64 - len(spread))], dtype=torch.float64)
    eigenvalues = 1 + 128 * shares / shares.sum().clamp_min(1e-9)
    found = triton_metric.inverse_on_gpu(((turn * eigenvalues) @ turn.T).float().to(DEVICE), 129.0)
    torch.testing.assert_close(found.cpu().double(), (turn / eigenvalues) @ turn.T, atol=1e-5, rtol=0)


@pytest.mark.skipif(sanitizer.what_is_missing() is not None, reason=f"{sanitizer.what_is_missing()}")
def test_compute_sanitizer_finds_no_error():
    errors, said = sanitizer.errors_found_by("memcheck")
    assert errors == 0, said
