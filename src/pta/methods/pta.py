"""PTA: Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026).

Keeps two vectors per class: the knowledge prototype P (zero at first), a decaying mean of the features assigned to the
class, and the anchored prototype R (the text anchor at first), which samples are scored against.

For each sample with unit feature f:
1. Zero-shot logits and probabilities: z = scale·T·f, s = softmax(z).
2. Every class with s_c ≥ min_probability learns: β_c = 1 − e^(−s_c/h), P_c ← (1−β_c)·P_c + β_c·f.
3. Every class refreshes: R_c ← w·R_c + (1−w)·P_c, scaled to unit length.
4. Score: z + scale·R·f.

The paper's equations and the program that was released with it differ; each difference is a switch, and `variant` sets
them all: "released" (what produced the published numbers, the steps above) or "paper" (the printed equations: no
probability is too small to learn from, R is not rescaled, and step 4 averages two softmaxes instead of adding two
logits; the answer is the logarithm of that average).

A labelled sample is scored in the same way. Then, in the place of steps 2 and 3, its class alone learns, with
s = label_weight, and every class refreshes.

The update depends on zero-shot quantities alone, so it is an affine map of P: a batch is computed exactly in chunks
(`pta.engines`), and stretches of stream can be summarised apart, composed and applied (`summarise`, `apply`).
"""

import math
import warnings
from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.labels import Labels
from pta.core.parameters import Order, Prior, choice, label_weight, prior_in_front
from pta.core.samples import Samples
from pta.engines.pta.advance import Found, add_scores, advance, learn_and_score, touches_of_zero_shot, touches_on_host
from pta.engines.pta.rule import LABEL_WEIGHTS, PARAMETERS, Anchor, Prototypes, Rule, Weight
from pta.engines.pta.step import CompiledStep
from pta.engines.pta.touches import Touches
from pta.engines.segments.application import after_segment
from pta.engines.segments.segment import Segment
from pta.errors import InvalidParameter, StateMismatch
from pta.methods.adapter import Adapter
from pta.methods.declaration import Origin
from pta.methods.state import FLAGS, SHARES, UNIT_BALL, UNIT_ROWS, doubles, full

Fusion = Literal["logits", "probabilities"]
Variant = Literal["released", "paper"]
StateDtype = Literal["float16", "bfloat16", "float32", "float64"]

_PAPER = {"min_probability": 0.0, "fusion": "probabilities", "renormalise": False}
_MAX_BATCH = 1024
_ROUNDING_OF_ANCHORS = 1e-2  # to half precision
_COARSEST_H_FOR_HALF = 400.0  # above, β at s = 0.1 is below 2⁻¹²: such steps are lost where a float16 P is long


