"""Methods as one writes them down first: one sample after the other, whole tensors, lists and host decisions."""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from pta import ZeroShotClassifier


class PaperLoop:
    """One sample at a time on whole C×d tensors, as the rule is written down."""

    def __init__(self, classifier: ZeroShotClassifier, h: float = 20.0, w: float = 0.01) -> None:
        self.T, self.scale, self.h, self.w = classifier.anchors, classifier.scale, h, w
        self.P, self.R = torch.zeros_like(self.T), self.T.clone()

    def __call__(self, features: Tensor) -> Tensor:
        return torch.stack([self.learn_and_score(f) for f in features])

    def learn_and_score(self, f: Tensor) -> Tensor:
        z = self.scale * (self.T @ f)
        s = z.softmax(dim=0)
        touched = s >= 0.1
        beta = 1 - torch.exp(-s[touched] / self.h)[:, None]
        self.P[touched] = (1 - beta) * self.P[touched] + beta * f
        self.R = normalize(self.w * self.R + (1 - self.w) * self.P, dim=1)
        return z + self.scale * (self.R @ f)


class CacheLoop:
    """TDA with its caches as lists of tensors, stacked anew for every sample."""

    def __init__(self, classifier: ZeroShotClassifier) -> None:
        self.T, self.scale = classifier.anchors, classifier.scale
        self.sure: dict[int, list[tuple[Tensor, float]]] = {}
        self.doubtful: dict[int, list[tuple[Tensor, float, Tensor]]] = {}

    def __call__(self, features: Tensor) -> Tensor:
        return torch.stack([self.learn_and_score(f) for f in features])

    def learn_and_score(self, f: Tensor) -> Tensor:
        z = self.scale * (self.T @ f)
        p = z.softmax(dim=0)
        entropy = float(-(p * p.clamp_min(1e-30).log()).sum())
        label = int(z.argmax())
        enter(self.sure.setdefault(label, []), (f, entropy), 3)
        if 0.2 < entropy / math.log2(len(z)) < 0.5:
            enter(self.doubtful.setdefault(label, []), (f, entropy, p), 2)
        return z + 2.0 * self.positive(f) - 0.117 * self.negative(f)

    def positive(self, f: Tensor) -> Tensor:
        items = [(key, label) for label in sorted(self.sure) for key, _ in self.sure[label]]
        keys = torch.stack([key for key, _ in items])
        labels = one_hot(torch.tensor([label for _, label in items], device=f.device), len(self.T)).to(f.dtype)
        return torch.exp(5.0 * (keys @ f - 1)) @ labels

    def negative(self, f: Tensor) -> Tensor:
        items = [(key, p) for label in sorted(self.doubtful) for key, _, p in self.doubtful[label]]
        if not items:
            return torch.zeros_like(self.T[:, 0])
        keys, q = (torch.stack(tensors) for tensors in zip(*items, strict=True))
        return torch.exp(keys @ f - 1) @ ((q > 0.03) & (q < 1.0)).to(f.dtype)


def enter(
    slots: list[tuple[Tensor, float, *tuple[Tensor, ...]]], item: tuple[Tensor, float, *tuple[Tensor, ...]], most: int
) -> None:
    """Put an item in, unless the slots are full of more confident ones."""
    if len(slots) < most:
        slots.append(item)
    elif item[1] < slots[-1][1]:
        slots[-1] = item
    slots.sort(key=lambda entry: entry[1])
