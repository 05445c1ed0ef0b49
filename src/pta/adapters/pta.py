"""PTA: Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026).

The loop: `pta.reference.pta`.

Keeps two vectors a class: the knowledge prototype P (zero at first), a decaying mean of the features that flowed into
the class, and the anchored prototype R (the text anchor at first), which samples are scored against.

For each sample with unit feature f:
1. Zero-shot logits and probabilities: z = scale·T·f, s = softmax(z).
2. Every class with s_c ≥ min_probability learns: β_c = 1 − e^(−s_c/h), P_c ← (1−β_c)·P_c + β_c·f.
3. Every class refreshes: R_c ← w·R_c + (1−w)·P_c, scaled to unit length.
4. Score: z + scale·R·f.

The paper's equations and the program that was released with it differ; each difference is a switch, and `variant` sets
them all: "released" (what produced the published numbers, the steps above) or "paper" (the printed equations: no
probability is too small to learn from, R is not rescaled, and step 4 adds two softmaxes instead of two logits).

The update depends on zero-shot quantities alone, so it is an affine map of P: a batch is computed exactly in chunks
(`pta.engines`), and stretches of stream can be summarised apart, composed and applied (`summarise`, `apply`).
"""

import warnings
from dataclasses import asdict, fields
from functools import partial, reduce
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines import Prototypes, Rule, Touches, advance, find_touches, find_touches_exactly, runs_on_gpu
from pta.engines.rule import Anchor, Order, Weight
from pta.engines.segment import Segment, apply_segment, compose
from pta.parameters import require_choice
from pta.samples import Samples

Fusion = Literal["logits", "probabilities"]
Variant = Literal["released", "paper"]
StateDtype = Literal["float16", "bfloat16", "float32", "float64"]

_RELEASED = {
    "min_probability": 0.1,
    "anchor": "recursive",
    "fusion": "logits",
    "order": "update-first",
    "weight": "saturating",
    "renormalise": True,
}
_VARIANTS: dict[str, dict[str, Any]] = {
    "released": _RELEASED,
    "paper": _RELEASED | {"min_probability": 0.0, "fusion": "probabilities", "renormalise": False},
}
_COARSEST_H_FOR_HALF = 400.0  # above, float16 has fewer than ten steps of β between s = 0.1 and 1


