"""check_adapter: the laws that every method must obey, for the packaged methods and for your own.

Each check is a function named after the law it checks. A method to which a law cannot apply is checked with that law
excepted, and the reason stands beside it.
"""

import copy
import inspect
import math
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.errors import InvalidParameter, PtaError, nearest, shown
from pta.methods.adapter import Adapter
from pta.methods.growing import add_class
from pta.methods.registry import load_adapter
from pta.methods.toy_model import SIZE, ToyModel

Factory = Callable[..., Adapter]

_TOLERANCE = 2e-3  # of logits of size 100: what the engines promise in float32
_CLASSES, _DIM, _SAMPLES, _VIEWS, _PATCHES = 12, 32, 64, 20, 16


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
    if not callable(factory) or not isinstance(except_for, Mapping | None):
        raise InvalidParameter("check_adapter takes a method's class, and excepted laws, each with a reason")
    excepted = dict(except_for or {})
    for law, reason in excepted.items():
        if law not in _CHECKS:
            raise InvalidParameter(f"no law is called {shown(law)}; {nearest(law, _CHECKS)}")
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameter(f"say why {law!r} cannot apply")
    laws = [law for law in _CHECKS if law not in excepted]
    for name in laws:
        check, seeds = _CHECKS[name]
        for seed in seeds:
            check(_Stream.make(factory, seed))
    return laws


Law = Callable[["_Stream"], None]
_CHECKS: dict[str, tuple[Law, tuple[int, ...]]] = {}


def _check(*seeds: int) -> Callable[[Law], Law]:
    """Make a function a law, which is checked on the streams of these seeds."""

    def register(law: Law) -> Law:
        _CHECKS[law.__name__] = law, seeds
        return law

    return register


@dataclass(frozen=True)
class _Stream:
    """A small stream of the kind CLIP gives: images share a direction, classes lie around their anchors.

    Every sample has views and patches around it, and raw pixels (noise) for methods that are given an image tower. In
    every third stream features are the mean of some views.
    """

    factory: Factory  # of the adapters that are checked on it
    seed: int
    classifier: ZeroShotClassifier
    samples: Samples
    model: ToyModel

    @classmethod
    def make(cls, factory: Factory, seed: int, dtype: torch.dtype = torch.float32) -> "_Stream":
        text, features, views, raw, patches = (one.to(dtype, copy=True) for one in _numbers(seed))
        samples = Samples(features, views=views, raw=raw, patches=patches, generated=views.flip(1)[:, :6])
        if seed % 3 == 2:
            most_confident = torch.nn.functional.normalize(views[:, :4], dim=2)
            samples = replace(samples, features=most_confident.mean(dim=1), most_confident=most_confident)
        names = [f"class {number}" for number in range(_CLASSES)]
        return cls(factory, seed, ZeroShotClassifier(text, names, scale=50.0), samples, ToyModel(_DIM, dtype))

    def adapter(self, learned: int = 0) -> Adapter:
        """A new adapter for this stream, after the first samples of it."""
        taken = inspect.signature(self.factory).parameters
        offered = {"model": self.model, "source": self.samples}
        adapter = self.factory(self.classifier, **{name: one for name, one in offered.items() if name in taken})
        if learned:
            adapter.step(self.samples[:learned])
        return adapter

    def cuts(self) -> Iterator[Samples]:
        rng = np.random.default_rng(self.seed)
        start = 0
        while start < len(self.samples):
            end = start + int(rng.choice([1, 2, 3, 5, 17, 40]))
            yield self.samples[start:end]
            start = end


