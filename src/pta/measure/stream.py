"""Stream: the order of the samples, by name, and how batches are used."""

from dataclasses import dataclass
from typing import Any

from pta.core.parameters import require_count
from pta.data import orders as streams
from pta.data.features import FeatureFile
from pta.errors import InvalidParameter, InvalidSamples, nearest

KINDS = ("iid", "dirichlet", "separate", "poisoned")

_PAPER_BATCH, _FAST_BATCH = 128, 256


@dataclass(frozen=True)
class Stream:
    """How a seed becomes an order.

    Kinds are `iid`, `dirichlet` (classes unevenly spread over time), `separate` (one class after the other) and
    `poisoned` (i.i.d., but confident mistakes of zero-shot come first).
    """

    kind: str = "iid"
    gamma: float | None = None  # of `dirichlet`, 0.1 if not given; the smaller, the fewer classes at a time
    prefix: int | None = None  # of `poisoned`: how many confident mistakes, all there are if not given
    drop_last: bool = False  # leave out what does not fill a batch at the end
    lookahead: bool = False  # learn a whole batch before predicting any of it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidParameter(f"no stream is called {self.kind!r}; {nearest(self.kind, KINDS)}")
        for name, value, owner in (("gamma", self.gamma, "dirichlet"), ("prefix", self.prefix, "poisoned")):
            if value is not None and self.kind != owner:
                raise InvalidParameter(f"{name} is a parameter of the stream {owner}, but the stream is {self.kind}")
        if self.kind == "dirichlet" and self.gamma is None:
            object.__setattr__(self, "gamma", 0.1)
        if self.gamma is not None:
            streams.require_gamma(self.gamma)
        if self.prefix is not None:
            require_count("prefix", self.prefix, 0, 2**31)

    @property
    def usual_batch(self) -> int:
        """The paper's 128 where the batch size changes results, otherwise a fast size."""
        return _PAPER_BATCH if self.drop_last or self.lookahead or self.kind == "dirichlet" else _FAST_BATCH

    def require(self, data: FeatureFile, batch: int) -> None:
        """Refuse data that this stream cannot be made of."""
        if self.kind != "iid" and data.labels is None:
            raise InvalidSamples(f"{data.name} has no labels, which the stream {self.kind} needs; iid needs none")
        if not self.length(data, batch):
            raise InvalidParameter(
                f"{data.name} has {len(data.samples)} samples, less than one batch of {batch}: without the last batch "
                "nothing is left; choose a smaller batch, or keep the last one"
            )

    def length(self, data: FeatureFile, batch: int) -> int:
        """How many samples are seen."""
        return streams.kept(len(data.samples), batch, drop_last=self.drop_last)

    def order(self, data: FeatureFile, seed: int, batch: int) -> streams.Order:
        """All samples in the order of a seed; what `drop_last` leaves out is at its end."""
        self.require(data, batch)
        if data.labels is None or self.kind == "iid":
            return streams.iid(len(data.samples), seed)
        if self.kind == "separate":
            return streams.separate(data.labels, seed)
        if self.gamma is not None:
            return streams.dirichlet(data.labels, self.gamma, seed, batch=batch)
        probabilities = data.zero_shot_logits.softmax(dim=1).cpu().numpy()
        order = streams.iid(len(data.samples), seed)
        return streams.poisoned(order, data.labels, probabilities, prefix=self.prefix)

    def record(self, batch: int) -> dict[str, Any]:
        """What is written to JSON: all that an order and the use of its batches depend on, apart from the seed."""
        prefix = "all" if self.prefix is None else self.prefix
        kinds: dict[str, dict[str, Any]] = {"dirichlet": {"gamma": self.gamma}, "poisoned": {"prefix": prefix}}
        return {
            "kind": self.kind,
            **kinds.get(self.kind, {}),
            "batch": batch,
            "drop_last": self.drop_last,
            "lookahead": self.lookahead,
        }