@register
class PTA(Adapter):
    """Prototype-based test-time adaptation.

    Args:
        classifier: the zero-shot classifier that decides where a sample's feature flows.
        h: how slowly prototypes move; a sure sample moves its class by 1 − e^(−1/h) (paper Eq. 3).
        w: how much of the previous anchored prototype stays at each refresh (paper Eq. 5).
        variant: "released" or "paper"; sets every switch below that is not given.
        min_probability: classes less probable than this learn nothing from a sample (released 0.1, paper 0).
        anchor: what a refresh mixes P with: the previous R ("recursive") or the text anchor ("fixed").
        fusion: add "logits" (released) or softmax "probabilities" (paper Eq. 7).
        order: learn a sample before scoring it ("update-first") or after ("predict-first").
        weight: β = 1 − e^(−s/h) ("saturating") or β = s ("raw", an ablation of the paper).
        renormalise: scale R to unit length at every refresh (released) or let it shrink and only ever use its
            direction (paper). With a fixed anchor there is no difference.
        state_dtype: precision of the prototypes, by default that of the classifier's anchors. In half precision the
            state is rounded after every sample, as in the released program.

    A class whose mixture is exactly zero (w = 0 before its first sample) keeps its anchor, where 0/0 would be NaN.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> adapter = PTA(classifier, h=20.0)
    >>> adapter.step([[0.8, 0.6], [0.9, 0.1]]).argmax(dim=1)
    tensor([0, 0])
    """

    name: ClassVar[str] = "pta"
    knowledge: Tensor
    anchored: Tensor
    length: Tensor
    touched: Tensor
    resting: Tensor
    seen: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        h: float = 20.0,
        w: float = 0.01,
        variant: Variant = "released",
        min_probability: float | None = None,
        anchor: Anchor | None = None,
        fusion: Fusion | None = None,
        order: Order | None = None,
        weight: Weight | None = None,
        renormalise: bool | None = None,
        state_dtype: StateDtype | None = None,
    ) -> None:
        require_choice("variant", variant, get_args(Variant))
        given = {
            "min_probability": min_probability,
            "anchor": anchor,
            "fusion": fusion,
            "order": order,
            "weight": weight,
            "renormalise": renormalise,
        }
        switches: dict[str, Any] = {
            key: _VARIANTS[variant][key] if value is None else value for key, value in given.items()
        }
        require_choice("fusion", switches["fusion"], get_args(Fusion))
        if state_dtype is None:
            state_dtype = "float64" if classifier.anchors.dtype == torch.float64 else "float32"
        require_choice("state_dtype", state_dtype, get_args(StateDtype))
        self.fusion = switches.pop("fusion")
        self.rule = Rule(h=h, w=w, **switches)
        super().__init__(classifier, variant=variant, **asdict(self.rule), fusion=self.fusion, state_dtype=state_dtype)
        if state_dtype == "float16" and h > _COARSEST_H_FOR_HALF:
            warnings.warn(f"float16 state rounds small steps away at h={h:g}; float32 does not", stacklevel=2)
        self._declare(getattr(torch, state_dtype))

    def _declare(self, dtype: torch.dtype) -> None:
        computing = dtype if dtype in (torch.float32, torch.float64) else torch.float32
        if self.classifier.anchors.dtype != computing:
            self.classifier = self.classifier.to(dtype=computing)

        def fresh(name: str) -> Tensor:
            piece: Tensor = getattr(Prototypes.fresh(self.classifier.anchors.to(dtype)), name)
            return piece

        for field in fields(Prototypes):
            self.add_state(field.name, partial(fresh, field.name))
        self.add_state("seen", lambda: self.classifier.anchors.new_zeros((), dtype=torch.int64), per_class=False)

    @property
    def prototypes(self) -> Prototypes:
        """The state as the engines see it."""
        return Prototypes(self.knowledge, self.anchored, self.length, self.touched, self.resting)

    @property
    def recordable(self) -> bool:
        """Whether the state is where the kernels for a GPU can follow it."""
        return runs_on_gpu(self.prototypes)

    def _step(self, samples: Samples) -> Tensor:
        return self._learn_and_score(samples.features, self.classifier.logits(samples.features))

    def _predict(self, samples: Samples) -> Tensor:
        return self._score(samples.features, self.classifier.logits(samples.features))

    def _learn_and_score(self, features: Tensor, z: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """Learn by the given probabilities, or by those of z, and score onto z."""
        if runs_on_gpu(self.prototypes):
            return self._learn_and_score_on_gpu(features, z, probabilities)
        self.seen += len(features)
        touches = self._touches(features, z) if probabilities is None else Touches.of(probabilities, self.rule)
        cosines = advance(self.prototypes, self.classifier.anchors, features, touches, self.rule)
        return self._fuse(z, cosines.to(z.dtype))

    def _learn_and_score_on_gpu(self, features: Tensor, z: Tensor, probabilities: Tensor | None) -> Tensor:
        from pta.engines.triton import advance_on_gpu
        from pta.engines.triton_touches import table_of

        table = None if probabilities is None else table_of(probabilities, self.rule)
        onto = z if self.fusion == "logits" else None
        state = self.prototypes, self.classifier
        scores = advance_on_gpu(*state, features, z, self.rule, seen=self.seen, onto=onto, table=table)
        return scores if onto is not None else z.softmax(dim=1).add_(scores.softmax(dim=1))

    def _score(self, features: Tensor, z: Tensor) -> Tensor:
        return self._fuse(z, features @ self.anchored.to(features.dtype).T)

    def _touches(self, features: Tensor, z: Tensor) -> Touches:
        if self.knowledge.dtype == features.dtype:
            return find_touches(self.classifier, features, z, self.rule)
        return find_touches_exactly(self.classifier, features, self.rule)  # half-precision state shows every bit

    def _fuse(self, z: Tensor, cosines: Tensor) -> Tensor:
        if self.fusion == "logits":
            z.add_(cosines, alpha=self.classifier.scale)
            return z.add_(self.classifier.bias) if self.classifier.bias else z
        return z.softmax(dim=1).add_(self.classifier.scores(cosines).softmax(dim=1))

    @torch.no_grad()
    def summarise(self, samples: object) -> Segment:
        """What these samples would do to the knowledge prototypes, from wherever; changes nothing."""
        fingerprint = self.classifier.fingerprint

        def summary(part: Samples) -> Segment:
            features = part.to(self.classifier.anchors).features
            touches = self._touches(features, self.classifier.logits(features))
            return Segment.of(features, touches, self.rule, self.classifier.classes, fingerprint)

        return reduce(compose, map(summary, self._checked(samples).batches(self.at_once)))

    @torch.no_grad()
    def apply(self, segment: Segment) -> None:
        """Learn a whole summarised segment at once."""
        segment.require_for(self.rule, self.classifier.fingerprint, tuple(self.knowledge.shape))
        apply_segment(self.prototypes, self.classifier.anchors, segment)
        self.seen += segment.count
