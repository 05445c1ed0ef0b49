"""The alarms: their names, their thresholds, and what they say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FOREIGN, CHANGED, CONCENTRATING, SORTED = "foreign-input", "changed-more", "concentrating", "sorted"
ONE_SOURCE, MOVED, SILENT = "one-source", "class-moved", "silent"
KINDS = (FOREIGN, CHANGED, CONCENTRATING, SORTED, ONE_SOURCE, MOVED, SILENT)

# Fixed thresholds, chosen on Caltech101, Cars and UCF101; benchmarks/monitors.py has their rate of false alarms.
LEAST_ENTROPY_RATIO = 0.8  # of `concentrating`
SOURCE_SHARE, SOURCE_WEIGHT = 0.6, 1 / 24  # of `one-source`: of a class's weight, and of the window
SOURCE_EXCESS = (
    5.0  # standard deviations above the source's share of other classes, so that two even sources raise none
)
CHANGED_SLACK = 0.05  # of `changed-more`: learning alone moves the share of changed answers
MOVED_WEIGHT = 10.0  # of `class-moved`: the learned weight of a class, because a prototype of few samples moves anyway
LARGEST_MOVEMENT = 0.1  # of `class-moved`: of the cosine with the text, per 1,024 samples

_SENTENCES = {
    FOREIGN: "zero-shot is less sure than on the reference: {share:.0%} of the last {window} samples fall below a "
    "score that at most {bound:.0%} of samples like the reference fall below",
    CHANGED: "adaptation changes more answers than at the start: {share:.0%} of the last {window}, at most {bound:.0%} "
    "expected; learning itself moves this number",
    CONCENTRATING: "answers concentrate on fewer classes than zero-shot's: the entropy of their mean is {ratio:.2f} of "
    "zero-shot's over the last {window} samples (threshold {threshold})",
    SORTED: "samples come sorted by class (order statistic {order:.1f}, threshold {threshold}), where this method can "
    "lose what it gains otherwise; use wpta, or add --prior local",
    ONE_SOURCE: "source {source} gave {share:.0%} of the weight of class {name} in the last {window} samples",
    MOVED: "the prototype of class {name} moved by {movement:.2f} against its text within 1,024 samples "
    "(threshold {threshold})",
    SILENT: "no sample for {seconds:.0f} seconds",
}
_CLEARED = "{kind} is over"


@dataclass(frozen=True)
class Alarm:
    """An alarm that was raised, or is over, after so many samples of the stream."""

    kind: str
    position: int
    raised: bool
    numbers: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """What it says, in one line."""
        text = _SENTENCES[self.kind] if self.raised else _CLEARED
        return f"after {self.position:,} samples: {text.format(kind=self.kind, **self.numbers)}"

    def as_dict(self) -> dict[str, Any]:
        """As rows and messages have it."""
        about = {"kind": self.kind, "position": self.position, "raised": self.raised}
        return {**about, "sentence": self.sentence, "numbers": dict(self.numbers)}
