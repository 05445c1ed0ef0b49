"""The refreshes of a state, counted on the host: a recorded step does all its other work on the device."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.methods.state import Owner


@dataclass
class Refreshes:
    """When refreshes are due. The position is read from a GPU only the first time, and counted from there."""

    _adapter: Owner
    _position: int | None = None  # if the host knows it

    def state_replaced(self) -> None:
        """Read the position again."""
        self._position = None

    def within(self, count: int) -> list[int]:
        """After how many of the next `count` samples a refresh is due."""
        if self._position is None or is_host_readable(self._adapter.seen):
            self._position = int(self._adapter.seen)
        due, position = [], self._adapter.next_refresh(self._position)
        while position <= self._position + count:
            due.append(position - self._position)
            position = self._adapter.next_refresh(position)
        return due

    def count(self, samples: int) -> None:
        """Add samples that were learned to the host's position."""
        if self._position is not None:
            self._position += samples

    def step(self, step: Callable[[Samples], Tensor], samples: Samples) -> Tensor:
        """The logits of a step that is interrupted by every refresh that is due."""
        due, parts = self.within(len(samples)), []
        for begin, end in pairwise(sorted({0, *due, len(samples)})):
            parts.append(step(samples[begin:end] if due else samples))
            self.count(end - begin)
            if end in due:
                self._adapter.refresh_state()
        return parts[0] if len(parts) == 1 else torch.cat(parts)
