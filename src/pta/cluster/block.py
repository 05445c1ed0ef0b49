"""Blocks: consecutive samples of a stream, cut by their numbers, whatever order they arrive in."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pta.errors import InvalidSamples, shown
from pta.plain import plain_tensor
from pta.samples import Samples

USUAL_SIZE = 65_536


@dataclass(frozen=True)
class Block:
    """The samples with the numbers start…start+count−1; those without features could not be read."""

    start: int
    count: int
    numbers: Tensor  # n, int64, ascending: the samples that have features
    features: Tensor  # n×d unit rows

    @classmethod
    def of(cls, start: int, count: int, numbers: object, features: object, failed: Iterable[int] = ()) -> "Block":
        """A block of rows in any order. The numbers and those that `failed` must be all of the block, each once."""
        raise NotImplementedError


def cut(numbers: object, features: object, size: int = USUAL_SIZE, failed: Iterable[int] = ()) -> list[Block]:
    """Blocks of at most `size` numbers, of a whole stream that is numbered from 0 and is in memory."""
    raise NotImplementedError
