"""Labels that a person gives to samples: class numbers, and what stands where there is no class.

They are an argument of their own, never a part of `Samples`, so that no evaluation learns them by accident.
"""

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch
from numpy.typing import NDArray

from pta.core.plain import plain_tensor
from pta.errors import InvalidSamples, shown

UNKNOWN = -1
NONE = -2  # of the classes: such a sample is answered and not learned; `Adapter.step` does not take it
Labels = NDArray[np.int64]


def require_labels(labels: object, count: int, classes: int) -> Labels:
    """One whole number per sample, if each is a class or UNKNOWN."""
    if isinstance(labels, Sequence) and not isinstance(labels, str):
        for row, one in enumerate(labels):
            if isinstance(one, bool) or not isinstance(one, Integral | np.integer):
                raise InvalidSamples(f"label {row} must be a class number, or -1 if it is unknown, got {shown(one)}")
    if isinstance(labels, np.ma.MaskedArray):
        raise InvalidSamples("labels are a masked array, whose masked numbers would count; give -1 where unknown")
    numbers = plain_tensor("labels", labels, InvalidSamples)
    if numbers.dtype.is_floating_point or numbers.dtype == torch.bool:
        raise InvalidSamples(f"labels must be whole numbers, got {numbers.dtype}")
    if numbers.shape != (count,):
        raise InvalidSamples(f"there must be one label per sample, {count}, got shape {tuple(numbers.shape)}")
    given = numbers.cpu().numpy()
    found = given.astype(np.int64)
    for row in np.flatnonzero((found < UNKNOWN) | (found >= classes) | (found != given))[:1]:
        raise InvalidSamples(f"label {row} is {given[row]}, but classes are 0…{classes - 1}, and -1 is unknown")
    return found
