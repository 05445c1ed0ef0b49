"""TPS: Just Shift It: Test-Time Prototype Shifting for Zero-Shot Generalization with Vision-Language Models.

WACV 2025, https://github.com/elaine-sui/TPS

Keeps nothing from sample to sample: the text prototypes are shifted so that a sample's most confident views agree.

For each sample with V views, the plain image first, and shifts S = 0, C×d:
1. Logits of the views, z_i = scale·U·f_i, with U the rows of T + S at unit length.
2. The int(keep·V) views of lowest entropy, at least one; in later steps by the new logits, or, with
   `selection="first"`, the same.
3. g = ∂H(q̄)/∂S with q̄ the mean of q_i = softmax(z_i) over the n views:
   g_c = scale/n·Σ_i q_ic(⟨q_i, ln q̄⟩ − ln q̄_c)·(f_i − ⟨f_i, u_c⟩u_c)/‖T_c + S_c‖.
4. One step of AdamW on S by g. The first is S = −lr·g/(|g| + 10⁻⁸) in every coordinate.
5. Steps 1 to 4 `steps` times, then score the plain image: scale·U·f_1.

The gradient is a formula, so nothing is differentiated. Weight decay does nothing to the first step.
Every coordinate of every class moves by about the whole lr, however improbable the class, as long as |g| is far above
10⁻⁸. The released program computes under autocast in float16, where small gradients are 0 and such classes stay.
`least_gradient` makes that a rule: a coordinate whose |g| is no larger counts as 0. The default is exact arithmetic.
The program selects anew in every step; tta-vlm and TTABC keep the first selection. The step size 0.005 is the
program's; tta-vlm uses 0.001 for all but the ImageNet sets (preset `tta-vlm`). The prototypes are the classifier's
anchors, of one prompt or of many. At least one view is selected, which is our choice.
A sample whose gradient is not finite gets its zero-shot answer.
"""

from typing import Literal

import torch
from torch import Tensor

from pta.core.parameters import choice, count, number
from pta.core.samples import Samples
from pta.engines.prompts.view_entropy import by_entropy, entropy_of_mean, number_kept, rows_of_each
from pta.methods.gradient_method import GradientMethod

Selection = Literal["every-step", "first"]

_EPS, _BETA_1, _BETA_2 = 1e-8, 0.9, 0.999  # of AdamW
_NUMBERS_AT_ONCE = 2**19  # of B×C×d shifts


class TPS(GradientMethod):
    """Text prototypes shifted for each sample, so that its most confident views agree; a closed form.

    The loop: `pta.reference.tps.tps_loop`.

    The selection and g are computed in float64: a step has full size however small a gradient is.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> TPS(classifier).step(Samples.of([[0.8, 0.6]], views=[[[0.8, 0.6], [0.6, 0.8]]]))
    tensor([[8.0299, 5.9599]])
    """

    name = "tps"
    needs = frozenset({"features", "views"})
    may_fail = False
    lr: float = number(5e-3, 0.0, 1.0, "step size")
    steps: int = count(1, 0, 100, "steps of AdamW")
    keep: float = number(0.1, 0.0, 1.0, "share of the views that are selected")
    selection: Selection = choice("every-step", Selection, "select the views anew in every step, or in the first")
    weight_decay: float = number(0.01, 0.0, 1.0, "weight decay of AdamW, from the second step on")
    least_gradient: float = number(0.0, 0.0, 1.0, "coordinates of the gradient that are no larger count as 0")

    def _declare_state(self) -> None:
        super()._declare_state()
        self.max_batch = max(1, _NUMBERS_AT_ONCE // self.classifier.anchors.numel())

    def _logits(self, samples: Samples) -> Tensor:
        views, T = samples.tensors()["views"], self.classifier.anchors
        if self.steps == 0:
            return self.classifier.logits(views[:, 0])
        z = self.zero_shot(samples).view_logits
        kept = by_entropy(z)[:, : number_kept(views.shape[1], self.keep)]
        g = self._gradient(rows_of_each(z, kept), rows_of_each(views, kept).double(), self.classifier.exact_anchors)
        if self.steps == 1:
            g = g.to(T.dtype)
            return self._score(views[:, 0], torch.add(T, g.div_(g.abs().add_(_EPS)), alpha=-self.lr))
        f, m, v, shift = views.double(), *(torch.zeros_like(g) for _ in range(3))
        for step in range(1, self.steps + 1):
            if step > 1:
                rows = self.classifier.exact_anchors + shift
                lengths = _lengths(rows)
                z = self.classifier.scores(f @ (rows / lengths).mT)
                if self.selection == "every-step":
                    kept = by_entropy(z)[:, : kept.shape[1]]
                g = self._gradient(rows_of_each(z, kept), rows_of_each(f, kept), rows / lengths, lengths)
            m.lerp_(g, 1 - _BETA_1)
            v.mul_(_BETA_2).addcmul_(g, g, value=1 - _BETA_2)
            size = (v / (1 - _BETA_2**step)).sqrt_().add_(_EPS)
            shift.mul_(1 - self.lr * self.weight_decay).addcdiv_(m, size, value=-self.lr / (1 - _BETA_1**step))
        return self._score(views[:, 0], T + shift.to(T.dtype))

    def _gradient(self, z: Tensor, f: Tensor, u: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Step 3, B×C×d, from the logits and features of the selected views, U, and the lengths of T + S if not 1."""
        _, by_logit = entropy_of_mean(z)
        by_cosine = self.classifier.scale * by_logit  # B×n×C
        cosines = (z - self.classifier.bias) / self.classifier.scale
        along = (by_cosine * cosines).sum(dim=1)[:, :, None]
        g = (by_cosine.mT @ f).addcmul_(along, u, value=-1)
        if lengths is not None:
            g.div_(lengths)
        return g.masked_fill_(g.abs() <= self.least_gradient, 0.0) if self.least_gradient else g

    def _score(self, f: Tensor, rows: Tensor) -> Tensor:
        """Step 5, B×C."""
        return self.classifier.scores((rows @ f[:, :, None] / _lengths(rows))[:, :, 0])


def _lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