@lru_cache(maxsize=16)
def _numbers(seed: int) -> list[Tensor]:
    """Anchors, features, views, pixels and patches in float32, so that both precisions see the same numbers."""
    rng = np.random.default_rng(seed)
    anchors = rng.standard_normal((_CLASSES, _DIM)) + 2.0
    labels = rng.integers(_CLASSES - 2, size=_SAMPLES)  # two classes never come
    features = anchors[labels] + 0.8 * rng.standard_normal((_SAMPLES, _DIM)) + rng.standard_normal(_DIM)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    views = features[:, None] + 0.1 * rng.standard_normal((_SAMPLES, _VIEWS, _DIM))
    views[:, 0] = features
    raw = rng.standard_normal((_SAMPLES, 3, SIZE, SIZE))
    patches = features[:, None] + 0.3 * rng.standard_normal((_SAMPLES, _PATCHES, _DIM))
    for one in (features, views, raw, patches):
        one[1::7] = one[0]  # the same sample again and again
    return [torch.tensor(one, dtype=torch.float32) for one in (anchors, features, views, raw, patches)]


@_check(0, 1, 2)
def batch_equals_loop(stream: _Stream) -> None:
    """Any cut of a stream into batches gives the logits and the state of one sample at a time."""
    single = stream.adapter()
    expected = torch.cat([single.step(sample) for sample in stream.samples.batches(1)])
    probe = stream.samples[:5]
    for batches in ([stream.samples], stream.cuts()):
        batched = stream.adapter()
        logits = torch.cat([batched.step(batch) for batch in batches])
        _require_equal(logits, expected, single, "batches give other logits than a loop")
        _require_equal(batched.predict(probe), single.predict(probe), single, "a batch leaves another state")


@_check(1)
def predict_is_pure(stream: _Stream) -> None:
    """`predict` learns nothing and gives the same answer twice."""
    adapter = stream.adapter(learned=30)
    before = _copy_of_state(adapter)
    first, second = adapter.predict(stream.samples), adapter.predict(stream.samples)
    _require(torch.equal(first, second), adapter, "predict gives two answers to one question")
    _require(_same_state(adapter, before), adapter, "predict changes the state")


@_check(2)
def saving_changes_nothing(stream: _Stream) -> None:
    """Saving and loading in the middle of a stream leaves the rest of the stream as it was, bit for bit."""
    kept = stream.adapter(learned=30)
    before = _copy_of_state(kept)
    with tempfile.TemporaryDirectory() as folder:
        kept.save(Path(folder) / "state.safetensors")
        loaded = load_adapter(Path(folder) / "state.safetensors", stream.classifier, model=stream.model)
    _require(_same_state(kept, before), kept, "saving changes the state")
    _require_goes_on(loaded, kept, stream.samples[30:], "a loaded adapter")


@_check(2)
def pickles(stream: _Stream) -> None:
    """A pickled adapter goes on where the original was, bit for bit."""
    kept = stream.adapter(learned=30)
    _require_goes_on(pickle.loads(pickle.dumps(kept)), kept, stream.samples[30:], "a pickled adapter")


@_check(3)
def a_clone_is_independent(stream: _Stream) -> None:
    """A clone or a deep copy goes on like the original, bit for bit, and neither changes the other."""
    for copied in (Adapter.clone, copy.deepcopy):
        kept = stream.adapter(learned=30)
        before, twin = _copy_of_state(kept), copied(kept)
        twin.step(stream.samples[30:])
        twin.reset(classes=[1])
        _require(_same_state(kept, before), kept, "a clone that learns changes the original")
        _require_goes_on(copied(kept), kept, stream.samples[30:], "a clone")
        kept.reset()
        twin.reset()
        _require(_same_state(twin, kept.state()), kept, "a clone resets to another state than the original")


@_check(4)
def restoring_rewinds(stream: _Stream) -> None:
    """Restoring a snapshot brings back the state and the position of its moment, as often as wanted."""
    adapter, reference = (stream.adapter(learned=30) for _ in range(2))
    snapshot, before = adapter.snapshot(), _copy_of_state(adapter)
    for _ in range(2):
        adapter.step(stream.samples[30:])
        adapter.restore(snapshot)
        _require(_same_state(adapter, before), adapter, "restoring a snapshot leaves another state")
    _require_goes_on(adapter, reference, stream.samples[30:], "a restored adapter")


