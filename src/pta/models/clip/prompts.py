"""The prompts of a prompt tower, as tokens and through a causal text tower.

Every class's prompt begins with the same start token and context. In a causal tower a token sees only what comes before
it, so nothing is computed twice or for nothing: keys and values of the beginning are computed once instead of once per
class. The feature is read at the end token, so nothing after it is computed, and in the last block no other row. All
layers but the attention take the tokens of many classes in one row, without padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, replace

import torch
from torch import Tensor

from pta.errors import InvalidParameter, naming

Tokenize = Callable[[Sequence[str]], tuple[Tensor, Tensor]]
Layer = Callable[[Tensor], Tensor]
KeysValues = tuple[Tensor, Tensor]

_MOST_TOKENS = 2**14  # bounds memory, changes no result


@dataclass(frozen=True)
class PromptTokens:
    """One prompt per class."""

    ids: Tensor  # C×L
    mask: Tensor  # C×L, False where a row is padded
    lead: int  # how many tokens stand before the context: 1 if the tower has a start token, else 0
    shared: int  # how many tokens every prompt begins with: the start token and the context

    def of(self, classes: Tensor) -> "PromptTokens":
        """The prompts of some of the classes, by their numbers; padded to the longest if all were."""
        length = int(self.mask[classes].any(dim=0).sum()) if self.mask[:, -1].any() else None
        return replace(self, ids=self.ids[classes, :length], mask=self.mask[classes, :length])


def tokenize_prompts(tokenize: Tokenize, class_names: Sequence[str], start: str) -> PromptTokens:
    """The tokens of "{start} {name}." for every class, underscores of a name replaced by spaces."""
    start = start.strip()
    (empty,), (empty_mask,) = tokenize([""])
    lead = int(empty_mask.sum()) - 1  # what surrounds a text, less the end token
    (beginning,) = _rows(*tokenize([start]))
    beginning.pop()  # the end token
    if len(beginning) <= lead:
        raise InvalidParameter(f"start {start!r} has no tokens; give words such as 'a photo of a'")
    ids, mask = _tokenize_named(tokenize, class_names, [f"{start} {name.replace('_', ' ')}." for name in class_names])
    has_fixed_length = len(empty) == ids.shape[1]
    for name, row in zip(class_names, _rows(ids, mask), strict=True):
        if row[: len(beginning)] != beginning:
            raise InvalidParameter(f"the prompt of class {name!r} does not begin with the tokens of {start!r}")
        if has_fixed_length and len(row) == len(empty):  # such tokenizers cut what is too long without saying so
            raise InvalidParameter(f"the prompt of class {name!r} fills all {len(row)} tokens of the tower; shorten it")
        if len(row) == len(beginning) + 1:
            raise InvalidParameter(f"the prompt of class {name!r} has no tokens after {start!r}; give another name")
    return PromptTokens(ids, mask, lead, len(beginning))


def _tokenize_named(tokenize: Tokenize, names: Sequence[str], prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """All prompts at once; if one is refused, with the name of its class."""
    try:
        return tokenize(prompts)
    except InvalidParameter:
        for name, prompt in zip(names, prompts, strict=True):
            with naming(f"class {name!r}"):
                tokenize([prompt])
        raise


def _rows(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The ids of each row without its padding."""
    return [row[:length] for row, length in zip(ids.tolist(), mask.sum(dim=1).tolist(), strict=True)]


