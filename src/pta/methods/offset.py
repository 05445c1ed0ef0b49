"""Offset: what is subtracted from features before a method sees them.

`centre`: a share of the mean of the images so far. Features f − λ·m, m the mean of all before, from the 31st sample on.

`panda` and `panda-batch`: a share of the mean feature of negative images (Panda, AAAI 2026,
https://github.com/ruxideng/Panda). A negative is made of patches of different pictures, each at its own place, so that
it shows what the pictures have in common and no object. Features f − β·n̄.

* `panda-batch` is the authors' rule: ⌈B/10⌉ negatives of each batch, each patch from any picture but the base. A batch
  of one, which a stream can end with, takes n̄ of the batch before it.
* `panda` is for streams (ours): every tenth sample one negative of the last 64 pictures; each patch is of a class drawn
  from the zero-shot classes of these, so that a sorted stream does not become its own negative. n̄ moves by 1/min(k, 10)
  at the k-th negative. A sample is shifted by the n̄ known before it, from the third negative on.

A shifted feature keeps its length, which is at most one. The loops: `pta.reference.offset`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import SMALLEST_NORM, Samples
from pta.core.towers import ImageTower, Model
from pta.engines.zero_shot import exact_logits
from pta.errors import InvalidSamples
from pta.methods.state import LARGEST_COUNT, UNIT_BALL, Pieces, between, doubles, full

_CENTRE_FROM = 30  # samples; as many as three negatives take
_RING, _INTERVAL, _USED_FROM, _WINDOW = 64, 10, 3, 10
_PATCH, _GRID = 32, 7  # the authors' patches of 224 pixels, and how many a side of a smaller picture has
_SHIFTED = ("features", "views", "most_confident")


@dataclass
class Offset(ABC):
    """What is subtracted; its state is among the adapter's pieces."""

    share: float
    classifier: ZeroShotClassifier
    pieces: Pieces
    add: InitVar[Callable[..., Tensor]]

    @abstractmethod
    def __post_init__(self, add: Callable[..., Tensor]) -> None: ...  # declare its pieces

    @abstractmethod
    def before(self, samples: Samples, *, learn: bool) -> Samples:
        """The shifted samples; what is learned of them moves the offset of later ones."""

    def contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """What no samples could have led to."""
        return None


def offset_of(
    parameters: Mapping[str, Any],
    classifier: ZeroShotClassifier,
    model: Model | None,
    pieces: Pieces,
    add_state: Callable[..., Tensor],
) -> Offset | None:
    """The offset that the parameters ask for, its state declared by `add_state`."""
    kind, add = parameters["offset"], partial(add_state, per_class=False)
    if kind == "none":
        return None
    if kind == "centre":
        return Centre(parameters["centre_share"], classifier, pieces, add)
    assert model is not None  # it is among the needs
    of_pictures = PandaBatch if kind == "panda-batch" else Panda
    return of_pictures(parameters["negative_share"], classifier, pieces, add, model.image_tower())


class Centre(Offset):
    """A share of the mean of the images so far."""

    def __post_init__(self, add: Callable[..., Tensor]) -> None:
        add("offset_total", doubles(0.0, self.classifier.dim), between(-LARGEST_COUNT, LARGEST_COUNT))

    def before(self, samples: Samples, *, learn: bool) -> Samples:
        """Samples without a share of the mean of those before each."""
        total, count = (self.pieces[name].tensor for name in ("offset_total", "seen"))
        if learn:
            sums = torch.cat([total[None], samples.features.double()]).cumsum(dim=0)  # in the order of a loop
            total.copy_(sums[-1])
            sums, count = sums[:-1], count + torch.arange(len(samples), device=count.device)
        else:
            sums = total
        count = count.double()[..., None]
        mean = torch.where(count < _CENTRE_FROM, 0.0, sums / count.clamp_min(1.0))
        return _without(samples, self.share * mean)

    def contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """No features are longer than one."""
        longest = 1.01 * state["seen"].double() + 1e-6
        possible = torch.linalg.vector_norm(state["offset_total"]) <= longest
        return None if bool(possible) else "the sum of the images is longer than so many images can make it"


