"""Stream: which samples come in which order, by name, and how batches are used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pta.data import orders
from pta.data.features import FeatureFile, drawn
from pta.errors import InvalidParameter, InvalidSamples, require_known

KINDS: Mapping[str, Mapping[str, Any]] = {
    "iid": {},
    "given": {},
    "dirichlet": {"gamma": 0.1},
    "separate": {},
    "poisoned": {"prefix": None},
    "rare": {"share": 0.95, "length": 400},
    "bursts": {"length": 400},
    "absent": {"share": 0.1, "length": None},
    "zipf": {"exponent": 1.0, "length": None},
}
"""Orders, and the defaults of their parameters; None means all that the data have."""

_UNLABELLED = ("iid", "given")  # orders that need no labels

_CHECKS: Mapping[str, Callable[[object], object]] = {
    "gamma": orders.require_gamma,
    "prefix": orders.require_prefix,
    "share": orders.require_share,
    "exponent": orders.require_exponent,
    "length": orders.require_length,
}
_PAPER_BATCH, _FAST_BATCH = 128, 256


@dataclass(frozen=True)
class Stream:
    """How a seed becomes a stream.

    Kinds are `iid` (shuffled), `given` (the order of the file, for every seed), `dirichlet` (classes unevenly spread
    over time), `separate` (one class after the other), `poisoned` (i.i.d., but confident mistakes of zero-shot come
    first), `rare` (one class nearly always), `bursts` (stretches of one class, bursts of the others), `absent` (most of
    the listed classes never) and `zipf` (frequencies by a power law). Of a kind's parameters, those that are not given
    have its defaults.
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
        require_known("stream", self.kind, KINDS)
        for name, check in _CHECKS.items():
            value, owners = getattr(self, name), [kind for kind, own in KINDS.items() if name in own]
            if value is None:
                object.__setattr__(self, name, KINDS[self.kind].get(name))
            elif self.kind in owners:
                check(value)
            else:
                whose = f"stream{'s' * (len(owners) > 1)} {', '.join(owners)}"
                raise InvalidParameter(f"{name} is a parameter of the {whose}, but the stream is {self.kind}")

    @property
    def in_words(self) -> str:
        """The order, for the title of a table."""
        return {"iid": "shuffled", "given": "in the order of the file"}.get(self.kind, f"stream {self.kind}")

    @property
    def usual_batch(self) -> int:
        """The paper's 128 where the batch size changes results, otherwise a fast size."""
        return _PAPER_BATCH if self.drop_last or self.lookahead or self.kind == "dirichlet" else _FAST_BATCH

    def part(self, data: FeatureFile, seed: int) -> FeatureFile:
        """The part of the data that the stream of a seed is made of: the classes drawn and their samples, or all."""
        if self.kind not in _UNLABELLED and data.labels is None:
            needless = " and ".join(_UNLABELLED)
            raise InvalidSamples(f"{data.name} has no labels, which the stream {self.kind} needs; {needless} need none")
        return data if self.classes_drawn is None else drawn(data, self.classes_drawn, seed)

    def order(self, part: FeatureFile, seed: int, batch: int) -> orders.Order:
        """The numbers of the samples that are seen, in the order of a seed."""
        order = self._whole_order(part, seed, batch)
        return order[: self._kept(part, len(order), batch)]

    def samples_seen(self, part: FeatureFile, seed: int, batch: int) -> int:
        """How many samples are seen. Data that this stream cannot be made of are refused."""
        if "length" in KINDS[self.kind]:
            return len(self.order(part, seed, batch))
        return self._kept(part, len(part.samples), batch)  # without the scores that `poisoned` is made of

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
        return {name: getattr(self, name) for name in KINDS[self.kind]}

    def _whole_order(self, part: Any, seed: int, batch: int) -> orders.Order:
        if self.kind == "given":
            return np.arange(len(part.samples))
        order = orders.iid(len(part.samples), seed)
        if self.kind == "poisoned":
            probabilities = part.zero_shot_logits.softmax(dim=1).cpu().numpy()
            order = orders.poisoned(order, part.labels, probabilities, prefix=self.prefix)
        elif self.kind != "iid":
            needs = {"dirichlet": {"batch": batch}, "absent": {"classes": part.classifier.classes}}
            order = getattr(orders, self.kind)(part.labels, seed=seed, **self._own, **needs.get(self.kind, {}))
        return order

    def _kept(self, part: FeatureFile, count: int, batch: int) -> int:
        kept = orders.kept(count, batch, drop_last=self.drop_last)
        if not kept:
            raise InvalidParameter(
                f"the stream of {part.name} has {count} samples, less than one batch of {batch}: without the last "
                "batch nothing is left; choose a smaller batch, or keep the last one"
            )
        return kept