@dataclass(frozen=True)
class CausalBlock:
    """One pre-norm transformer block in parts, each of them …×width to the same shape."""

    heads: int
    norm: Layer  # before the attention
    query: Layer
    key: Layer
    value: Layer
    out: Layer  # of what was attended to
    mlp: Layer  # the second norm and the two layers, without the residual

    def queries(self, normalised: Tensor) -> Tensor:
        """…×width to …×heads×head."""
        return self._heads(self.query(normalised))

    def keys_values(self, normalised: Tensor) -> KeysValues:
        """…×width to two of …×heads×head."""
        return self._heads(self.key(normalised)), self._heads(self.value(normalised))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's output, of its input and what that attended to."""
        x = x + self.out(attended)
        return x + self.mlp(x)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.reshape(*projected.shape[:-1], self.heads, projected.shape[-1] // self.heads)


class _Endings:
    """What follows the context in the prompts of G classes: T tokens in one row, or padded to G×s for the attention."""

    def __init__(self, ids: Tensor, mask: Tensor, shared: int) -> None:
        self.ids, self.mask = ids[mask], mask  # T; G×s, False where a class is padded
        self.ends = mask.sum(dim=1).cumsum(dim=0) - 1  # where the G end tokens are in the row
        self.positions = shared + mask.nonzero()[:, 1]  # T, in their prompts
        self._kept = mask.flatten().nonzero()[:, 0]
        self._source = mask.flatten().cumsum(dim=0) - 1  # padding repeats the end token, which is not seen there

    def padded(self, row: Tensor) -> Tensor:
        """B×T×… to B×G×s×…"""
        return row.index_select(1, self._source).reshape(len(row), *self.mask.shape, *row.shape[2:])

    def in_one_row(self, padded: Tensor) -> Tensor:
        """B×G×s×width to B×T×width."""
        return padded.flatten(1, 2).index_select(1, self._kept)


@dataclass
class CausalPrompts:
    """Reads contexts B×n×width into unit rows B×C×dim; equal to reading each class's whole prompt."""

    prompts: InitVar[PromptTokens]
    embed: Layer  # token ids to token embeddings, without positions
    positions: Tensor  # what is added to the embeddings, L×width
    blocks: Sequence[CausalBlock]
    project: Layer  # end tokens …×width after the last block to …×dim unit rows

    def __post_init__(self, prompts: PromptTokens) -> None:
        self.shared = prompts.shared
        self.lead = prompts.ids[:1, : prompts.lead]
        ids, mask = prompts.ids[:, self.shared :], prompts.mask[:, self.shared :]
        by_length = mask.sum(dim=1).argsort(descending=True, stable=True)
        self.place = by_length.argsort()
        lengths = mask.sum(dim=1)[by_length].tolist()
        self.groups = [
            _Endings(ids[classes, : lengths[first]], mask[classes, : lengths[first]], self.shared)
            for first, classes in _groups(by_length, lengths)
        ]
        self.most_contexts = max(1, _MOST_TOKENS // sum(lengths))

    def __call__(self, contexts: Tensor) -> Tensor:
        """Contexts are in the tower's precision, on its device."""
        beginnings = map(self._read_beginning, torch.split(contexts, self.most_contexts))
        read = [torch.cat([self._read_endings(group, own) for group in self.groups], dim=1) for own in beginnings]
        return torch.cat(read)[:, self.place]

    def _read_beginning(self, contexts: Tensor) -> list[KeysValues]:
        """Keys and values of start token and context in every block, B×tokens×heads×head."""
        lead = self.embed(self.lead).expand(len(contexts), -1, -1)
        x = torch.cat([lead, contexts], dim=1) + self.positions[: self.shared]
        visible = _causal(self.shared, x.device)
        found: list[KeysValues] = []
        for block in self.blocks:
            normalised = block.norm(x)
            keys, values = block.keys_values(normalised)
            found.append((keys, values))
            if block is not self.blocks[-1]:
                nothing = keys[:, :0], values[:, :0]
                own = keys[:, None], values[:, None]
                x = block.finish(x, _attend(block.queries(normalised)[:, None], nothing, own, visible)[:, 0])
        return found

    def _read_endings(self, group: _Endings, shared: list[KeysValues]) -> Tensor:
        """Features B×G×dim of a group of classes."""
        contexts = len(shared[0][0])
        x = (self.embed(group.ids) + self.positions[group.positions]).expand(contexts, -1, -1)
        visible = _causal(group.mask.shape[1], x.device)
        for block, before in zip(self.blocks, shared, strict=True):
            normalised = block.norm(x)
            keys, values = block.keys_values(normalised)
            own = group.padded(keys), group.padded(values)
            if block is self.blocks[-1]:  # only the end tokens are read
                x = x.index_select(1, group.ends)
                queries = block.queries(normalised.index_select(1, group.ends))[:, :, None]
                attended = _attend(queries, before, own, group.mask[:, None, None])[:, :, 0]
            else:
                attended = group.in_one_row(_attend(group.padded(block.queries(normalised)), before, own, visible))
            x = block.finish(x, attended)
        return self.project(x)


def _groups(by_length: Tensor, lengths: Sequence[int]) -> list[tuple[int, Tensor]]:
    """Classes to read together, and the number of the first: none is less than half as long as the longest."""
    starts = [0]
    for number, length in enumerate(lengths):
        longest = lengths[starts[-1]]
        if 2 * length < longest or (number - starts[-1] + 1) * longest > _MOST_TOKENS:
            starts.append(number)
    return list(zip(starts, by_length.tensor_split(starts[1:]), strict=True))


def _causal(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _attend(queries: Tensor, before: KeysValues, own: KeysValues, visible: Tensor) -> Tensor:
    """What queries B×G×i×heads×head of G classes attend to, B×G×i×width.

    Every query sees all keys and values `before`, B×j×heads×head, which all classes share. Of its class's own,
    B×G×j×heads×head, it sees those that are visible, as broadcast to B×G×heads×i×j.
    """
    queries = queries * queries.shape[-1] ** -0.5
    to_own = torch.einsum("bgihd,bgjhd->bghij", queries, own[0]).masked_fill(~visible, -torch.inf)
    scores = torch.cat([torch.einsum("bgihd,bjhd->bghij", queries, before[0]), to_own], dim=-1)
    of_before, of_own = scores.softmax(dim=-1).tensor_split([before[0].shape[1]], dim=-1)
    mixed = torch.einsum("bghij,bjhd->bgihd", of_before, before[1]) + torch.einsum("bghij,bgjhd->bgihd", of_own, own[1])
    return mixed.flatten(3)
