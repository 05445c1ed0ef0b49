"""check_adapter: the laws that every method must obey, for the packaged methods and for your own.

Each check is a function named after the law it checks. A method to which a law cannot apply is checked with that law
excepted, and the reason stands beside it.
"""

import copy
import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pta.core.samples import Samples
from pta.errors import InvalidParameter, PtaError, require_known, shown
from pta.methods.adapter import Adapter
from pta.methods.classes import add_class
from pta.methods.registry import from_bytes, list_adapters
from pta.methods.toys import CLASSES, DIM, SAMPLES, Factory, ToyStream

_TOLERANCE = 2e-3  # of logits of size 100: what the engines promise in float32


class BrokenLaw(AssertionError):
    """A method does not obey a law of `check_adapter`."""


def check_adapter(factory: Factory, *, except_for: Mapping[str, str] | None = None) -> list[str]:
    """Run every check on the adapters that `factory(classifier)` makes; returns the names of the laws that hold.

    The factory makes an equal new adapter each time. If it also takes `model` or `source`, as a method's class and
    `create_adapter` do, it gets a tiny random model and the samples of the stream. Laws that cannot apply to the
    method are excepted, each with a reason.

    >>> from pta import PTA
    >>> check_adapter(PTA)[0]
    'batch_equals_loop'
    """
    if not callable(factory):
        raise InvalidParameter(f"give the class, or a function that makes an adapter, not {shown(factory)}")
    excepted = except_for or {}
    for law, reason in excepted.items():
        require_known("law", law, _CHECKS)
        if not reason.strip():
            raise InvalidParameter(f"say why {law!r} cannot apply")
    laws = [law for law in _CHECKS if law not in excepted]
    for name in laws:
        check, seeds = _CHECKS[name]
        for stream in (ToyStream.make(factory, seed) for seed in seeds):
            try:
                check(stream)
            except BrokenLaw as broken:
                raise BrokenLaw(f"{stream.adapter().name}: {broken}") from None
    return laws


Law = Callable[[ToyStream], None]
_CHECKS: dict[str, tuple[Law, tuple[int, ...]]] = {}


def _check(*seeds: int) -> Callable[[Law], Law]:
    """Make a function a law, which is checked on the streams of these seeds."""

    def register(law: Law) -> Law:
        _CHECKS[law.__name__] = law, seeds
        return law

    return register


@_check(0, 1, 2)
def batch_equals_loop(stream: ToyStream) -> None:
    """Any cut of a stream into batches gives the logits and the state of one sample at a time."""
    single = stream.adapter()
    expected = torch.cat([single.step(sample) for sample in stream.samples.batches(1)])
    probe = stream.samples[:5]
    for batches in ([stream.samples], stream.cuts()):
        batched = stream.adapter()
        logits = torch.cat([batched.step(batch) for batch in batches])
        _require_close(logits, expected, "batches give other logits than a loop")
        _require_close(batched.predict(probe), single.predict(probe), "a batch leaves another state")


@_check(0, 1)
def labelled_batches_equal_a_loop(stream: ToyStream) -> None:
    """So does a stream with labels; a method that does not learn them refuses them."""
    labels, adapter, single = [row % 4 - 1 for row in range(SAMPLES)], stream.adapter(), stream.adapter()
    if not adapter.takes_labels:
        _require_refused("a label", partial(adapter.step, stream.samples, labels))
        return
    expected = [single.step(stream.samples[at : at + 1], labels[at : at + 1]) for at in range(SAMPLES)]
    _require_close(adapter.step(stream.samples, labels), torch.cat(expected), "labelled batches give other logits")


@_check(1)
def predict_is_pure(stream: ToyStream) -> None:
    """`predict` learns nothing and gives the same answer twice."""
    adapter = stream.half_way()
    before = _copy_of_state(adapter)
    answer, again = adapter.predict(stream.samples), adapter.predict(stream.samples)
    _require_equal(answer, again, "predict gives two answers to one question")
    _require_state(adapter, before, "predict changes the state")


@_check(2)
def saving_changes_nothing(stream: ToyStream) -> None:
    """Saving and loading in the middle of a stream leaves the rest of the stream as it was, bit for bit."""
    kept = stream.half_way()
    if kept.name not in list_adapters():
        raise BrokenLaw("it cannot be loaded by its name; write @pta.register above the class")
    before = _copy_of_state(kept)
    loaded = from_bytes(kept.to_bytes(), stream.classifier, model=stream.model)
    _require_state(kept, before, "saving changes the state")
    _require_goes_on(loaded, kept, stream.rest, "a loaded adapter")


