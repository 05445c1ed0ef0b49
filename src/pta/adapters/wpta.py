"""WPTA: prototypes in the covariance of the images. Ours, not the paper's.

PTA scores an image by its cosine with prototypes that are means of images. All images of a model share a direction and
spread more in some directions than in others; neither tells classes apart. WPTA takes the shared direction away and
measures angles in the covariance of the images within their classes. It learns from zero-shot quantities alone, and all
that it learns is sums, which can be learned apart and added (`merge`).

Keeps t, the number of samples; Σx and G = Σxxᵀ over all of them; per class M_c = Σ w_c·x and n_c = Σ w_c; the centre m
and the metric P of the last refresh; and, to save work, the squared lengths of the prototypes in P. T are the text
anchors, t̄ is their mean.

For each sample with feature x:
1. Zero-shot logits and probabilities: z, s = softmax(z).
2. Every class with s_c ≥ min_probability learns, with weight w_c = s_c: M_c ← M_c + w_c·x, n_c ← n_c + w_c.
3. Prototypes around the centre, the text being worth a part of a sample: E_c = M_c − n_c·m + text_weight·(T_c − t̄).
4. Score: z + image_weight·scale·cos(x − m, E_c), the cosine in the metric P; 0 if either has no length.
5. t, Σx and G grow.
6. Refresh after 1, 2, 4, … samples, and then after every `refresh`: m = (t̄ + Σx)/(1+t). From `first_metric` samples on,
   with μ = Σx/t and U_c = M_c − n_c·μ, the covariance within classes is S = G/t − μμᵀ − (1/t)·Σ_c U_c·U_cᵀ/(n_c+1), and
   P = (S/(tr S/d) + (ridge + early_ridge/t)·I)⁻¹. Before that, and while tr S < least_spread, P = I.

With depth = 2 a second layer with sums and a metric of its own repeats steps 2 to 4, with the softmax of the first
layer's score in the place of s. The answer is the second layer's score.

Between refreshes a batch is exact (`pta.engines.whitened`); it is cut where a refresh is due.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, full
from pta.adapters.state_bounds import LARGEST_COUNT, between, covariances, rows_at_most
from pta.classifier import ZeroShotClassifier
from pta.engines.whitened import Layer
from pta.engines.within_class import ClassScatter, metric_of, within_class_covariance
from pta.engines.zero_shot import samples_at_once
from pta.errors import StateMismatch
from pta.parameters import count, number
from pta.samples import LONGEST_MEAN, Samples

_OURS = "(ours, chosen on development sets)"


class WPTA(Adapter):
    """Prototypes in the covariance of the images (ours, not the paper's).

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> WPTA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "wpta"
    may_fail = False
    min_probability: float = number(0.1, 1e-6, 1.0, f"the least probability that teaches a class {_OURS}")
    text_weight: float = number(0.3, 0.0, 1e6, f"how many samples the text of a class counts for {_OURS}")
    image_weight: float = number(0.4, 0.0, 100.0, f"weight of the cosine with the prototypes, in units of z {_OURS}")
    ridge: float = number(4.0, 0.01, 1e6, f"added to the covariance, whose mean eigenvalue is scaled to 1 {_OURS}")
    early_ridge: float = number(64.0, 0.0, 1e6, f"also added, divided by the number of samples {_OURS}")
    refresh: int = count(128, 1, 2**31, f"samples between two refreshes of centre and metric {_OURS}")
    first_metric: int = count(8, 2, 2**31, f"samples before the metric is first computed {_OURS}")
    least_spread: float = number(1e-4, 1e-9, 1.0, f"the metric is the identity while tr S is less {_OURS}")
    depth: int = count(1, 1, 2, f"layers; the second learns from the first one's score {_OURS}")

    def __init__(self, classifier: ZeroShotClassifier, **given: Any) -> None:
        super().__init__(classifier, **given)
        self.at_once = samples_at_once(classifier)
        (classes, dim), wide, longest = classifier.anchors.shape, torch.float64, LARGEST_COUNT * LONGEST_MEAN
        shared = partial(self.add_state, per_class=False)
        self.total = shared("total", full(0.0, dim, dtype=wide), within=rows_at_most(longest))
        self.gram = shared("gram", full(0.0, dim, dim, dtype=wide), within=covariances(longest))
        self.centre = shared("centre", lambda c, *_: _middle(c), within=rows_at_most(LONGEST_MEAN))
        largest = max(1.0, 1 / self.ridge)
        for suffix in self._suffixes:
            self.add_state(f"sums{suffix}", full(0.0, classes, dim, dtype=wide), within=rows_at_most(longest))
            self.add_state(f"weights{suffix}", full(0.0, classes, dtype=wide), within=between(0, LARGEST_COUNT))
            shared(f"metric{suffix}", lambda c, *_: torch.eye(c.dim).to(c.anchors), within=covariances(largest))
            shared(f"squares{suffix}", _first_squares, within=between(0, largest * longest**2))
        self._scatters = [ClassScatter() for _ in self._suffixes]
        self._texts: Tensor | None = None

    @property
    def layers(self) -> list[Layer]:
        """What the layers have learned, as the engine sees it."""
        names = ("sums", "weights", "metric", "squares")
        return [Layer(*(getattr(self, f"{name}{suffix}") for name in names)) for suffix in self._suffixes]

    @property
    def logit_factor(self) -> float:
        """The prototypes add `image_weight` classifiers, as cosines times the scale, to the zero-shot one."""
        return 1 / (1 + self.image_weight)

    def _step(self, samples: Samples) -> Tensor:
        x, z = samples.features.double(), self.zero_shot(samples).exact_logits
        scores, done, position = [], 0, self.position
        while done < len(samples):
            due = self._next_refresh(position + done) - position
            block = slice(done, min(due, len(samples)))
            scores.append(self._scores(x[block], z[block], learn=True))
            done = block.stop
            if done == due:
                self._refresh((self.seen + done).double())
        return torch.cat(scores).to(samples.features.dtype)

    def _predict(self, samples: Samples) -> Tensor:
        z = self.zero_shot(samples).exact_logits
        return self._scores(samples.features.double(), z, learn=False).to(samples.features.dtype)

    def _scores(self, x: Tensor, z: Tensor, *, learn: bool) -> Tensor:
        """Steps 1 to 5 for samples between two refreshes, B×C, float64; without `learn` for each sample alone."""
        scores = z
        for layer in self.layers:
            s = scores.softmax(dim=1)
            w = torch.where(s >= self.min_probability, s, 0.0)
            cosines = layer.score(x, w, self.centre, self._text_part, learn=learn)
            scores = z.add(cosines, alpha=self.image_weight * self.classifier.scale)
        if learn:
            self.total += x.sum(dim=0)
            self.gram.addmm_(x.T, x)
        return scores

    def _next_refresh(self, position: int) -> int:
        """After how many samples of the stream the next refresh after a position is due."""
        if position < self.refresh:
            return min(self.refresh, 1 << position.bit_length())
        return (position // self.refresh + 1) * self.refresh

    def _refresh(self, t: Tensor) -> None:
        """Step 6 after t samples."""
        self.centre.copy_((_middle(self.classifier) + self.total) / (1 + t))
        for layer, scatter in zip(self.layers, self._scatters, strict=True):
            within = within_class_covariance(t, self.total, self.gram, layer.sums, layer.weights, scatter)
            enough = (t >= self.first_metric) & (within.trace() >= self.least_spread)
            layer.metric.copy_(metric_of(within, self.ridge + self.early_ridge / t, enough, layer.metric.dtype))
            layer.measure(self.centre, self._text_part)

    @property
    def _suffixes(self) -> list[str]:
        return ["", "_2"][: self.depth]

    @property
    def _text_part(self) -> Tensor:
        """What the texts add to the prototypes, C×d."""
        if self._texts is None:
            texts = self.text_weight * (self.classifier.anchors.double() - _middle(self.classifier))
            self._texts = texts.to(self.classifier.anchors.dtype)
        return self._texts

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only the sums of some classes; centre and metric then stay."""
        super().reset(classes)
        for layer in self.layers if classes is not None else ():
            layer.measure(self.centre, self._text_part)

    def _state_replaced(self) -> None:
        self._texts = None
        for scatter in self._scatters:
            scatter.forget()


def _middle(classifier: ZeroShotClassifier) -> Tensor:
    """t̄, the mean of the anchors, float64."""
    return classifier.anchors.double().mean(dim=0)


def _first_squares(classifier: ZeroShotClassifier, parameters: Mapping[str, Any], model: object) -> Tensor:
    away = classifier.anchors.double() - _middle(classifier)
    return parameters["text_weight"] ** 2 * away.square().sum(dim=1)