@_check(4)
def position_counts_learned_samples(stream: _Stream) -> None:
    """`position` counts the samples given to `step`; `reset` sets it to 0, `reset(classes)` keeps it."""
    adapter = stream.adapter(learned=7)
    adapter.predict(stream.samples[:5])
    adapter.step(stream.samples[7:40])
    adapter.reset(classes=[2])
    _require(adapter.position == 40, adapter, f"position is {adapter.position} after 40 learned samples")
    adapter.reset()
    _require(adapter.position == 0, adapter, f"position is {adapter.position} after reset")


@_check(5)
def an_added_class_starts_at_its_text(stream: _Stream) -> None:
    """A class is added to what was learned about the others, or refused; to a new adapter it is added as to any."""
    learned, new = stream.adapter(learned=30), stream.adapter()
    before, anchor = _copy_of_state(learned), stream.samples.features[-1]
    if any(piece.per_class and piece.owner.fixed_classes for _, piece in learned._pieces()):
        _require_refused(learned, "a class that is added", lambda: add_class(learned, "another", anchor))
    else:
        grown = add_class(learned, "another", anchor)
        for name, piece in grown._pieces():
            same = torch.equal(piece.tensor[:_CLASSES], before[name]) if piece.per_class else True
            _require(same, learned, f"{name} of the other classes changes when a class is added")
        _require(grown.position == 30, learned, "the position changes when a class is added")
        _require(grown.step(stream.samples[30:]).shape[1] == _CLASSES + 1, learned, "a class that is added is missing")
        empty = add_class(new, "another", anchor)
        fresh = type(new)(empty.classifier, model=new.model, **new.parameters).state()
        close = all(
            torch.allclose(one.double(), fresh[name].double(), atol=1e-6) for name, one in empty.state().items()
        )
        _require(close, new, "a class that is added does not start as in a new adapter")
    _require(_same_state(learned, before), learned, "adding a class changes the adapter it is added to")


@_check(6)
def a_failed_step_changes_nothing(stream: _Stream) -> None:
    """A step that fails, in whichever part of a batch, leaves everything as it was."""
    adapter, reference = (stream.adapter(learned=20) for _ in range(2))
    before, parts = _copy_of_state(adapter), adapter.at_once
    if parts is not None:
        adapter.at_once = min(parts, 10)
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
        _require(_same_state(adapter, before), adapter, "a step that failed was learned in part")
    else:
        adapter.restore(reference.snapshot())  # one part that cannot fail
    adapter._step, adapter.at_once = learn, parts  # type: ignore[method-assign]
    _require_goes_on(adapter, reference, stream.samples[50:], "after a failed step an adapter")


@_check(7)
def gradients_stay_inside(stream: _Stream) -> None:
    """Samples that require gradients get none, and neither answers nor state belong to a graph."""
    adapter = stream.adapter()
    tensors = {name: one.clone().requires_grad_() for name, one in stream.samples.tensors().items()}
    with torch.enable_grad():
        answers = [use(Samples.unchecked(**tensors)) for use in (adapter.step, adapter.predict)]
        _require(torch.is_grad_enabled(), adapter, "step switches gradients off for its caller")
    for tensor in (*answers, *adapter.state().values()):
        _require(not tensor.requires_grad, adapter, "an answer or the state requires gradients")
    for name, tensor in tensors.items():
        _require(tensor.grad is None, adapter, f"step leaves gradients in the caller's {name}")


@_check(3)
def reset_equals_new(stream: _Stream) -> None:
    """After `reset` an adapter is as good as new; after `reset(classes)` only those classes are."""
    used, new = stream.adapter(learned=_SAMPLES), stream.adapter()
    learned = _copy_of_state(used)
    used.reset(classes=[1, 4])
    others = [row for row in range(_CLASSES) if row not in (1, 4)]
    for name, piece in used._pieces():
        if piece.per_class:
            now, fresh = used.state()[name], new.state()[name]
            _require(torch.equal(now[[1, 4]], fresh[[1, 4]]), used, f"reset(classes) leaves {name} as it was")
            _require(torch.equal(now[others], learned[name][others]), used, f"reset(classes) changes {name} of others")
    used.reset()
    _require(_same_state(used, new.state()), used, "reset leaves something behind")
    _require(torch.equal(used.step(stream.samples), new.step(stream.samples)), used, "reset is not a new start")