@_check(2)
def pickles(stream: ToyStream) -> None:
    """A pickled adapter goes on where the original was, bit for bit."""
    kept = stream.half_way()
    _require_goes_on(pickle.loads(pickle.dumps(kept)), kept, stream.rest, "a pickled adapter")


@_check(3)
def a_clone_is_independent(stream: ToyStream) -> None:
    """A clone or a deep copy goes on like the original, bit for bit, and neither changes the other."""
    for copied in (Adapter.clone, copy.deepcopy):
        kept = stream.half_way()
        before, twin = _copy_of_state(kept), copied(kept)
        twin.step(stream.rest)
        twin.reset(classes=[1])
        _require_state(kept, before, "a clone that learns changes the original")
        _require_goes_on(copied(kept), kept, stream.rest, "a clone")
        kept.reset()
        twin.reset()
        _require_state(twin, kept.state(), "a clone resets to another state than the original")


@_check(4)
def restoring_rewinds(stream: ToyStream) -> None:
    """Restoring a snapshot brings back the state and the position of its moment, as often as wanted."""
    adapter, reference = stream.half_way(), stream.half_way()
    snapshot, before = adapter.snapshot(), _copy_of_state(adapter)
    for _ in range(2):
        adapter.step(stream.rest)
        adapter.restore(snapshot)
        _require_state(adapter, before, "restoring a snapshot leaves another state")
    _require_goes_on(adapter, reference, stream.rest, "a restored adapter")


@_check(4)
def position_counts_learned_samples(stream: ToyStream) -> None:
    """`position` counts the samples given to `step`; `reset` sets it to 0, `reset(classes)` keeps it."""
    adapter = stream.adapter(learned=7)
    adapter.predict(stream.samples[:5])
    adapter.step(stream.samples[7:40])
    adapter.reset(classes=[2])
    _require(adapter.position == 40, f"position is {adapter.position} after 40 learned samples")
    adapter.reset()
    _require(adapter.position == 0, f"position is {adapter.position} after reset")


@_check(5)
def an_added_class_starts_at_its_text(stream: ToyStream) -> None:
    """A class is added to what was learned about the others, or refused; to a new adapter it is added as to any."""
    learned, new = stream.half_way(), stream.adapter()
    before, anchor = _copy_of_state(learned), stream.samples.features[-1]
    if any(piece.per_class and piece.owner.fixed_classes for piece in learned.pieces.values()):
        _require_refused("a class that is added", lambda: add_class(learned, "another", anchor))
    else:
        grown = add_class(learned, "another", anchor)
        for name, piece in grown.pieces.items():
            if piece.per_class:
                others = f"{name} of the other classes changes when a class is added"
                _require_equal(piece.tensor[:CLASSES], before[name], others)
        _require(grown.position == 30, "the position changes when a class is added")
        _require(grown.step(stream.rest).shape[1] == CLASSES + 1, "a class that is added is missing")
        empty = add_class(new, "another", anchor)
        fresh = type(new)(empty.classifier, model=new.model, checked=new.parameters).state()
        for name, one in empty.state().items():
            close = torch.allclose(one.double(), fresh[name].double(), atol=1e-6)
            _require(close, f"{name} of a class that is added does not start as in a new adapter")
    _require_state(learned, before, "adding a class changes the adapter it is added to")


@_check(6)
def a_failed_step_changes_nothing(stream: ToyStream) -> None:
    """A step that fails, in whichever part of a batch, leaves everything as it was."""
    adapter, reference = stream.adapter(learned=20), stream.adapter(learned=20)
    before, parts = _copy_of_state(adapter), adapter.max_batch
    if parts is not None:
        adapter.max_batch = min(parts, 10)
    calls, learn = 0, adapter._step

    def fail_late(samples: Samples) -> Tensor:
        nonlocal calls
        calls += 1
        logits = learn(samples)
        if calls == 2 or adapter.may_fail:
            raise KeyboardInterrupt
        return logits

    adapter._step = fail_late  # type: ignore[method-assign]
    try:
        adapter.step(stream.samples[20:50])
    except KeyboardInterrupt:
        _require_state(adapter, before, "a step that failed was learned in part")
    else:
        adapter.restore(reference.snapshot())  # one part that cannot fail
    adapter._step, adapter.max_batch = learn, parts  # type: ignore[method-assign]
    _require_goes_on(adapter, reference, stream.samples[50:], "after a failed step an adapter")


