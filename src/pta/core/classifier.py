"""ZeroShotClassifier: class names and text anchors, the input of every method."""

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pta.core.parameters import plain_number
from pta.core.plain import plain_tensor
from pta.errors import InvalidParameter, first_line, shown

_LARGEST = 1e4  # of scale and bias; logits then stay far below the limit of float32
_OF_MODERATE_SIZE = 1e15  # squares of entries between its inverse and it fit into float32


@dataclass(frozen=True, init=False, eq=False)
class ZeroShotClassifier:
    """C classes, each with a unit text embedding (its anchor), scored by scaled cosine.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 2.0]], ["cat", "dog"])
    >>> classifier.logits(torch.tensor([[0.25, 0.75]]))
    tensor([[25., 75.]])
    """

    anchors: Tensor  # T, C×d; rows are scaled to unit length
    class_names: tuple[str, ...]
    scale: float  # the factor on the cosine (CLIP: 100, the inverse temperature 1/τ)
    bias: float  # added to every logit (SigLIP has one; it does not change the argmax)
    # The texts of each class behind its anchor, if known. They do not count when classifiers are compared.
    prompts: tuple[tuple[str, ...], ...] | None
    # Unit features of P prompts of each class, C×P×d, for methods that choose among them.
    prompt_features: Tensor | None

    def __init__(
        self,
        anchors: object,
        class_names: Sequence[str],
        scale: float = 100.0,
        bias: float = 0.0,
        *,
        prompts: Iterable[Iterable[str]] | None = None,
        prompt_features: object = None,
    ) -> None:
        unit = _unit_anchors(anchors)
        vars(self).update(
            anchors=unit,
            class_names=_texts("class names", class_names),
            scale=plain_number(scale),
            bias=plain_number(bias),
            prompts=None if prompts is None else _prompts(prompts),
            prompt_features=None if prompt_features is None else _unit_prompts(prompt_features, unit),
        )
        if len(self.class_names) != self.classes:
            raise InvalidParameter(f"{self.classes} anchors but {len(self.class_names)} class names")
        if self.prompts is not None and len(self.prompts) != self.classes:
            raise InvalidParameter(f"{self.classes} anchors but prompts of {len(self.prompts)} classes")
        if not 0.0 < self.scale <= _LARGEST:
            raise InvalidParameter(f"scale must be a number above 0 and up to {_LARGEST:g}, got {shown(scale)}")
        if not abs(self.bias) <= _LARGEST:
            raise InvalidParameter(f"bias must be a number from {-_LARGEST:g} to {_LARGEST:g}, got {shown(bias)}")

    @property
    def classes(self) -> int:
        """The number of classes C."""
        return self.anchors.shape[0]

    @property
    def dim(self) -> int:
        """The length d of an anchor."""
        return self.anchors.shape[1]

    @cached_property
    def exact_anchors(self) -> Tensor:
        """The anchors in float64, which are kept: to convert them takes longer than their product with one sample."""
        return self.anchors.double()

    @cached_property
    def exact_prompt_features(self) -> Tensor:
        """The features of the prompts in float64, which are kept too."""
        assert self.prompt_features is not None  # a method asks for them only if it needs prompts
        return self.prompt_features.double()

    @cached_property
    def exact_prompt_products(self) -> Tensor:
        """The products of the prompts of each class with each other, C×P×P, which are kept too."""
        return self.exact_prompt_features @ self.exact_prompt_features.mT

    def __getstate__(self) -> dict[str, object]:
        """What copies and pickles have: all but what follows from the rest."""
        return {name: value for name, value in vars(self).items() if not name.startswith("exact_")}

    @property
    def fingerprint(self) -> str:
        """A hash of anchors, features of prompts (as float32), names, scale and bias; equal if and only if they are."""
        digest = hashlib.sha256(self.anchors.float().cpu().numpy().tobytes())
        if self.prompt_features is not None:
            digest.update(self.prompt_features.float().cpu().numpy().tobytes())
        digest.update(repr((self.class_names, self.scale, self.bias, self.dim)).encode())
        return digest.hexdigest()[:16]

    def part(self, classes: Iterable[int]) -> "ZeroShotClassifier":
        """The classifier of some of the classes, by their numbers."""
        part, rows = copy(self), list(classes)
        for name in ("anchors", "prompt_features"):
            tensor = vars(self)[name]
            vars(part)[name] = None if tensor is None else tensor[rows]
        for name in ("class_names", "prompts"):
            texts = vars(self)[name]
            vars(part)[name] = texts and tuple(texts[row] for row in rows)
        return part

    def logits(self, features: Tensor) -> Tensor:
        """z = scale·F·Tᵀ + bias, B×C."""
        z = (features * self.scale) @ self.anchors.T  # scaling B×d numbers is cheaper than B×C
        return z.add_(self.bias) if self.bias else z

    def scores(self, cosines: Tensor) -> Tensor:
        """Cosines with any prototypes as logits of this classifier."""
        return cosines * self.scale + self.bias if self.bias else cosines * self.scale

    def to(self, *, device: torch.device | None = None, dtype: torch.dtype | None = None) -> "ZeroShotClassifier":
        """The same classifier on another device or in another precision."""
        bank = self.prompt_features
        try:
            anchors = self.anchors.to(device=device, dtype=dtype)
            bank = None if bank is None else bank.to(device=device, dtype=dtype)
        except (TypeError, RuntimeError, AssertionError) as error:  # torch asserts that it was built for a device
            raise InvalidParameter(f"anchors cannot be moved: {first_line(error)}") from None
        if anchors.dtype not in (torch.float32, torch.float64):
            texts: dict[str, Any] = {"prompts": self.prompts, "prompt_features": bank}
            return ZeroShotClassifier(anchors, self.class_names, self.scale, self.bias, **texts)
        moved = copy(self)
        vars(moved).update(anchors=anchors, prompt_features=bank)
        return moved


