"""The nearest points as one loop per centre that numba compiles."""

import numpy as np
import torch
from torch import Tensor

from pta.door.compiled import compiled


def nearest_by_numba(clouds: Tensor, centres: Tensor, count: int) -> Tensor:
    """What `nearest_points` gives, for float32 on the host."""
    found = torch.empty(*centres.shape[:2], count, dtype=torch.long)
    _nearest(clouds.mT.contiguous().numpy(), centres.contiguous().numpy(), found.numpy())
    return found


@compiled(nogil=True, error_model="numpy")
def _nearest(axes, centres, found):  # type: ignore[no-untyped-def]
    groups, count = found.shape[1:]
    n = axes.shape[2]
    distances = np.empty(n, np.float32)
    bits = distances.view(np.int32)  # in the same order as the distances, and faster to compare
    least, kept, numbers = np.empty(count, np.int32), np.empty(n + 1, np.int32), np.empty(n + 1, np.int32)
    for cloud in range(len(axes)):
        X, Y, Z = axes[cloud, 0], axes[cloud, 1], axes[cloud, 2]
        for group in range(groups):
            x, y, z = centres[cloud, group, 0], centres[cloud, group, 1], centres[cloud, group, 2]
            for i in range(n):
                distances[i] = (X[i] - x) * (X[i] - x) + (Y[i] - y) * (Y[i] - y) + (Z[i] - z) * (Z[i] - z)

            # Each of `count` columns has a point as near as `most`, so few points are left to choose from.
            for j in range(count):
                least[j] = bits[j]
            for start in range(count, n - count + 1, count):
                for j in range(count):
                    least[j] = min(least[j], bits[start + j])
            low, most, left = least.min(), least.max(), 0
            for i in range(n):
                kept[left], numbers[left] = bits[i], i
                left += bits[i] <= most

            while low < most:  # until they are the distance of the last that is chosen
                middle, within = (low + most) // 2, 0
                for i in range(left):
                    within += kept[i] <= middle
                if within >= count:
                    most = middle
                else:
                    low = middle + 1
            chosen = 0
            for i in range(left):
                if kept[i] < most:
                    found[cloud, group, chosen] = numbers[i]
                    chosen += 1
            for i in range(left):
                if kept[i] == most and chosen < count:
                    found[cloud, group, chosen] = numbers[i]
                    chosen += 1