@_check(7)
def gradients_stay_inside(stream: ToyStream) -> None:
    """Samples that require gradients get none, and neither answers nor state belong to a graph."""
    adapter = stream.adapter()
    tensors = {name: one.clone().requires_grad_() for name, one in stream.samples.tensors().items()}
    with torch.enable_grad():
        answers = [use(Samples.unchecked(**tensors)) for use in (adapter.step, adapter.predict)]
        _require(torch.is_grad_enabled(), "step switches gradients off for its caller")
    for tensor in (*answers, *adapter.state().values()):
        _require(not tensor.requires_grad, "an answer or the state requires gradients")
    for name, tensor in tensors.items():
        _require(tensor.grad is None, f"step leaves gradients in the caller's {name}")


@_check(3)
def reset_equals_new(stream: ToyStream) -> None:
    """After `reset` an adapter is as good as new; after `reset(classes)` only those classes are."""
    used, new = stream.adapter(learned=SAMPLES), stream.adapter()
    learned = _copy_of_state(used)
    used.reset(classes=[1, 4])
    for name, piece in used.pieces.items():
        if piece.per_class:
            expected = learned[name].clone()
            expected[[1, 4]] = new.state()[name][[1, 4]]
            _require_equal(piece.tensor, expected, f"reset(classes) does not reset {name} of those classes alone")
    used.reset()
    _require_state(used, new.state(), "reset leaves something behind")
    _require_equal(used.step(stream.samples), new.step(stream.samples), "reset is not a new start")


@_check(4)
def nothing_is_shared_with_the_caller(stream: ToyStream) -> None:
    """The caller's tensors are neither changed nor kept, and what is given out can be written to."""
    adapter, reference = stream.adapter(), stream.adapter()
    anchors = stream.classifier.anchors.clone()
    own = {name: tensor.clone() for name, tensor in stream.samples.tensors().items()}
    logits = adapter.step(Samples(**own))
    for name, tensor in own.items():
        _require_equal(tensor, getattr(stream.samples, name), f"step writes to the caller's {name}")
    _require_equal(logits, reference.step(stream.samples), "the same stream gives other logits")
    for tensor in (*own.values(), logits):
        tensor.fill_(0.5)
    probe = stream.samples[:7]
    _require_equal(adapter.predict(probe), reference.predict(probe), "state aliases what was given")
    _require_equal(stream.classifier.anchors, anchors, "the classifier's anchors were changed")


@_check(5)
def memory_is_bounded(stream: ToyStream) -> None:
    """State does not grow with the stream, where the method says so."""
    adapter = stream.adapter(learned=SAMPLES)
    early = adapter.state_bytes
    adapter.step(stream.samples)
    adapter.step(stream.samples)
    same = adapter.state_bytes == early or not adapter.bounded
    _require(same, f"state grew from {early} to {adapter.state_bytes} bytes")


@_check(6)
def the_same_stream_gives_the_same_answers(stream: ToyStream) -> None:
    """Two new adapters on one stream agree bit for bit."""
    one, two = stream.adapter(), stream.adapter()
    _require_equal(one.step(stream.samples), two.step(stream.samples), "two runs differ")
    _require_state(one, two.state(), "two runs leave different states")


@_check(7)
def a_refusal_changes_nothing(stream: ToyStream) -> None:
    """Bad samples, classes, snapshots and files are refused before anything is learned or forgotten."""
    adapter = stream.half_way()
    before = _copy_of_state(adapter)
    for what, use in _refused_uses(adapter, stream.samples[:4]):
        _require_refused(what, use)
        _require_state(adapter, before, f"{what} changed the state before it was refused")


@_check(7)
def an_impossible_state_is_refused(stream: ToyStream) -> None:
    """A state with NaN, with 1e30 or with a negative count anywhere is refused, and nothing changes."""
    adapter = stream.half_way()
    snapshot = adapter.snapshot()
    for name, tensor in snapshot.tensors.items():
        if tensor.dtype == torch.bool or not tensor.numel():
            continue
        for value in (math.nan, 1e30) if tensor.is_floating_point() else (-1,):
            spoilt = tensor.clone()
            spoilt.view(-1)[-1] = value
            other = replace(snapshot, tensors={**snapshot.tensors, name: spoilt})
            _require_refused(f"a state with {value:g} in {name}", partial(adapter.restore, other))
            _require_state(adapter, snapshot.tensors, f"{name} was changed before it was refused")


@_check(0, 1, 2)
def float32_agrees_with_float64(stream: ToyStream) -> None:
    """A stream in float32 gives the logits of the same stream in float64, within tolerance."""
    wide = ToyStream.make(stream.factory, stream.seed, torch.float64)
    logits, expected = (one.adapter().step(one.samples) for one in (stream, wide))
    _require_close(logits, expected, "float32 gives other logits than float64")