@_check(4)
def nothing_is_shared_with_the_caller(stream: _Stream) -> None:
    """The caller's tensors are neither changed nor kept, and what is given out can be written to."""
    adapter, reference = stream.adapter(), stream.adapter()
    anchors = stream.classifier.anchors.clone()
    own = {name: tensor.clone() for name, tensor in stream.samples.tensors().items()}
    logits = adapter.step(Samples(**own))
    for name, tensor in own.items():
        _require(torch.equal(tensor, getattr(stream.samples, name)), adapter, f"step writes to the caller's {name}")
    expected = reference.step(stream.samples)
    _require(torch.equal(logits, expected), adapter, "the same stream gives other logits")
    for tensor in (*own.values(), logits):
        tensor.fill_(0.5)
    probe = stream.samples[:7]
    _require(torch.equal(adapter.predict(probe), reference.predict(probe)), adapter, "state aliases what was given")
    _require(torch.equal(stream.classifier.anchors, anchors), adapter, "the classifier's anchors were changed")


@_check(5)
def memory_is_bounded(stream: _Stream) -> None:
    """State does not grow with the stream, where the method says so."""
    adapter = stream.adapter()
    if not adapter.bounded:
        return
    adapter.step(stream.samples)
    early = adapter.state_bytes
    for _ in range(2):
        adapter.step(stream.samples)
    _require(adapter.state_bytes == early, adapter, f"state grew from {early} to {adapter.state_bytes} bytes")


@_check(6)
def the_same_stream_gives_the_same_answers(stream: _Stream) -> None:
    """Two new adapters on one stream agree bit for bit."""
    one, two = stream.adapter(), stream.adapter()
    _require(torch.equal(one.step(stream.samples), two.step(stream.samples)), one, "two runs differ")
    _require(_same_state(one, two.state()), one, "two runs leave different states")


@_check(7)
def a_refusal_changes_nothing(stream: _Stream) -> None:
    """Bad samples, classes, snapshots and files are refused before anything is learned or forgotten."""
    adapter = stream.adapter(learned=30)
    before = _copy_of_state(adapter)
    for what, use in _refused_uses(adapter, stream.samples[:4]):
        _require_refused(adapter, what, use)
        _require(_same_state(adapter, before), adapter, f"{what} changed the state before it was refused")


@_check(7)
def an_impossible_state_is_refused(stream: _Stream) -> None:
    """A state with NaN, with 1e30 or with a negative count anywhere is refused, and nothing changes."""
    adapter = stream.adapter(learned=30)
    snapshot = adapter.snapshot()
    for name, tensor in snapshot.tensors.items():
        if tensor.dtype == torch.bool or not tensor.numel():
            continue
        for value in (math.nan, 1e30) if tensor.is_floating_point() else (-1,):
            spoilt = tensor.clone()
            spoilt.view(-1)[-1] = value
            other = replace(snapshot, tensors={**snapshot.tensors, name: spoilt})
            _require_refused(adapter, f"a state with {value:g} in {name}", partial(adapter.restore, other))
            _require(_same_state(adapter, snapshot.tensors), adapter, f"{name} was changed before it was refused")


@_check(0, 1, 2)
def float32_agrees_with_float64(stream: _Stream) -> None:
    """A stream in float32 gives the logits of the same stream in float64, within tolerance."""
    adapter, wide = stream.adapter(), _Stream.make(stream.factory, stream.seed, torch.float64)
    expected = wide.adapter().step(wide.samples)
    _require_equal(adapter.step(stream.samples), expected, adapter, "float32 gives other logits than float64")


