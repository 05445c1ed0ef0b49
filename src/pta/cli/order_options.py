"""Options of `pta eval` and `pta sweep`: which samples come in which order, and how batches are used."""

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from pta.data.features import FeatureFile
from pta.errors import InvalidParameter
from pta.measure.stream import KINDS, Stream


@dataclass(frozen=True)
class OrderOptions(Stream):
    """A stream, with the seeds and the batch size of a command."""

    kind: Annotated[str, f"Order of the samples: {', '.join(KINDS)}.", Option("--stream")] = "iid"
    gamma: Annotated[
        float | None, "For dirichlet: smaller values give fewer classes at a time.", Option(show_default="0.1")
    ] = None
    prefix: Annotated[
        int | None, "For poisoned: how many confident errors come first.", Option(show_default="all", min=0)
    ] = None
    share: Annotated[
        float | None,
        "For rare: share of the common class (0.95). For absent: share of the listed classes that occur (0.1).",
    ] = None
    exponent: Annotated[
        float | None, "For zipf: of the power law; 0 for equal frequencies.", Option(show_default="1")
    ] = None
    length: Annotated[int | None, "For rare (400), bursts (400), absent (all) and zipf (all): number of samples."] = (
        None
    )
    classes_drawn: Annotated[
        int | None, "Draw K look-alike classes for each seed.", Option(show_default="all", metavar="K")
    ] = None
    drop_last: Annotated[bool, "Leave out an incomplete last batch."] = False
    lookahead: Annotated[bool, "Learn from a whole batch before predicting it."] = False
    seed: Annotated[list[int] | None, "Seed of the order; may be repeated.", Option(show_default="1", min=0)] = None
    batch: Annotated[
        int | None,
        "Samples per step; affects results only with dirichlet, --drop-last, --lookahead and stata.",
        Option(show_default="128 with one of the first three, else 256", min=1),
    ] = None

    @property
    def seeds(self) -> list[int]:
        """Each seed once."""
        seeds = list(dict.fromkeys(self.seed or [1]))
        if len(seeds) > 1 and self.kind == "given" and self.classes_drawn is None:
            raise InvalidParameter("--stream given is one order, whatever the seed; leave out --seed")
        return seeds

    def length_with_all_seeds(self, data: FeatureFile) -> int:
        """How many samples come in all orders together. Data that the stream cannot be made of are refused."""
        batch = self.batch or self.usual_batch
        return sum(self.samples_seen(self.part(data, seed), seed, batch) for seed in self.seeds)