@_check(8)
def logits_are_finite(stream: ToyStream) -> None:
    """Logits are B×C and finite, also for samples unlike any class."""
    adapter = stream.adapter()
    opposite = {name: -stream.samples.tensors()[name] for name in ("features", "views", "patches")}
    unlike = replace(stream.samples, **opposite), replace(stream.samples[:DIM], features=torch.eye(DIM))
    for batch in (stream.samples, *unlike, stream.samples[:1]):
        for logits in (adapter.step(batch), adapter.predict(batch)):
            _require(tuple(logits.shape) == (len(batch), CLASSES), f"logits have shape {logits.shape}")
            _require(bool(torch.isfinite(logits).all()), "logits are not finite")


@_check(9)
def probabilities_keep_the_label(stream: ToyStream) -> None:
    """`logit_factor` is positive and finite, and the class of the largest logit is the most probable one."""
    adapter = stream.half_way()
    _require(0 < adapter.logit_factor < math.inf, f"logit_factor is {adapter.logit_factor}")
    logits = adapter.step(stream.rest)
    for raw in (False, True):
        p = adapter.probabilities(logits, raw=raw)
        _require(bool((p.sum(dim=1) - 1).abs().max() < 1e-9), "probabilities do not add up to one")
        own = p.gather(1, logits.argmax(dim=1, keepdim=True))
        _require_equal(own, p.amax(dim=1, keepdim=True), "the most probable class is another one")


def _refused_uses(adapter: Adapter, good: Samples) -> Iterator[tuple[str, Callable[[], object]]]:
    for what, batch in _bad_batches(good):
        for use in (adapter.step, adapter.predict):
            yield f"{use.__name__} on {what}", lambda use=use, batch=batch: use(batch())  # type: ignore[misc]
    yield "reset of a class that does not exist", lambda: adapter.reset(classes=[0, CLASSES])
    yield "restoring a snapshot of another method", lambda: adapter.restore(replace(adapter.snapshot(), method="none"))
    yield "restoring half a snapshot", lambda: adapter.restore(replace(adapter.snapshot(), tensors={}))
    if (apply := getattr(adapter, "apply", None)) is not None:
        yield "applying what is not a segment", lambda: apply(None)


def _bad_batches(good: Samples) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, value in (("NaN", math.nan), ("Inf", math.inf), ("a zero row", 0.0)):
        spoilt = good.features.clone()
        spoilt[-1, :] = value
        yield f"a batch with {name}", partial(replace, good, features=spoilt)
        for several in ("views", "patches"):
            rows = good.tensors()[several].clone()
            rows[-1, -1] = value
            yield f"a batch with {name} among its {several}", partial(replace, good, **{several: rows})
        yield f"an array with {name}", spoilt.clone
    yield "an empty batch", lambda: good[:0]
    yield "a batch of another dimension", lambda: Samples(good.features[:, :-1])
    yield "a single vector", lambda: good.features[0]


def _copy_of_state(adapter: Adapter) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in adapter.state().items()}


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise BrokenLaw(complaint)


def _require_equal(one: Tensor, other: Tensor, complaint: str) -> None:
    _require(torch.equal(one, other), complaint)


def _require_state(adapter: Adapter, expected: Mapping[str, Tensor], complaint: str) -> None:
    own = adapter.state()
    same = own.keys() == expected.keys() and all(torch.equal(own[name], expected[name]) for name in own)
    _require(same, complaint)


def _require_refused(what: str, use: Callable[[], object]) -> None:
    try:
        use()
    except PtaError:
        return
    raise BrokenLaw(f"{what} is accepted")


def _require_goes_on(copied: Adapter, original: Adapter, rest: Samples, what: str) -> None:
    """The copy has the original's parameters and state (the position among it), and goes on bit for bit alike."""
    _require(copied.parameters == original.parameters, f"{what} has other parameters")
    _require_state(copied, original.state(), f"{what} has another state")
    for batch in (rest[:1], rest[1:2], rest[2:]):
        _require_equal(copied.step(batch), original.step(batch), f"{what} goes on differently")
    _require_state(copied, original.state(), f"{what} comes to another state")


def _require_close(logits: Tensor, expected: Tensor, complaint: str) -> None:
    """Equal within the tolerance, and the same answer wherever the expected one is clear."""
    _require(logits.shape == expected.shape, f"{complaint}: shape {tuple(logits.shape)}")
    worst = float((logits.double() - expected.double()).abs().max())
    _require(worst <= _TOLERANCE, f"{complaint}: off by {worst:.2g}")
    top = expected.double().topk(2, dim=1).values
    clear = top[:, 0] - top[:, 1] > 2 * _TOLERANCE
    same = logits.argmax(dim=1) == expected.argmax(dim=1)
    _require(bool(same[clear].all()), f"{complaint}: another class wins")
