"""WPTA: prototypes in the covariance of the images. Ours, not the paper's.

PTA scores an image by its cosine with prototypes that are means of images. All images of a model share a direction and
spread more in some directions than in others; neither tells classes apart. WPTA takes the shared direction away and
measures angles in the covariance of the images within their classes. It learns from zero-shot quantities alone, and all
that it learns is sums, which can be learned apart and added (`summarise`, `apply`).

Keeps t, the number of samples; Σx and G = Σxxᵀ over all of them; per class M_c = Σ w_c·x and n_c = Σ w_c; the centre m
and the metric P of the last refresh; and, to save work, the squared lengths of the prototypes in P. T are the text
anchors, t̄ is their mean.

For each sample with feature x:
1. Zero-shot logits and probabilities: z, s = softmax(z). By default a prior is in z (`pta.engines.local_prior`), and a
   gate (`pta.engines.balance`) and a temperature (`pta.engines.calibration`) behind step 4.
2. Every class with s_c ≥ min_probability learns, with weight w_c = s_c: M_c ← M_c + w_c·x, n_c ← n_c + w_c.
3. Prototypes around the centre, the text being worth a part of a sample: E_c = M_c − n_c·m + text_weight·(T_c − t̄).
4. Score: z + image_weight·scale·cos(x − m, E_c), the cosine in the metric P; 0 if either has no length.
5. t, Σx and G grow.
6. Refresh after 1, 2, 4, … samples, and then after every `refresh_every`: m = (t̄ + Σx)/(1+t). From `first_metric`
   samples on, with μ = Σx/t and U_c = M_c − n_c·μ, the covariance within classes is
   S = G/t − μμᵀ − (1/t)·Σ_c U_c·U_cᵀ/(n_c+1), and P = (S/(tr S/d) + (ridge + early_ridge/t)·I)⁻¹. Before that, and
   while tr S < least_spread, P = I.

A sample that is not learned is scored in the same way: the prototypes hold what it would have contributed. So is a
labelled sample. Then its class alone learns, with w = label_weight, in every layer; t, Σx and G grow as before. The
weight is at most 1, because S is that of samples which count once.

With depth = 2 a second layer with sums and a metric of its own repeats steps 2 to 4, with the softmax of the first
layer's score in the place of s. The answer is the second layer's score.

Between refreshes a batch is exact (`pta.engines.whitened.layer`); it is cut where a refresh is due.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import nextafter
from typing import Any

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import (
    Calibration,
    Gate,
    Prior,
    calibration_behind,
    count,
    gate_behind,
    label_weight,
    number,
    prior_in_front,
)
from pta.core.samples import LARGEST_NORM, LONGEST_MEAN, Samples
from pta.engines.whitened.layer import Kept, Layer
from pta.engines.whitened.layer_state import AllSamples, Shrinkage, TextPrototypes
from pta.engines.whitened.within_class import contradiction_of_sums
from pta.engines.zero_shot import samples_at_once
from pta.errors import StateMismatch
from pta.methods.adapter import Adapter
from pta.methods.stages import GATE_SUMS
from pta.methods.state import LARGEST_COUNT, between, covariances, doubles, rows_at_most

_OURS = "(ours, chosen on development sets)"
_NOT_IN_SUMS = ("prior", "calibration", "label_weight")  # parameters that sums can be added across
_OF_LAYER = ("sums", "weights", "metric", "squares")
_ROUNDING_OF_SQUARES = 1e-3  # of prototypes of one sample; products are float32


@dataclass(frozen=True)
class Sums:
    """What samples teach, independent of the rest of the stream: sums, which can be added."""

    count: int
    fingerprint: str  # of the classifier
    rule: Mapping[str, Any]  # parameters of the adapter, without what is in front of the rule and behind it
    tensors: Mapping[str, Tensor]  # by the names of the adapter's state

    def __add__(self, other: "Sums") -> "Sums":
        self.require_like(other)
        both = {name: tensor + other.tensors[name].to(tensor) for name, tensor in self.tensors.items()}
        return replace(self, count=self.count + other.count, tensors=both)

    def require_like(self, other: object) -> None:
        """Refuse what cannot be added."""
        if not isinstance(other, Sums):
            raise StateMismatch(f"only Sums from `summarise` can be added, not {type(other).__name__}")
        if (other.fingerprint, other.rule) != (self.fingerprint, self.rule):
            raise StateMismatch("the sums are of an adapter with another classifier or other parameters")
        if _forms(other.tensors) != _forms(self.tensors):
            raise StateMismatch("the sums have other tensors than such an adapter has; they are damaged")


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


class WPTA(Adapter):
    """Prototypes in the metric of the images' covariance (ours, not the paper's).

    The loop: `pta.reference.wpta.wpta_loop`.

    With depth = 2, a prior or an offset, what is learned depends on what was learned before. Sums of shards are then
    not exactly those of the whole stream. The gate keeps sums, too.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> WPTA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "wpta"
    may_fail = False
    takes_labels = True
    prototypes_in, counts_in = "sums", "weights"
    fixed_classes = ""
    min_probability: float = number(0.1, 1e-6, 1.0, f"minimum probability at which a class learns {_OURS}")
    text_weight: float = number(0.3, 0.0, 1e6, f"weight of the text of a class, in samples {_OURS}")
    image_weight: float = number(
        0.4, 0.0, 100.0, f"weight of the cosine with the prototypes; that of text is 1 {_OURS}"
    )
    ridge: float = number(4.0, 0.1, 1e6, f"added to the covariance, whose mean eigenvalue is scaled to 1 {_OURS}")
    early_ridge: float = number(64.0, 0.0, 1e6, f"also added, divided by the number of samples {_OURS}")
    refresh_every: int = count(128, 1, 2**31, f"samples between two refreshes of centre and metric {_OURS}")
    first_metric: int = count(8, 2, 2**31, f"samples after which the metric is first computed {_OURS}")
    least_spread: float = number(1e-4, 1e-6, 1.0, f"the metric is the identity while tr S is smaller {_OURS}")
    depth: int = count(1, 1, 2, f"layers; the second learns from the score of the first {_OURS}")
    prior: Prior = prior_in_front("local")
    gate: Gate = gate_behind("balance")
    calibration: Calibration = calibration_behind("matched")
    label_weight: float = label_weight(1e-3, 1.0)

    def __init__(self, classifier: ZeroShotClassifier, **given: Any) -> None:
        super().__init__(classifier, **given)
        self._known_texts: TextPrototypes | None = None
        self.least_weight = nextafter(self.min_probability, 0)  # what is above has at least that probability
        self.max_batch, self.refresh_interval = samples_at_once(classifier), self.refresh_every
        (classes, dim), longest = classifier.anchors.shape, LARGEST_COUNT * LONGEST_MEAN
        shared = partial(self.add_state, per_class=False)
        self.total = shared("total", doubles(0.0, dim), rows_at_most(longest))
        self.gram = shared("gram", doubles(0.0, dim, dim), covariances(longest))
        self.centre = shared("centre", lambda c: c.anchors.double().mean(dim=0), rows_at_most(LONGEST_MEAN))
        for sums, weights, metric, squares in self._layer_names:
            self.add_state(sums, doubles(0.0, classes, dim), rows_at_most(longest))
            self.add_state(weights, doubles(0.0, classes), between(0, LARGEST_COUNT))
            shared(metric, self._first_metric, covariances(max(1.0, 1 / self.ridge)))
            shared(squares, self._first_squares, between(0, LARGEST_NORM))
        self._state_replaced()

    @property
    def logit_factor(self) -> float:
        """The prototypes add `image_weight` classifiers, as cosines times the scale, to the zero-shot one."""
        return 1 / (1 + self.image_weight)

    def _step(self, samples: Samples) -> Tensor:
        return self._scores(samples, learn=True)

    def _predict(self, samples: Samples) -> Tensor:
        return self._scores(samples, learn=False)

    def _scores(self, samples: Samples, *, learn: bool) -> Tensor:
        """Steps 1 to 5."""
        front = self.zero_shot(samples)
        scores = z = front.exact_logits
        for layer in self._layers:
            s = front.softmax if scores is z else scores.softmax(dim=1)
            scores = layer.score(samples.features, s, z, learn=learn)
        return scores.to(samples.features.dtype)

    def _step_labelled(self, samples: Samples, label: int) -> Tensor:
        answer, z = self._scores(samples, learn=False), self.zero_shot(samples).exact_logits
        w = torch.zeros_like(z)
        w[0, label] = self.label_weight
        for layer in self._layers:
            replace(layer, least_weight=0.0).score(samples.features, w, z, learn=True)
        return answer

    def refresh_state(self) -> None:
        """Step 6."""
        super().refresh_state()
        self.centre.copy_((self._texts.mean + self.total) / (1 + self.seen))
        for layer in self._layers:
            layer.refresh(Shrinkage(self.ridge, self.early_ridge, self.first_metric, self.least_spread))

    @property
    def learned(self) -> Sums:
        """All that was learned so far."""
        names = ["total", "gram", *(name for sums, weights, *_ in self._layer_names for name in (sums, weights))]
        names += GATE_SUMS if self.gate == "balance" else ()
        tensors = {name: getattr(self, name).clone() for name in names}
        rule = {name: value for name, value in self.parameters.items() if name not in _NOT_IN_SUMS}
        return Sums(self.position, self.classifier.fingerprint, rule, tensors)

    def summarise(self, samples: object, labels: object = None) -> Sums:
        """Summarise what these samples would teach a new adapter; changes nothing. Labels are as those of `step`."""
        new = self.clone()
        new.reset()
        new.step(samples, labels)
        return new.learned

    @torch.no_grad()
    def apply(self, sums: Sums) -> None:
        """Add the sums of other samples, and refresh centre and metric."""
        both, after = self.learned + sums, self.clone()
        after._put({**self.state(), **both.tensors, "seen": torch.full_like(self.seen, both.count)})
        after.refresh_state()
        self._put_checked(after.state(), "the state with the sums")

    @torch.no_grad()
    def take(self, sums: Sums, refreshed: Sums | None) -> None:
        """Be where a stream is that has taught these sums, and had taught `refreshed` at its last refresh.

        If that is None, centre and metric stay as they are.
        """
        after = self.clone()
        for taken in (sums,) if refreshed is None else (refreshed, sums):
            self.learned.require_like(taken)
            after._put({**after.state(), **taken.tensors, "seen": torch.full_like(self.seen, taken.count)})
            if taken is refreshed:
                after.refresh_state()
        for layer in after._layers:
            layer.measure()
        self._put_checked(after.state(), "the state with the sums")

    def frozen_layers(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each layer E, P and the squared lengths of E in P: what a sample that is not learned is scored by."""
        return [(layer.prototypes(), layer.metric, layer.squares) for layer in self._layers]

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only the sums of some classes; centre and metric then stay until they are refreshed.

        Where a refresh has just been made, the next sample is to meet one without these classes.
        """
        super().reset(classes)
        if classes is None:
            return
        if self.refreshes.next(self.position - 1) == self.position:
            self.refresh_state()
            return
        for layer in self._layers:
            layer.measure()

    @property
    def _layers(self) -> list[Layer]:
        state = self.state()
        return [self._layer(place, state, kept) for place, kept in enumerate(self._kept)]

    def _layer(self, place: int, state: Mapping[str, Tensor], kept: Kept) -> Layer:
        sums, weights, metric, squares = (state[name] for name in self._layer_names[place])
        of_all = AllSamples(state["seen"], state["total"], state["gram"])
        texts, factor = self._texts.part.to(state["centre"].device), self.image_weight * self.classifier.scale
        learned = sums, weights, metric, squares, of_all
        return Layer(*learned, place == 0, state["centre"], texts, self.least_weight, factor, kept)

    @property
    def _layer_names(self) -> list[list[str]]:
        """For each layer, the names in the state of its sums, weights, metric and squares."""
        return [[f"{piece}{suffix}" for piece in _OF_LAYER] for suffix in ("", "_2")[: self.depth]]

    @property
    def _texts(self) -> TextPrototypes:
        # kept as long as the classifier: a recorded step reads it where it is
        if self._known_texts is None or self._known_texts.classifier is not self.classifier:
            self._known_texts = TextPrototypes.of(self.classifier, self.text_weight, self.state()["metric"].dtype)
        return self._known_texts

    def _state_replaced(self) -> None:
        self._kept = [Kept() for _ in self._layer_names]

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        for place, (sums, _, _, squares) in enumerate(self._layer_names):
            layer = self._layer(place, {**state, squares: torch.empty_like(state[squares])}, Kept())
            t, total, gram = layer.of_all
            if wrong := contradiction_of_sums(float(t), total, gram, layer.sums, layer.weights):
                return f"{sums}: {wrong}"
            layer.measure()
            slack = _ROUNDING_OF_SQUARES * (1 + self.text_weight + layer.weights) ** 2
            if not bool(((state[squares] - layer.squares).abs() <= slack).all()):
                return f"{squares} are not those of the prototypes"
        return None

    def _first_metric(self, classifier: ZeroShotClassifier) -> Tensor:
        identity = torch.eye(classifier.dim).to(classifier.anchors)
        return identity.double() if self.depth > 1 else identity  # scores of the first layer decide

    def _first_squares(self, classifier: ZeroShotClassifier) -> Tensor:
        return TextPrototypes.of(classifier, self.text_weight, torch.float64).part.square().sum(dim=1)
