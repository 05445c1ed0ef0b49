"""Monitors as they were saved before: whole arrays, and the logits and answers of each sample of a block."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.monitor.memory import MOST_SOURCES
from pta.monitor.scores import BLOCK

_SAME = ("counts", "ring_sums", "total_sums", "reference", "evidence", "answered", "cosines")


def converted(
    tensors: Mapping[str, Tensor], about: Any, classes: int
) -> tuple[dict[str, Tensor], Any, NDArray[np.float32] | None]:
    """What `Memory.unpack` takes and checks, and the logits of the block that is not full; no tensors if damaged."""
    try:
        old = {name: one.numpy() for name, one in tensors.items()}
        count = int(old["counts"][0]) % BLOCK
        logits = old["pending_zero_shot"][:count]
        if logits.dtype != np.float32 or logits.shape != (count, classes) or not np.isfinite(logits).all():
            raise ValueError("logits of other classes")
        pending, recent = old["pending"][:count].astype(np.int32), old["recent"].copy()
        for numbers in (pending[:, 2], recent[:, 0]):  # the others were number 32
            is_known = (numbers >= 0) & (numbers <= MOST_SOURCES)
            numbers[is_known] = (numbers[is_known] + 1) % (MOST_SOURCES + 1)
        weights = old["weights"].T[[MOST_SOURCES, *range(MOST_SOURCES)]]
        new = {name: old[name] for name in (*_SAME, "movement")} | {
            "pending_features": old["pending_features"][:count],
            "pending_zero_shot": logits[:0],
            "pending": pending,
            "pending_scores": np.zeros((0, 6)),
            "pending_sums": old["pending_answers"][:count].sum(axis=0, keepdims=True, dtype=np.float64),
            "ring_answers": old["ring_answers"].astype(np.float32),
            "recent": recent,
            "totals": np.concatenate([old["total_answers"], old["prior"][:1]]),
            "prior_sums": old["prior_sums"][:2],
            "weights": weights[: 1 + len(about["sources"])],
        }
        about = {**about, "window": BLOCK * len(old["ring_sums"])}
        return {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in new.items()}, about, logits
    except (KeyError, IndexError, ValueError, TypeError):
        return {}, about, None
