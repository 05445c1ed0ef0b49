"""DPE: Dual Prototype Evolving for Test-Time Generalization of Vision-Language Models (NeurIPS 2024).

https://arxiv.org/abs/2410.12790, https://github.com/zhangce01/DPE-CLIP

Keeps a text prototype per class, which is a running mean, and the three most confident samples per class, whose mean is
its visual prototype. For every sample both sets of prototypes take one gradient step, which is undone afterwards; a
confident sample leaves the moved text prototypes in the mean.

W holds the text prototypes (C×d, first the anchors), n how many were averaged, Ŵ the rows of W at unit length.
For each sample:
1. Logits of its views, z_i = scale·Ŵ·f_i. Of the int(keep·V) views of the lowest entropy, at least one: the mean
   feature f, not scaled to unit length, the mean logits z, the entropy e of the mean probabilities, ŷ = arg max z.
2. (f, e) enters the cache of ŷ: while one of three slots is free, or in the place of the largest e there if its own is
   smaller.
3. Visual prototypes K: for each of the M classes with something in the cache, the mean of its features.
4. One step of AdamW on residuals R_t and R_v from zero, by the gradient of
   H(softmax(z + α·e^(−β(1−⟨f, K̂_c⟩)))) + λ·InfoNCE(K̂, Ŵ of the M classes), with z = scale·Ŵ·f and
   Ŵ and K̂ the unit rows of W + R_t and K + R_v. InfoNCE is the mean of −ln softmax(K̂_c·Ŵᵀ/τ)_c over the M classes.
   A step from zero is R = −lr·g/(|g| + 10⁻³) in every coordinate.
5. Score: scale·Ŵ·f₀ + α·e^(−β(1−⟨f₀, K̂_c⟩)) with the moved prototypes and the plain image f₀, or with f and z of all
   views again, selected anew (`answer="views"`, which the authors use for ImageNet-A alone).
6. If H(softmax(score)) < `max_entropy`·log₂C: n ← n + 1, W ← (n·W + Ŵ)/(n + 1).

The gradients are closed forms. That of the entropy by Ŵ_c is scale·∂H/∂z_c·f: one direction for all classes.
With one view (`first_views=1`, as the authors run the ten fine-grained datasets) f is the sample's feature. On ImageNet
and its variants they take 64 views. They choose α, β, λ and the step sizes for each dataset (preset `paper`); the
defaults are the paper's.
Selection, cache and step 6 are decided in float64, the rest is in the classifier's precision. The released program
keeps residuals, gradients and moments in float16, where the second moment rounds to 0 for |g| below 5.5·10⁻³; the step
is then −lr·g/10⁻³.
The factor 100 of the program is the classifier's scale. With another one, the step sizes act on other gradients.
PTA on top of it (`combined`) learns from the plain image.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pta.core.parameters import choice, count, number
from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.engines.caches.admission import EMPTY, rows_worth_picking
from pta.engines.prompts.residuals import Directions, alignment_gradients, stepped
from pta.engines.prompts.view_entropy import by_entropy, entropy_of_mean, number_kept
from pta.engines.zero_shot import entropy_of
from pta.methods.first_views import OfFirstViews, views_if_several
from pta.methods.gradient_method import GradientMethod
from pta.methods.state import UNIT_BALL, doubles, entropies, full, slots_of, text_anchors

Answered = Literal["plain", "views"]

_MOST = 1e6  # of α, β and λ


class _Look(NamedTuple):
    """What the most confident views of a sample say together."""

    f: Tensor  # 1×d
    z: Tensor  # 1×C, float64
    cosines: Tensor  # C, of f with the text prototypes, float64
    entropy: Tensor  # 1, float64


class DPE(OfFirstViews, GradientMethod):
    """Text and visual prototypes with a gradient step per sample; confident samples update a running mean.

    The loop: `pta.reference.dpe.dpe_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> DPE(classifier).step([[0.8, 0.6], [0.9, 0.1]])
    tensor([[14.0028,  5.9962], [14.9691,  1.1014]])
    """

    name = "dpe"
    may_fail = False
    loses_frozen = True
    prototypes_in = "prototypes"
    fixed_classes = ""
    alpha: float = number(6.0, 0.0, _MOST, "α, weight of the visual prototypes")
    beta: float = number(5.0, 0.0, _MOST, "β, how fast affinity to them falls with distance")
    align: float = number(0.5, 0.0, _MOST, "λ, weight of the alignment of visual and text prototypes")
    lr_text: float = number(5e-4, 0.0, 1.0, "step size of the text prototypes")
    lr_image: float = number(5e-4, 0.0, 1.0, "step size of the visual prototypes")
    temperature: float = number(0.01, 1e-4, 100.0, "τ of the alignment")
    slots: int = count(3, 1, 1000, "samples per class in the cache")
    max_entropy: float = number(0.1, 0.0, 1.0, "upper bound (share of log₂C) for samples that update text prototypes")
    first_views: int = views_if_several()
    keep: float = number(0.1, 0.0, 1.0, "share of the views that is kept, at least one")
    answer: Answered = choice("plain", Answered, "score the plain image, or its views, which are selected again")

    def _declare_state(self) -> None:
        super()._declare_state()
        (C, d), M = self.classifier.anchors.shape, self.slots
        self.prototypes = self.add_state("prototypes", text_anchors, UNIT_BALL)  # W
        self.averaged = self.add_counter("averaged")  # n
        self.keys = self.add_state("keys", full(0.0, C, M, d), UNIT_BALL)
        self.scores = self.add_state("scores", doubles(EMPTY, C, M), slots_of(entropies(C)))  # entropies of the keys

    def _step(self, samples: Samples) -> Tensor:
        text = Directions.of(self.prototypes)
        look = self._look(samples, text)  # step 1
        label = look.z.argmax(dim=1)
        keys, scores = self.keys[label], self.scores[label]
        # step 2: of equal entropies the older one stays
        sorted_scores, order = torch.cat([scores, look.entropy[:, None]], dim=1).sort(dim=1, stable=True)
        with_own = torch.cat([keys, look.f[None]], dim=1).take_along_dim(order[:, :, None], dim=1)
        self.keys[label], self.scores[label] = with_own[:, :-1], sorted_scores[:, :-1]
        logits, text = self._score(samples, look, text)  # steps 3 to 5
        finite = torch.isfinite(logits).all()
        self.keys[label] = torch.where(finite, self.keys[label], keys)
        self.scores[label] = torch.where(finite, self.scores[label], scores)
        self._average(text, entropy_of(logits[0].double().softmax(dim=0)))  # step 6
        return self._or_zero_shot(samples, logits, count=True)

    def _predict(self, samples: Samples) -> Tensor:
        text = Directions.of(self.prototypes)
        logits, _ = self._score(samples, self._look(samples, text), text)
        return self._or_zero_shot(samples, logits, count=False)

    def _look(self, samples: Samples, text: Directions) -> _Look:
        """Step 1."""
        views = samples.features if self.first_views == 1 else samples.tensors()["views"][0, : self.first_views]
        cosines = text.cosines(views.double())
        z = self.classifier.scores(cosines)
        kept = by_entropy(z)[: number_kept(len(z), self.keep)]
        entropy, _ = entropy_of_mean(z[kept])
        f, z, cosines = (rows[kept].mean(dim=0, keepdim=True) for rows in (views, z, cosines))
        return _Look(f, z, cosines[0], entropy[None])

    def _score(self, samples: Samples, look: _Look, text: Directions) -> tuple[Tensor, Directions]:
        """Steps 3 to 5: the logits, and the text prototypes that gave them."""
        filled = self.scores < EMPTY
        rows = rows_worth_picking(filled[:, 0])
        sizes = filled[rows].sum(dim=1, keepdim=True)
        present = sizes[:, 0] > 0
        visual = Directions.of(self.keys[rows].sum(dim=1) / sizes.clamp_min(1))

        def with_affinities(z: Tensor, cosines: Tensor) -> tuple[Tensor, Tensor]:
            affinities = self.alpha * torch.exp(-self.beta * (1 - cosines)) * present
            z[:, rows] += affinities
            return z, affinities[0]

        cosines, visual_cosines = look.cosines.to(look.f.dtype), visual.cosines(look.f)
        z, affinities = with_affinities(look.z.clone(), visual_cosines)
        by_logit = entropy_of_mean(z)[1][0].to(look.f.dtype)
        along = self.classifier.scale * by_logit, self.beta * affinities * by_logit[rows]
        for_visual = for_text = None
        if self.align:
            pairs = visual.unit(), text.some(rows).unit()
            for_visual, for_text = alignment_gradients(*pairs, present, self.temperature, self.align)
        visual = stepped(visual, look.f, visual_cosines[0], along[1], self.lr_image, for_visual)
        text = stepped(text, look.f, cosines, along[0], self.lr_text, for_text, rows)
        if self.answer == "views":
            f, z, *_ = self._look(samples, text)
        else:
            f, z = samples.features, self.classifier.scores(text.cosines(samples.features))
        return with_affinities(z.to(f.dtype), visual.cosines(f))[0], text

    def _average(self, text: Directions, entropy: Tensor) -> None:
        """Step 6; an entropy that is NaN is not small enough."""
        confident = entropy < self.max_entropy * math.log2(self.classifier.classes)
        unit = self.prototypes
        if not is_host_readable(confident):
            unit = torch.where(confident, text.unit(), unit)
        elif confident:
            unit = text.unit()
        else:
            return
        self.averaged += confident
        self.prototypes.lerp_(unit, 1 / (self.averaged + 1).to(unit.dtype))
