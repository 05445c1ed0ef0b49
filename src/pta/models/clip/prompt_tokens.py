"""The prompts of a prompt tower as tokens: the same beginning for every class, then the class's own tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from pta.errors import InvalidParameter, naming

Tokenize = Callable[[Sequence[str]], tuple[Tensor, Tensor]]


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
    names = _require_names(class_names)
    if not isinstance(start, str) or not start.strip():
        raise InvalidParameter(f"start must be the words that every prompt begins with, not {start!r}")
    start = start.strip()
    (empty,), (empty_mask,) = tokenize([""])
    lead = int(empty_mask.sum()) - 1  # what surrounds a text, less the end token
    (beginning,) = _rows(*tokenize([start]))
    beginning.pop()  # the end token
    if len(beginning) <= lead:
        raise InvalidParameter(f"start {start!r} has no tokens; give words such as 'a photo of a'")
    ids, mask = _tokenize_named(tokenize, names, [f"{start} {name.replace('_', ' ')}." for name in names])
    has_fixed_length = len(empty) == ids.shape[1]
    for name, row in zip(names, _rows(ids, mask), strict=True):
        if row[: len(beginning)] != beginning:
            raise InvalidParameter(f"the prompt of class {name!r} does not begin with the tokens of {start!r}")
        if has_fixed_length and len(row) == len(empty):  # such tokenizers cut what is too long without saying so
            raise InvalidParameter(f"the prompt of class {name!r} fills all {len(row)} tokens of the tower; shorten it")
        if len(row) == len(beginning) + 1:
            raise InvalidParameter(f"the prompt of class {name!r} has no tokens after {start!r}; give another name")
    return PromptTokens(ids, mask, lead, len(beginning))


def _require_names(class_names: Sequence[str]) -> list[str]:
    if isinstance(class_names, str):
        raise InvalidParameter(f"class names must be a list of strings, not the string {class_names!r}")
    names = list(class_names)
    if not names:
        raise InvalidParameter("a prompt tower needs at least one class name, got none")
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name.replace("_", " ").strip():
            raise InvalidParameter(f"class name {number} must be a string that is not blank, not {name!r}")
    return names


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