@_check(8)
def logits_are_finite(stream: _Stream) -> None:
    """Logits are B×C and finite, also for samples unlike any class."""
    adapter = stream.adapter()
    opposite = {name: -stream.samples.tensors()[name] for name in ("features", "views", "patches")}
    unlike = [replace(stream.samples, **opposite)]
    unlike.append(replace(stream.samples[:_DIM], features=torch.eye(_DIM)))
    for batch in (stream.samples, *unlike, stream.samples[:1]):
        for logits in (adapter.step(batch), adapter.predict(batch)):
            _require(tuple(logits.shape) == (len(batch), _CLASSES), adapter, f"logits have shape {logits.shape}")
            _require(bool(torch.isfinite(logits).all()), adapter, "logits are not finite")


@_check(9)
def probabilities_keep_the_label(stream: _Stream) -> None:
    """`logit_factor` is positive and finite, and the class of the largest logit is the most probable one."""
    adapter = stream.adapter(learned=30)
    factor = adapter.logit_factor
    _require(0 < factor < math.inf, adapter, f"logit_factor is {factor}")
    logits = adapter.step(stream.samples[30:])
    for raw in (False, True):
        p = adapter.probabilities(logits, raw=raw)
        _require(bool((p.sum(dim=1) - 1).abs().max() < 1e-9), adapter, "probabilities do not add up to one")
        own = p.gather(1, logits.argmax(dim=1, keepdim=True))
        _require(torch.equal(own, p.amax(dim=1, keepdim=True)), adapter, "the most probable class is another one")


def _refused_uses(adapter: Adapter, good: Samples) -> Iterator[tuple[str, Callable[[], object]]]:
    for what, batch in _bad_batches(good):
        for use in (adapter.step, adapter.predict):
            yield f"{use.__name__} on {what}", lambda use=use, batch=batch: use(batch())  # type: ignore[misc]
    yield "reset of a class that does not exist", lambda: adapter.reset(classes=[0, _CLASSES])
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
        yield f"an array with {name}", partial(torch.Tensor.clone, spoilt)
    yield "an empty batch", lambda: good[:0]
    yield "a batch of another dimension", lambda: Samples(good.features[:, :-1])
    yield "a single vector", lambda: good.features[0]


def _copy_of_state(adapter: Adapter) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in adapter.state().items()}


def _same_state(adapter: Adapter, other: Mapping[str, Tensor]) -> bool:
    own = adapter.state()
    return own.keys() == other.keys() and all(torch.equal(own[name], other[name]) for name in own)


def _require(holds: bool, adapter: Adapter, complaint: str) -> None:
    if not holds:
        raise BrokenLaw(f"{adapter.name}: {complaint}")


def _require_refused(adapter: Adapter, what: str, use: Callable[[], object]) -> None:
    refused = False
    try:
        use()
    except PtaError:
        refused = True
    _require(refused, adapter, f"{what} is accepted")


def _require_goes_on(copied: Adapter, original: Adapter, rest: Samples, what: str) -> None:
    """The copy has the original's parameters and state (the position among it), and goes on bit for bit alike."""
    _require(copied.parameters == original.parameters, original, f"{what} has other parameters")
    _require(_same_state(copied, original.state()), original, f"{what} has another state")
    for batch in (rest[:1], rest[1:2], rest[2:]):
        same = torch.equal(copied.step(batch), original.step(batch))
        _require(same, original, f"{what} goes on differently")
    _require(_same_state(copied, original.state()), original, f"{what} comes to another state")


def _require_equal(logits: Tensor, expected: Tensor, adapter: Adapter, complaint: str) -> None:
    """Equal within the tolerance, and the same answer wherever the expected one is clear."""
    _require(logits.shape == expected.shape, adapter, f"{complaint}: shape {tuple(logits.shape)}")
    worst = float((logits.double() - expected.double()).abs().max())
    _require(worst <= _TOLERANCE, adapter, f"{complaint}: off by {worst:.2g}")
    top = expected.double().topk(2, dim=1).values
    clear = top[:, 0] - top[:, 1] > 2 * _TOLERANCE
    same = logits.argmax(dim=1) == expected.argmax(dim=1)
    _require(bool(same[clear].all()), adapter, f"{complaint}: another class wins")
