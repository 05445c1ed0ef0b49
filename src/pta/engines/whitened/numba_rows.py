"""Prototypes in one pass over memory, compiled by numba, with the bits of `Layer`'s own operations."""

import numpy as np

from pta.door.compiled import compiled


@compiled(nogil=True)  # without fused multiply-adds, which round differently
def rows_around(classes, sums, weights, centre, texts):  # type: ignore[no-untyped-def]
    """The sums of some classes around the centre, and the texts' part."""
    rows = np.empty((len(classes), len(centre)), texts.dtype)
    for k in range(len(classes)):
        own, text, weight, row = sums[classes[k]], texts[classes[k]], weights[classes[k]], rows[k]
        for j in range(len(centre)):
            row[j] = texts.dtype.type(own[j] - weight * centre[j]) + text[j]
    return rows
