"""Stream: which samples come in which order, by name, and how batches are used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pta.core.parameters import require_count
from pta.data import orders as streams
from pta.data.draw import drawn
from pta.data.features import FeatureFile
from pta.errors import InvalidParameter, InvalidSamples, nearest

_PAPER_BATCH, _FAST_BATCH = 128, 256


class Kind(NamedTuple):
    """How an order is made of data, a seed, the batch size and the kind's own parameters."""

    order: Callable[..., streams.Order]
    defaults: Mapping[str, Any] = {}  # of its parameters; None means all that the data have


def _of_labels(function: Callable[..., streams.Order]) -> Callable[..., streams.Order]:
    return lambda data, seed, batch, **own: function(data.labels, seed=seed, **own)


def _dirichlet(data: Any, seed: int, batch: int, gamma: float) -> streams.Order:
    return streams.dirichlet(data.labels, gamma, seed, batch=batch)


def _poisoned(data: Any, seed: int, batch: int, prefix: int | None) -> streams.Order:
    probabilities = data.zero_shot_logits.softmax(dim=1).cpu().numpy()
    return streams.poisoned(streams.iid(len(data.samples), seed), data.labels, probabilities, prefix=prefix)


def _absent(data: Any, seed: int, batch: int, **own: Any) -> streams.Order:
    return streams.absent(data.labels, seed=seed, classes=data.classifier.classes, **own)


KINDS: Mapping[str, Kind] = {
    "iid": Kind(lambda data, seed, batch: streams.iid(len(data.samples), seed)),
    "dirichlet": Kind(_dirichlet, {"gamma": 0.1}),
    "separate": Kind(_of_labels(streams.separate)),
    "poisoned": Kind(_poisoned, {"prefix": None}),
    "rare": Kind(_of_labels(streams.rare), {"share": 0.95, "length": 400}),
    "bursts": Kind(_of_labels(streams.bursts), {"length": 400}),
    "absent": Kind(_absent, {"share": 0.1, "length": None}),
    "zipf": Kind(_of_labels(streams.zipf), {"exponent": 1.0, "length": None}),
}

_CHECKS: Mapping[str, Callable[[object], object]] = {
    "gamma": streams.require_gamma,
    "prefix": partial(require_count, "prefix", low=0, high=2**31),
    "share": streams.require_share,
    "exponent": streams.require_exponent,
    "length": streams.require_length,
}


@dataclass(frozen=True)
class Stream:
    """How a seed becomes a stream.

    Kinds are `iid`, `dirichlet` (classes unevenly spread over time), `separate` (one class after the other), `poisoned`
    (i.i.d., but confident mistakes of zero-shot come first), `rare` (one class nearly always), `bursts` (stretches of
    one class, bursts of the others), `absent` (most of the listed classes never) and `zipf` (frequencies by a power
    law). Of a kind's parameters, those that are not given have its defaults.
    """

    kind: str = "iid"
    gamma: float | None = None  # of `dirichlet`: the smaller, the fewer classes at a time
    prefix: int | None = None  # of `poisoned`: how many confident mistakes, all there are if not given
    share: float | None = None  # of `rare`: of the common class; of `absent`: of the listed classes, how many occur
    exponent: float | None = None  # of `zipf`: 0 for equal frequencies
    length: int | None = None  # of `rare`, `bursts`, `absent` and `zipf`: how many samples come
    classes_drawn: int | None = None  # how many look-alike classes each seed draws, all there are if not given
    drop_last: bool = False  # leave out what does not fill a batch at the end
    lookahead: bool = False  # learn a whole batch before predicting any of it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidParameter(f"no stream is called {self.kind!r}; {nearest(self.kind, KINDS)}")
        for name, check in _CHECKS.items():
            owners = [kind for kind, one in KINDS.items() if name in one.defaults]
            if getattr(self, name) is not None:
                if self.kind not in owners:
                    whose = f"stream{'s' * (len(owners) > 1)} {', '.join(owners)}"
                    raise InvalidParameter(f"{name} is a parameter of the {whose}, but the stream is {self.kind}")
                check(getattr(self, name))
            elif self.kind in owners:
                object.__setattr__(self, name, KINDS[self.kind].defaults[name])

    @property
    def usual_batch(self) -> int:
        """The paper's 128 where the batch size changes results, otherwise a fast size."""
        return _PAPER_BATCH if self.drop_last or self.lookahead or self.kind == "dirichlet" else _FAST_BATCH

    def part(self, data: FeatureFile, seed: int) -> FeatureFile:
        """The part of the data that the stream of a seed is made of: the classes drawn and their samples, or all."""
        return data if self.classes_drawn is None else drawn(data, self.classes_drawn, seed)

    def order(self, part: FeatureFile, seed: int, batch: int) -> streams.Order:
        """The numbers of the samples that are seen, in the order of a seed."""
        self._require_labels(part)
        order = KINDS[self.kind].order(part, seed, batch, **self._own)
        return order[: self._kept(part, len(order), batch)]

    def samples_seen(self, part: FeatureFile, seed: int, batch: int) -> int:
        """How many samples are seen. Data that this stream cannot be made of are refused."""
        self._require_labels(part)
        is_all = "length" not in KINDS[self.kind].defaults
        return self._kept(part, len(part.samples), batch) if is_all else len(self.order(part, seed, batch))

    def record(self, batch: int) -> dict[str, Any]:
        """What is written to JSON: all that an order and the use of its batches depend on, apart from the seed."""
        return {
            "kind": self.kind,
            **{name: "all" if value is None else value for name, value in self._own.items()},
            **({} if self.classes_drawn is None else {"classes_drawn": self.classes_drawn}),
            "batch": batch,
            "drop_last": self.drop_last,
            "lookahead": self.lookahead,
        }

    @property
    def _own(self) -> dict[str, Any]:
        """The parameters of its kind."""
        return {name: getattr(self, name) for name in KINDS[self.kind].defaults}

    def _require_labels(self, part: FeatureFile) -> None:
        if self.kind != "iid" and part.labels is None:
            raise InvalidSamples(f"{part.name} has no labels, which the stream {self.kind} needs; iid needs none")

    def _kept(self, part: FeatureFile, count: int, batch: int) -> int:
        kept = streams.kept(count, batch, drop_last=self.drop_last)
        if not kept:
            raise InvalidParameter(
                f"the stream of {part.name} has {count} samples, less than one batch of {batch}: without the last "
                "batch nothing is left; choose a smaller batch, or keep the last one"
            )
        return kept
