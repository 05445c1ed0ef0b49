"""Prompts through a causal text tower, without computing anything twice or for nothing.

In a causal tower a token sees only what comes before it. Every class's prompt begins with the same start token and
context, so their keys and values are computed once instead of once per class. The feature is read at the end token,
so nothing after it is computed, and in the last block no other row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pta.encoders.prompt_tokens import PromptTokens

KeysValues = tuple[Tensor, Tensor]

_TOKENS_AT_ONCE = 2**14  # bounds memory, changes no result
_GROUP_COST = 64  # tokens whose computation takes about as long as starting another group
_PADDING = 1 / 8  # the share of padding that a large group may have


@dataclass(frozen=True)
class CausalBlock:
    """One pre-norm transformer block in parts, each of them …×width to the same shape.

    Attributes:
        heads: how many heads the attention has.
        norm: the norm before the attention.
        query, key, value: projections of the normalised tokens.
        out: the projection of what was attended to.
        mlp: the second norm and the two layers, without the residual.
    """

    heads: int
    norm: Callable[[Tensor], Tensor]
    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]
    value: Callable[[Tensor], Tensor]
    out: Callable[[Tensor], Tensor]
    mlp: Callable[[Tensor], Tensor]

    def keys_values(self, normalised: Tensor) -> KeysValues:
        """…×width to two of …×heads×head."""
        return self._heads(self.key(normalised)), self._heads(self.value(normalised))

    def finish(self, x: Tensor, normalised: Tensor, before: KeysValues, own: KeysValues, visible: Tensor) -> Tensor:
        """The block's output of the tokens `x`, which ask, once all keys and values are known."""
        x = x + self.out(_attend(self._heads(self.query(normalised)), before, own, visible))
        return x + self.mlp(x)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.reshape(*projected.shape[:-1], self.heads, projected.shape[-1] // self.heads)


@dataclass(frozen=True)
class CausalTower:
    """A causal text tower in parts.

    Attributes:
        embed: token ids to token embeddings, without positions.
        positions: what is added to the embeddings, L×width.
        blocks: what the tokens go through.
        project: end tokens …×width after the last block to …×dim unit rows.
    """

    embed: Callable[[Tensor], Tensor]
    positions: Tensor
    blocks: Sequence[CausalBlock]
    project: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Group:
    """Classes of similar length: what follows the context in their prompts, G×s, and where each of them ends, G."""

    ids: Tensor
    ends: Tensor

    def parts(self, contexts: int) -> list["_Group"]:
        """Smaller groups, so that each takes a bounded number of tokens for that many contexts."""
        size = max(1, _TOKENS_AT_ONCE // max(1, contexts * self.ids.shape[1]))
        return [_Group(*part) for part in zip(torch.split(self.ids, size), torch.split(self.ends, size), strict=True)]


class CausalPrompts:
    """Reads contexts B×n×width into unit rows B×C×dim; equal to reading each class's whole prompt."""

    def __init__(self, tower: CausalTower, prompts: PromptTokens) -> None:
        self.tower, self.shared = tower, prompts.shared
        self.lead = prompts.ids[:1, : prompts.lead]
        own = prompts.mask[:, self.shared :].sum(dim=1)
        order = own.argsort(descending=True, stable=True)
        self.place = order.argsort()  # of each class among the classes in that order
        lengths = own[order]
        sizes, ids = group_sizes(lengths.tolist()), prompts.ids[order, self.shared :]
        self.groups = [
            _Group(part[:, : int(length[0])], length - 1)
            for part, length in zip(torch.split(ids, sizes), torch.split(lengths, sizes), strict=True)
        ]

    def __call__(self, contexts: Tensor) -> Tensor:
        """Contexts in the tower's precision, on its device."""
        before = self._read_beginning(contexts)
        parts = [part for group in self.groups for part in group.parts(len(contexts))]
        return torch.cat([self._read_end(part, before) for part in parts], dim=1)[:, self.place]

    def _read_beginning(self, contexts: Tensor) -> list[KeysValues]:
        """Keys and values of start token and context in every block."""
        lead = self.tower.embed(self.lead).expand(len(contexts), -1, -1)
        x = (torch.cat([lead, contexts], dim=1) + self.tower.positions[: self.shared])[:, None]
        visible = x.new_ones(self.shared, self.shared, dtype=torch.bool).tril()
        found: list[KeysValues] = []
        for block in self.tower.blocks:
            normalised = block.norm(x)
            keys, values = block.keys_values(normalised)
            found.append((keys[:, 0], values[:, 0]))
            if len(found) < len(self.tower.blocks):
                x = block.finish(x, normalised, (keys[:, 0, :0], values[:, 0, :0]), (keys, values), visible)
        return found

    def _read_end(self, group: _Group, before: list[KeysValues]) -> Tensor:
        """Features B×G×dim of a group of classes."""
        count, length = group.ids.shape
        positions = self.tower.positions[self.shared : self.shared + length]
        x = (self.tower.embed(group.ids) + positions).expand(len(before[0][0]), -1, -1, -1)
        place = torch.arange(length, device=x.device)
        visible = place <= place[:, None]
        rows = torch.arange(count, device=x.device)
        for block, shared in zip(self.tower.blocks, before, strict=True):
            normalised = block.norm(x)
            own = block.keys_values(normalised)
            if shared is before[-1]:  # nobody asks for the other rows
                x, normalised = (tokens[:, rows, group.ends][:, :, None] for tokens in (x, normalised))
                visible = (place <= group.ends[:, None])[:, None, None]
            x = block.finish(x, normalised, shared, own, visible)
        return self.tower.project(x[:, :, 0])


def group_sizes(lengths: Sequence[int]) -> list[int]:
    """How many classes to read together, for lengths in descending order: as few groups as need little padding.

    >>> group_sizes([13, 5, 5, 4]), group_sizes([6] * 100 + [3] * 100)
    ([4], [133, 67])
    """
    sizes: list[int] = []
    first, tokens = 0, 0  # of the group that is being filled
    for number, length in enumerate(lengths):
        padded = (number - first + 1) * lengths[first]
        if padded - tokens - length > max(_GROUP_COST, _PADDING * padded):
            sizes.append(number - first)
            first, tokens = number, 0
        tokens += length
    return [*sizes, len(lengths) - first]


def _attend(queries: Tensor, before: KeysValues, own: KeysValues, visible: Tensor) -> Tensor:
    """What queries B×G×i×heads×head attend to, B×G×i×width.

    Args:
        queries: of G classes.
        before: keys and values B×j×heads×head that all classes share and every query sees.
        own: keys and values B×G×j×heads×head of each class.
        visible: which of its own a query sees, as broadcast to B×G×heads×i×j.
    """
    scaled = queries * queries.shape[-1] ** -0.5
    to_own = torch.einsum("bgihd,bgjhd->bghij", scaled, own[0]).masked_fill(~visible, -torch.inf)
    scores = torch.cat([torch.einsum("bgihd,bjhd->bghij", scaled, before[0]), to_own], dim=-1)
    of_before, of_own = scores.softmax(dim=-1).tensor_split([before[0].shape[1]], dim=-1)
    mixed = torch.einsum("bghij,bjhd->bgihd", of_before, before[1]) + torch.einsum("bghij,bgjhd->bgihd", of_own, own[1])
    return mixed.flatten(3)
