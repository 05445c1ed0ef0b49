"""What a state has learned: of each piece the rows that are not those of a new adapter, bit for bit.

Streams that rest keep this alone, in memory and in snapshots. What all streams share before their first sample, such as
the text anchors, is there once.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor

from pta.errors import StateMismatch
from pta.methods import Adapter
from pta.methods.state import Snapshot

_ROWS = ".rows"  # how the name of a tensor ends in a file that has the numbers of a piece's rows
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Learned(NamedTuple):
    """Of pieces by their names: some rows of each with the numbers of these, or the whole piece without numbers."""

    values: dict[str, Tensor]
    rows: dict[str, Tensor]

    @property
    def size(self) -> int:
        """The bytes of all."""
        return sum(tensor.nbytes for part in self for tensor in part.values())

    def packed(self) -> dict[str, Tensor]:
        """The tensors of a file."""
        return {**self.values, **{name + _ROWS: rows for name, rows in self.rows.items()}}

    @classmethod
    def unpacked(cls, tensors: Mapping[str, Tensor]) -> Self:
        """From the tensors of a file, unchecked."""
        rows = {name.removesuffix(_ROWS): tensor for name, tensor in tensors.items() if name.endswith(_ROWS)}
        return cls({name: tensor for name, tensor in tensors.items() if not name.endswith(_ROWS)}, rows)


class Adapters:
    """Adapters of one method and classifier. Those that are given back are used again.

    To free their memory and to take as much anew would leave gaps in it that nothing fits into.

    Args:
        new: an adapter with nothing learned.
    """

    def __init__(self, new: Adapter) -> None:
        self._new, self._start = new, new.state()
        self._free: list[Adapter] = []

    @property
    def size(self) -> int:
        """The bytes of a state."""
        return sum(tensor.nbytes for tensor in self._start.values())

    def new(self) -> Adapter:
        """One with nothing learned."""
        try:
            return self._free.pop()
        except IndexError:
            return self._new.clone()

    def learned(self, adapter: Adapter) -> Learned:
        """Copies of what one has learned."""
        learned = Learned({}, {})
        for name, tensor in adapter.state().items():
            start = self._start[name]
            if tensor.shape != start.shape or not tensor.ndim:
                learned.values[name] = tensor.clone()
                continue
            differ = (_bits(tensor) != _bits(start)).reshape(len(tensor), -1).any(dim=1).nonzero()[:, 0]
            if len(differ):
                learned.values[name], learned.rows[name] = tensor[differ], differ
        return learned

    def give_back(self, adapter: Adapter, learned: Learned) -> None:
        """One that has learned this is not used any more."""
        rows = learned.rows
        first = {name: start[rows[name]] if name in rows else start for name, start in self._start.items()}
        adapter.put_rows({name: first[name] for name in learned.values}, rows)
        self._free.append(adapter)

    def checked(self, learned: Learned, source: object) -> Adapter:
        """One that has learned what a file says, if samples could teach it."""
        if not learned.rows.keys() <= learned.values.keys() <= self._start.keys():
            raise StateMismatch(f"{source} does not hold what {self._new.name} keeps; the snapshot is damaged")
        whole = {name: _with_rows(start, learned, name, source) for name, start in self._start.items()}
        adapter, like = self.new(), self._new
        adapter.restore(Snapshot(like.name, like.parameters, like.classifier, whole))
        return adapter


def _with_rows(start: Tensor, learned: Learned, name: str, source: object) -> Tensor:
    """A whole piece, if the numbers of its rows are some."""
    values, rows = learned.values.get(name), learned.rows.get(name)
    if values is None or rows is None:
        return start if values is None else values
    like = values.dtype, values.shape[1:], rows.dtype, rows.shape
    fits = start.ndim and like == (start.dtype, start.shape[1:], torch.int64, values.shape[:1]) and len(rows)
    if not fits or int(rows[0]) < 0 or int(rows[-1]) >= len(start) or bool((rows.diff() <= 0).any()):
        raise StateMismatch(f"{source}: the rows of {name} are not those of a state; the snapshot is damaged")
    return start.index_copy(0, rows, values)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_INTEGERS[tensor.element_size()])