class PTA(Adapter):
    """Prototype-based test-time adaptation.

    The loop: `pta.reference.pta.pta_loop`. Without its switches it is

    >>> import numpy as np
    >>> def loop(T, F, scale=100.0, h=20.0, w=0.01):
    ...     P, R, answers = np.zeros_like(T), T.copy(), []
    ...     for f in F:
    ...         z = scale * T @ f
    ...         s = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    ...         beta = np.where(s >= 0.1, 1 - np.exp(-s / h), 0.0)[:, None]
    ...         P = (1 - beta) * P + beta * f
    ...         R = w * R + (1 - w) * P
    ...         R /= np.linalg.norm(R, axis=1, keepdims=True)
    ...         answers.append(z + scale * R @ f)
    ...     return P, R, np.array(answers)

    and `step` gives the same for a whole batch:

    >>> rows = np.random.default_rng(0).normal(size=(48, 16)) + 2 * np.eye(16)[np.arange(48) % 8]
    >>> rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    >>> T, F = rows[:8], rows[8:]
    >>> adapter = PTA(ZeroShotClassifier(T, list("abcdefgh")))
    >>> given = adapter.step(F), adapter.knowledge, adapter.anchored
    >>> P, R, answers = loop(T, F)
    >>> [bool(np.allclose(one, other, rtol=0, atol=1e-12)) for one, other in zip(given, (answers, P, R), strict=True)]
    [True, True, True]

    `variant="paper"` changes the defaults of `min_probability`, `fusion` and `renormalise` to the printed equations.
    A half-precision `state_dtype` rounds the prototypes after every sample and computes in float32. The released
    program rounds every operation to float16, which is another thing. With a fixed anchor `renormalise` makes no
    difference.
    A class whose mixture is exactly zero (w = 0 before its first sample) keeps its anchor, where 0/0 would be NaN.
    The rule is unstable where R and P are opposite and w > (1−w)·‖P‖: rounding, and so the batch, decides how R turns.
    """

    name = "pta"
    may_fail = False
    loses_frozen = True
    takes_labels = True
    prototypes_in = "anchored"
    fixed_classes = ""
    max_batch: int | None = _MAX_BATCH
    h: float = PARAMETERS["h"]
    w: float = PARAMETERS["w"]
    variant: Variant = choice("released", Variant, "the rule that sets the defaults of the other switches")
    min_probability: float = PARAMETERS["min_probability"]
    anchor: Anchor = PARAMETERS["anchor"]
    fusion: Fusion = choice(
        "logits", Fusion, "add logits, or average probabilities (paper, Eq. 7) and return their logarithm"
    )
    order: Order = PARAMETERS["order"]
    weight: Weight = PARAMETERS["weight"]
    renormalise: bool = PARAMETERS["renormalise"]
    state_dtype: StateDtype = choice(None, StateDtype, "precision of the prototypes; by default that of the anchors")
    prior: Prior = prior_in_front()
    label_weight: float = label_weight(*LABEL_WEIGHTS)

    def __init__(self, classifier: ZeroShotClassifier, **given: Any) -> None:
        super().__init__(classifier, **given)
        self.rule = Rule(**{name: getattr(self, name) for name in PARAMETERS})
        if self.state_dtype == "float16" and self.h > _COARSEST_H_FOR_HALF:
            lost = f"prototypes kept in float16 lose small steps at h={self.h:g} once they are long"
            warnings.warn(f'{lost}; give state_dtype="float32"', stacklevel=2)
        computing = torch.float64 if self.state_dtype == "float64" else torch.float32
        if classifier.anchors.dtype != computing:
            self.classifier = classifier.to(dtype=computing)
        (C, d), state = classifier.anchors.shape, getattr(torch, self.state_dtype)
        self.knowledge = self.add_state("knowledge", full(0.0, C, d, dtype=state), UNIT_BALL)  # P
        self.anchored = self.add_state("anchored", lambda own: own.anchors.to(state, copy=True), UNIT_ROWS)  # R
        self.length = self.add_state("length", doubles(1.0, C), SHARES)
        self.touched = self.add_state("touched", full(False, C, dtype=torch.bool), FLAGS)
        self.resting = self.add_state("resting", full(True, C, dtype=torch.bool), FLAGS)
        # Compiled code knows neither subclasses, nor what is in front of the rule and behind it.
        alone = type(self) is PTA and self.stages is None and self.in_front is None
        self._can_be_compiled = alone and self.fusion == "logits"
        self._compiled: CompiledStep | None = None

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters: those of the variant where they are not given, and the precision of the anchors."""
        variant, dtype = given.get("variant"), given.get("state_dtype")
        if dtype is None:
            dtype = "float64" if origin.classifier.anchors.dtype == torch.float64 else "float32"
        switches = _PAPER if isinstance(variant, str) and variant == "paper" else {}
        known = super().complete({**switches, **given, "state_dtype": dtype}, origin)
        if known.get("weight") == "raw" and known["label_weight"] > 1:
            raise InvalidParameter('with weight="raw", β is the weight itself: label_weight is at most 1')
        return known

    @property
    def prototypes(self) -> Prototypes:
        """The state as the engines see it."""
        return Prototypes(self.knowledge, self.anchored, self.length, self.touched, self.resting)

    @property
    def logit_factor(self) -> float:
        """1/2, because two classifiers are added; 1 where their probabilities are averaged."""
        return 0.5 if self.fusion == "logits" else 1.0

    def step(self, samples: object, labels: object = None) -> Tensor:
        """Learn from the samples in order and return their logits, B×C, exactly as one by one.

        Labels are class numbers, −1 where unknown. If it fails, nothing was learned. A single sample on a CPU uses
        compiled code, if available.
        """
        if labels is not None:
            return super().step(samples, labels)
        compiled = self.compiled
        logits = None if compiled is None else compiled(samples)
        return super().step(samples) if logits is None else logits

    @property
    def compiled(self) -> CompiledStep | None:
        """The rule as compiled code, where there is nothing in front of it and behind it."""
        if self._can_be_compiled:
            self._compiled = CompiledStep.on(self.classifier, self.prototypes, self.seen, self.rule, self._compiled)
        return self._compiled

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        R, untouched = state["anchored"], ~state["touched"]
        away = (R - self.classifier.anchors.to(R))[untouched].abs()
        if bool((away > _ROUNDING_OF_ANCHORS).any()) or bool(state["knowledge"][untouched].any()):
            # compiled code takes their scores from the zero-shot logits
            return "classes that were never touched have a knowledge prototype, or another anchored one than their text"
        return None

    def _step(self, samples: Samples) -> Tensor:
        return self._step_on(self.prototypes, samples)

    def _step_on(self, prototypes: Prototypes, samples: Samples) -> Tensor:
        zero_shot = self.zero_shot(samples)
        z = zero_shot.logits
        return self._learn(samples.features, z, touches_of_zero_shot(prototypes, zero_shot, z, self.rule), prototypes)

    def _step_labelled(self, samples: Samples, label: int) -> Tensor:
        answer = self._step_on(self.prototypes.clone(), samples)
        touch = Touches.of_labels(np.array([label]), self.label_weight)
        advance(self.prototypes, self.classifier.anchors, samples.features, touch, self.rule)
        return answer

    def _predict(self, samples: Samples) -> Tensor:
        return self._score(samples.features, self.zero_shot(samples).logits)

    def _learn(self, f: Tensor, z: Tensor, touches: Found, prototypes: Prototypes | None = None) -> Tensor:
        """Steps 2 to 4, on the state unless other prototypes are given."""
        add = self.fusion == "logits"
        scores = learn_and_score(prototypes or self.prototypes, self.classifier, f, z, touches, self.rule, add=add)
        return scores if add else _log_mean(z, scores)

    def _score(self, f: Tensor, z: Tensor) -> Tensor:
        cosines = f @ self.anchored.to(f.dtype).T
        if self.fusion == "logits":
            return add_scores(z, cosines, self.classifier)
        return _log_mean(z, self.classifier.scores(cosines))

    @torch.no_grad()
    def summarise(self, samples: object, labels: object = None) -> Segment:
        """Summarise what these samples teach, whatever the state; changes nothing. Labels are as those of `step`."""
        self._require_no_stages("summarised")
        fingerprint, batch = self.classifier.fingerprint, self.checked(samples)
        known = None if labels is None else self.checked_labels(labels, len(batch))

        def summary(start: int) -> Segment:
            rows = slice(start, start + _MAX_BATCH)
            moved = batch[rows].to(self.classifier.anchors)
            touches = self.touches(moved, None if known is None else known[rows])
            return Segment.of(moved.features, touches, self.rule, self.classifier.classes, fingerprint)

        return reduce(Segment.followed_by, map(summary, range(0, len(batch), _MAX_BATCH)))

    def touches(self, samples: Samples, labels: Labels | None = None, logits: Tensor | None = None) -> Touches:
        """Which classes learn from samples that were checked and are where the classifier is, by zero-shot logits."""
        zero_shot = self.zero_shot(samples)
        touches = touches_on_host(self.prototypes, zero_shot, zero_shot.logits if logits is None else logits, self.rule)
        return touches if labels is None else touches.with_labels(labels, self.label_weight)

    @torch.no_grad()
    def step_with_touches(self, samples: Samples, logits: Tensor, touches: Touches) -> Tensor:
        """Step on such samples if their touches and zero-shot logits, which may be written to, are known."""
        answer = self._learn(samples.features, logits, touches)
        self.seen.add_(len(samples))
        return answer

    @torch.no_grad()
    def apply(self, segment: Segment) -> bool:
        """Learn a summarised segment at once; returns whether the state equals that of stepping through its samples.

        P is always exact, in float32 and float64. If False is returned, R may differ in classes the segment touched.
        """
        self._require_no_stages("applied")
        if not isinstance(segment, Segment):
            raise StateMismatch(f"only a Segment can be applied, not {type(segment).__name__}")
        anchors = self.classifier.anchors
        segment.require_for(self.rule, self.classifier.fingerprint, tuple(anchors.shape), anchors.dtype)
        new, exact = after_segment(self.prototypes, anchors, segment)
        self._put_checked({**vars(new), "seen": self.seen + segment.count}, "the state after the segment")
        return exact

    def _require_no_stages(self, done: str) -> None:
        for name, plain in (("offset", "none"), ("prior", "none"), ("gate", "none"), ("calibration", "fixed")):
            if getattr(self, name) != plain:
                raise InvalidParameter(
                    f'no segment can be {done} with {name}="{getattr(self, name)}": that depends on every sample '
                    f'before; use {name}="{plain}"'
                )


def _log_mean(z: Tensor, scores: Tensor) -> Tensor:
    """The logarithm of the mean of two softmaxes, finite even where both underflow."""
    return torch.logaddexp(z.log_softmax(dim=1), scores.log_softmax(dim=1)).sub_(math.log(2))
