"""Blocks: consecutive samples of a stream, cut by their numbers, whatever order they arrive in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.labels import NONE, UNKNOWN, Labels
from pta.core.parameters import require_count
from pta.core.plain import plain_tensor
from pta.core.samples import Samples
from pta.errors import InvalidSamples

USUAL_SIZE = 65_536
AT_ONCE = 256  # rows, what the caches hold
_LARGEST_NUMBER = 2**53


@dataclass(frozen=True)
class Block:
    """The samples with the numbers start…start+count−1; those without features could not be read."""

    start: int
    count: int
    numbers: Tensor  # n, int64, ascending: the samples that have features
    features: Tensor  # n×d, none longer than one
    labels: Labels | None = None  # n class numbers to be learned, or UNKNOWN, or NONE: answered and not learned
    zero_shot: Tensor | None = None  # n×C logits, if they are kept

    @classmethod
    def of(cls, start: int, count: int, numbers: object, features: object, failed: Sequence[int] = ()) -> "Block":
        """A block of rows in any order. The numbers and those that `failed` must be all of the block, each once."""
        start = require_count("the first number of a block", start, 0, _LARGEST_NUMBER)
        count = require_count("the count of a block", count, 0, _LARGEST_NUMBER - start)
        return cls(start, count, *_in_order(start, count, numbers, features, failed))

    def __len__(self) -> int:
        return len(self.numbers)

    def with_labels(self, labels: Mapping[int, int]) -> "Block":
        """The same with the labels of some samples, by their numbers."""
        return replace(self, labels=np.array([labels.get(one, UNKNOWN) for one in self.numbers.tolist()], np.int64))

    def scored(self, classifier: ZeroShotClassifier) -> "Block":
        """The same with zero-shot logits."""
        logits = classifier.anchors.new_empty(len(self), classifier.classes)
        for first in range(0, len(self), AT_ONCE):
            rows = slice(first, first + AT_ONCE)
            logits[rows] = classifier.logits(self.features[rows].to(logits))
        return replace(self, zero_shot=logits)

    def logits_of(self, first: int, last: int) -> Tensor | None:
        """A copy of the zero-shot logits of some rows, if they are kept."""
        return None if self.zero_shot is None else self.zero_shot[first:last].clone()

    def labels_of(self, first: int, last: int) -> Labels | None:
        """The labels of some rows, if there are any."""
        return None if self.labels is None else self.labels[first:last]

    @property
    def learned(self) -> "Block":
        """The same without the samples that are answered and not learned."""
        if self.labels is None or not (self.labels == NONE).any():
            return self
        kept = np.flatnonzero(self.labels != NONE)
        numbers, features = self.numbers[kept], self.features[kept]
        return replace(self, numbers=numbers, features=features, labels=self.labels[kept], zero_shot=None)


def cut(
    numbers: object,
    features: object,
    size: int = USUAL_SIZE,
    failed: Sequence[int] = (),
    labels: Mapping[int, int] | None = None,
) -> list[Block]:
    """Blocks of at most `size` numbers, of a whole stream that is numbered from 0 and is in memory.

    Labels that are learned are class numbers (or NONE) by the numbers of their samples.
    """
    size = require_count("the size of a block", size, 1, _LARGEST_NUMBER)
    total = len(_whole_numbers(numbers)) + len(_whole_numbers(failed))
    given, rows = _in_order(0, total, numbers, features, failed)
    if labels:
        labelled, classes = (_whole_numbers([*one]).tolist() for one in (labels, labels.values()))
        if unknown := {*labelled} - {*given.tolist()}:
            raise InvalidSamples(f"sample {min(unknown)} has a label, but no features")
        labels = dict(zip(labelled, classes, strict=True))
    blocks = []
    for start in range(0, total, size):
        count = min(size, total - start)
        first, last = torch.searchsorted(given, torch.tensor([start, start + count])).tolist()
        block = Block(start, count, given[first:last], rows[first:last])
        blocks.append(block.with_labels(labels) if labels else block)
    return blocks


def in_blocks(count: int, size: int) -> list[range]:
    """The rows of each block of at most so many rows."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def require_whole_stream(parts: Iterable[tuple[int, int]]) -> None:
    """Refuse blocks, each its first number and count in order, that are not a stream from 0 on."""
    end = 0
    for start, count in parts:
        if start != end:
            wrong = f"sample {end} is missing" if start > end else f"sample {start} comes twice"
            raise InvalidSamples(f"{wrong}: blocks must follow each other without gaps")
        end += count


def _in_order(
    start: int, count: int, numbers: object, features: object, failed: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Numbers, ascending, and their features."""
    given, without = (_whole_numbers(one) for one in (numbers, failed))
    _require_each_once(torch.cat([given, without]), start, count)
    if not len(given):
        return given, torch.zeros(0, 0)
    rows = (features if isinstance(features, Samples) else Samples.of(features)).features.detach()
    if len(rows) != len(given):
        raise InvalidSamples(f"there are {len(given)} numbers for {len(rows)} features")
    if bool((given.diff() > 0).all()):
        return given, rows
    order = given.argsort()
    return given[order], rows[order]


def _require_each_once(numbers: Tensor, start: int, count: int) -> None:
    """Refuse numbers that are not start…start+count−1, naming the first that is wrong."""
    found = np.sort(numbers.numpy())
    if len(found) and not start <= found[0] <= found[-1] < start + count:
        wrong = found[0] if found[0] < start else found[-1]
        raise InvalidSamples(f"sample {wrong} is not in the block of samples {start}…{start + count - 1}")
    expected = start + np.arange(len(found))
    wrong = np.flatnonzero(found != expected)
    if len(wrong) and found[wrong[0]] < expected[wrong[0]]:
        raise InvalidSamples(f"sample {found[wrong[0]]} comes twice")
    if len(wrong) or len(found) < count:
        raise InvalidSamples(f"sample {start + int(wrong[0] if len(wrong) else len(found))} is missing")


def _whole_numbers(given: object) -> Tensor:
    tensor = plain_tensor("numbers", given, InvalidSamples)
    if tensor.ndim != 1 or (len(tensor) and (tensor.is_floating_point() or tensor.dtype == torch.bool)):
        raise InvalidSamples(f"numbers must be a list of whole numbers, got {tuple(tensor.shape)} {tensor.dtype}")
    return tensor.cpu().to(torch.int64)