@dataclass
class PandaBatch(Offset):
    """The authors' rule: the negatives of a batch, for the samples of the batch."""

    tower: ImageTower

    def __post_init__(self, add: Callable[..., Tensor]) -> None:
        add("offset_mean", doubles(0.0, self.classifier.dim), UNIT_BALL)
        height, width = self.tower.shape[-2:]
        self.patch = min(_PATCH, max(1, min(height, width) // _GRID))
        self.places = (height // self.patch) * (width // self.patch)

    def before(self, samples: Samples, *, learn: bool) -> Samples:
        """Samples without a share of the mean of the batch's negatives; one alone takes that of the batch before."""
        pictures, position = self._pictures(samples), int(self.pieces["seen"].tensor)
        mean = known = self.pieces["offset_mean"].tensor
        if len(samples) > 1:
            mean = self._mean_of(pictures, position).to(known)
        elif not position:
            raise InvalidSamples(
                "offset=panda-batch makes negatives of two or more pictures of a batch; give larger batches, or choose "
                "offset=panda"
            )
        if learn:
            known.copy_(mean)
        return _without(samples, self.share * mean)

    def _mean_of(self, pictures: Tensor, position: int) -> Tensor:
        rng, count, made = np.random.default_rng((position, 0)), len(pictures), []
        for _ in range(-(-count // _INTERVAL)):
            base = int(rng.integers(count))
            sources = rng.integers(count - 1, size=self.places)
            made.append(self.negative(pictures[base], pictures, sources + (sources >= base)))
        return torch.stack(made).mean(dim=0)

    def _pictures(self, samples: Samples) -> Tensor:
        """The pictures of the samples, which must be bytes of the tower's shape."""
        assert samples.raw is not None  # it is among the needs
        self.tower.require_shape(samples.raw)
        if samples.raw.dtype != torch.uint8:
            raise InvalidSamples(f"offset: negative images are made of pixels as bytes, not of {samples.raw.dtype}")
        return samples.raw

    def negative(self, base: Tensor, pictures: Tensor, sources: NDArray[np.int64]) -> Tensor:
        """The feature of one negative, d, float64: every patch of the grid is of the picture with that number."""
        size = self.patch
        down, across = (side // size for side in self.tower.shape[-2:])
        chosen = pictures[torch.from_numpy(sources).to(pictures.device)]  # a picture for each place
        grid = chosen[:, :, : down * size, : across * size].unfold(2, size, size).unfold(3, size, size)
        place = torch.arange(len(sources), device=pictures.device)
        patches = grid[place, :, place // across, place % across]  # places×channels×size×size
        tiled = patches.reshape(down, across, -1, size, size).permute(2, 0, 3, 1, 4)
        made = base.clone()
        made[:, : down * size, : across * size] = tiled.reshape(-1, down * size, across * size)
        return self.tower.features(made[None])[0].double()


class Panda(PandaBatch):
    """The rule for streams: a ring of pictures, and one negative for every ten samples."""

    def __post_init__(self, add: Callable[..., Tensor]) -> None:
        add("offset_ring", full(0, _RING, *self.tower.shape, dtype=torch.uint8), between(0, 255))
        add("offset_classes", full(0, _RING, dtype=torch.int64), between(0, self.classifier.classes - 1))
        super().__post_init__(add)

    def before(self, samples: Samples, *, learn: bool) -> Samples:
        """Samples without a share of the mean known before each."""
        pictures = self._pictures(samples)
        position, ring, classes = (self.pieces[name].tensor for name in ("seen", "offset_ring", "offset_classes"))
        start = int(position)
        if not learn:
            return _without(samples, self._used(start))
        labels = exact_logits(self.classifier, samples.features).argmax(dim=1)
        means, first = [], 0
        while first < len(samples):
            last = min(len(samples), first + _INTERVAL - (start + first) % _INTERVAL)
            means.append(self._used(start + first).expand(last - first, -1))
            slots = (start + torch.arange(first, last, device=ring.device)) % _RING
            ring[slots], classes[slots] = pictures[first:last].to(ring.device), labels[first:last]
            if (start + last) % _INTERVAL == 0:
                self._learn_negative(start + last)
            first = last
        return _without(samples, torch.cat(means))

    def _used(self, position: int) -> Tensor:
        """What is subtracted from the sample after so many."""
        share = self.share if position >= _USED_FROM * _INTERVAL else 0.0
        return self.pieces["offset_mean"].tensor * share

    def _learn_negative(self, position: int) -> None:
        """Move the mean by a negative of the last pictures, after so many samples."""
        rng = np.random.default_rng((position, 1))
        ring, held, mean = (self.pieces[f"offset_{name}"].tensor for name in ("ring", "classes", "mean"))
        last = np.arange(max(0, position - _RING), position) % _RING
        labels = held.cpu().numpy()[last]
        classes = np.unique(labels)
        chosen, uniform = classes[rng.integers(len(classes), size=self.places)], rng.random(self.places)
        members = {int(label): last[labels == label] for label in classes}
        sources = [members[int(c)][int(u * len(members[int(c)]))] for c, u in zip(chosen, uniform, strict=True)]
        negative = self.negative(ring[last[-1]], ring, np.array(sources))
        mean += (negative.to(mean) - mean) / min(position // _INTERVAL, _WINDOW)


def _without(samples: Samples, shift: Tensor) -> Samples:
    """Samples whose features and views are shifted by a vector, or by one for each sample."""
    moved = dict(samples.tensors())
    for name in _SHIFTED:
        if name in moved:
            moved[name] = _shifted(moved[name], shift if moved[name].ndim == 2 or shift.ndim == 1 else shift[:, None])
    return Samples.unchecked(**moved)


def _shifted(rows: Tensor, shift: Tensor) -> Tensor:
    """Rows minus the shift, at most one long; a row of which nothing would be left stays as it is."""
    shift = shift.to(rows.device)
    moved = rows.double() - shift
    lengths = torch.linalg.vector_norm(moved, dim=-1, keepdim=True)
    stays = (lengths < SMALLEST_NORM) | (shift == 0).all(dim=-1, keepdim=True)
    return torch.where(stays, rows, (moved / lengths.clamp_min(1.0)).to(rows.dtype))
