"""Options of `pta eval` and `pta sweep`: which samples come in which order, and how batches are used."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pta.data.features import FeatureFile
from pta.errors import InvalidParameter
from pta.measure.stream import KINDS, Stream


def _option(help: str, default: str | bool = True, **more: Any) -> Any:
    return typer.Option(help=help, show_default=default, **more)


@dataclass(frozen=True)
class OrderOptions(Stream):
    """A stream, with the seeds and the batch size of a command."""

    kind: Annotated[str, typer.Option("--stream", help=f"Order of the samples: {', '.join(KINDS)}.")] = "iid"
    gamma: Annotated[float | None, _option("For dirichlet: smaller values give fewer classes at a time.", "0.1")] = None
    prefix: Annotated[int | None, _option("For poisoned: how many confident errors come first.", "all", min=0)] = None
    share: Annotated[
        float | None,
        _option(
            "For rare: share of the common class (0.95). For absent: share of the listed classes that occur (0.1)."
        ),
    ] = None
    exponent: Annotated[float | None, _option("For zipf: of the power law; 0 for equal frequencies.", "1")] = None
    length: Annotated[
        int | None, _option("For rare (400), bursts (400), absent (all) and zipf (all): number of samples.")
    ] = None
    classes_drawn: Annotated[int | None, _option("Draw K look-alike classes for each seed.", "all", metavar="K")] = None
    drop_last: Annotated[bool, typer.Option("--drop-last", help="Leave out an incomplete last batch.")] = False
    lookahead: Annotated[bool, typer.Option("--lookahead", help="Learn from a whole batch before predicting it.")] = (
        False
    )
    seed: Annotated[list[int] | None, _option("Seed of the order; may be repeated.", "1", min=0)] = None
    batch: Annotated[
        int | None,
        _option(
            "Samples per step; affects results only with dirichlet, --drop-last, --lookahead and stata.",
            "128 with one of the first three, else 256",
            min=1,
        ),
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