def _unit_anchors(anchors: object) -> Tensor:
    given = plain_tensor("anchors", anchors, InvalidParameter)
    if given.dtype == torch.bool:
        raise InvalidParameter("anchors must be real numbers, got booleans")
    precision = given.dtype if given.dtype == torch.float64 else torch.float32
    tensor = given.to(precision, copy=True, memory_format=torch.contiguous_format)  # kernels read row after row
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise InvalidParameter(f"anchors must be C×d (one row per class), got shape {tuple(tensor.shape)}")
    if tensor.shape[0] < 2:
        raise InvalidParameter(f"a classifier needs at least two classes, got {tensor.shape[0]}")
    if not bool(torch.isfinite(tensor).all()):
        row = int(torch.nonzero(~torch.isfinite(tensor).all(dim=1))[0])
        raise InvalidParameter(f"anchor {row} is not finite (NaN or Inf)")
    largest = tensor.abs().amax(dim=1, keepdim=True)
    if bool((largest == 0).any()):
        raise InvalidParameter(f"anchor {int(torch.nonzero(largest[:, 0] == 0)[0])} is zero and has no direction")
    moderate = (largest <= _OF_MODERATE_SIZE) & (largest >= 1 / _OF_MODERATE_SIZE)
    tensor = torch.where(moderate, tensor, tensor / largest)
    norms = torch.linalg.vector_norm(tensor, dim=1, keepdim=True)
    # Rows that are unit already stay as they are, bit for bit, so that copies keep their fingerprint.
    return tensor if bool(((norms - 1).abs() < 1e-6).all()) else tensor / norms


def _unit_prompts(given: object, anchors: Tensor) -> Tensor:
    """The features of prompts at unit length, in the precision and on the device of the anchors."""
    bank = plain_tensor("prompt features", given, InvalidParameter).to(anchors, copy=True)
    classes, dim = anchors.shape
    if bank.ndim != 3 or (bank.shape[0], bank.shape[2]) != (classes, dim) or not bank.shape[1]:
        raise InvalidParameter(f"prompt features must be {classes}×P×{dim}, got shape {tuple(bank.shape)}")
    norms = torch.linalg.vector_norm(bank, dim=2, keepdim=True)
    if not bool((torch.isfinite(norms) & (norms > 0)).all()):
        raise InvalidParameter("prompt features must be finite and not zero")
    return bank if bool(((norms - 1).abs() < 1e-6).all()) else bank / norms


def plain_list(given: object) -> list[Any] | None:
    """The items of a collection; None for anything else, also for a text or a tensor."""
    if isinstance(given, str | bytes | Tensor) or not isinstance(given, Iterable):
        return None
    return list(given)


def _texts(what: str, given: object) -> tuple[str, ...]:
    texts = plain_list(given)
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise InvalidParameter(f'{what} must be a list of texts, for example ["cat", "dog"], got {shown(given)}')
    return tuple(map(str, texts))


def _prompts(given: object) -> tuple[tuple[str, ...], ...]:
    classes = plain_list(given)
    if classes is None:
        raise InvalidParameter(f"prompts must be a list of texts for each class, got {shown(given)}")
    return tuple(_texts("the prompts of a class", texts) for texts in classes)
