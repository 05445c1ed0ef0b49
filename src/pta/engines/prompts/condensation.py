"""Token condensation: an image tower's tokens, fewer after every condensing block.

The steps are 1 to 4 of TCA (`pta.methods.tca`).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.towers import TokenBlock
from pta.errors import InvalidParameter

_CENTRES = 4


@dataclass(frozen=True)
class Cut:
    """How a block divides its patches, sorted by attention: `kept`, then `merged` to 4 tokens, then `pooled` to one."""

    kept: int
    merged: int
    pooled: int

    @classmethod
    def of(cls, tokens: int, rate: float) -> "Cut":
        """The cut of so many tokens, the class token included.

        >>> Cut.of(197, 0.035)
        Cut(kept=176, merged=14, pooled=6)
        """
        L = math.ceil((1 - rate) * (tokens - 1))
        m = tokens - L
        return cls(L - 2 * m, 2 * m, tokens - 1 - L)

    @property
    def tokens(self) -> int:
        """How many are left, the class token included."""
        return 1 + self.kept + _CENTRES + 1


def cuts_of(tokens: int, rate: float, blocks: Iterable[int]) -> dict[int, Cut]:
    """How each condensing block cuts, where there is something to cut off."""
    cuts = {}
    left = tokens
    for block in blocks:
        cut = Cut.of(left, rate)
        if not cut.pooled:
            continue
        if cut.kept < 0:
            raise InvalidParameter(
                f"rate={rate:g} is too much: block {block} gets {left} tokens, of which {cut.merged + cut.pooled} "
                "would be condensed; give a smaller rate or fewer blocks"
            )
        cuts[block], left = cut, cut.tokens
    return cuts


def condense(block: TokenBlock, x: Tensor, cut: Cut, first: Tensor, anchors: Tensor | None) -> Tensor:
    """A condensing block (steps 2 to 4) on tokens B×N×width, given a first centre each and C×width anchors."""
    if anchors is None:
        attended, probabilities = block.attend(x)
    else:
        attended, probabilities = block.attend(torch.cat([_nearest(x[:, 0], anchors.to(x))[:, None], x], dim=1))
        attended, probabilities = attended[:, 1:], probabilities[:, :, 1:, 1:]
    x = x + attended
    a, by_attention = probabilities[:, :, 0, 1:].double().mean(dim=1).sort(dim=1, descending=True, stable=True)
    patches = x[:, 1:].take_along_dim(by_attention[:, :, None], dim=1)
    kept, to_merge, to_pool = torch.split(patches, [cut.kept, cut.merged, cut.pooled], dim=1)
    pooled = a[:, None, -cut.pooled :].to(x.dtype) @ to_pool
    x = torch.cat([x[:, :1], kept, merge(to_merge, first), pooled], dim=1)
    return x + block.mlp(x)


def _nearest(tokens: Tensor, anchors: Tensor) -> Tensor:
    """Of the anchors the one with the largest cosine to each token, decided in float64."""
    cosines = normalize(tokens.double(), dim=1) @ normalize(anchors.double(), dim=1).T
    return anchors[cosines.argmax(dim=1)]


def merge(tokens: Tensor, first: Tensor) -> Tensor:
    """B×n×width tokens to B×4×width: centres by farthest-first, means by inverse distance."""

    def distances_from(centre: Tensor) -> Tensor:
        away = tokens - tokens.take_along_dim(centre[:, None, None], dim=1)
        return torch.linalg.vector_norm(away, dim=2, dtype=torch.float64)

    centres, distances = [first], [distances_from(first)]
    for _ in range(_CENTRES - 1):
        centres.append(torch.stack(distances).amin(dim=0).argmax(dim=1))
        distances.append(distances_from(centres[-1]))
    d = torch.stack(distances, dim=1)  # B×4×n
    own = d.argmin(dim=1)[:, None] == torch.arange(_CENTRES, device=d.device)[:, None]
    weights = torch.where(d == 0, 1.0, 1 / d) * own
    total = weights.sum(dim=2, keepdim=True)
    means = (weights / total.clamp_min(torch.finfo(d.dtype).tiny)).to(tokens.dtype) @ tokens
    # A centre that equals an earlier one, as in four equal patches, has no patches of its own and stays what it is.
    alone = tokens.take_along_dim(torch.stack(centres, dim=1)[:, :, None], dim=1)
    return torch.where(total > 0, means, alone)
