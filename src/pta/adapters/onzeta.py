"""OnZeta: Online Zero-Shot Classification with CLIP (ECCV 2024).

https://arxiv.org/abs/2408.13320
The loop: `pta.reference.onzeta`.

Keeps two things a class: a dual variable ρ_c (zero at first), which lifts classes that come too rarely, and a vision
proxy w_c (the text anchor at first), learnt by gradient steps towards the lifted text labels. Must know the stream's
length n.

For the i-th sample, with unit feature x:
1. Text label: p = softmax(scale·T·x + ρ).
2. Dual step: ρ ← max(0, ρ − (dual_step/√i)·(p − alpha/C)).
3. Vision label: v = softmax(w·x/temperature).
4. Answer: ln(b·v + (1−b)·p), with b = beta·√(i/n).
5. Proxy step: w ← w − (proxy_step/√i)/temperature · (v − p)⊗x, rows scaled to unit length.

In a stream longer than announced, b stays at beta from sample n on; the paper does not have this case.
"""

from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.rule import Order
from pta.engines.zero_shot import exact_logits
from pta.errors import InvalidParameter
from pta.parameters import require_choice, require_count, require_number
from pta.samples import Samples

_LARGEST_STEP = 1e6
_LONGEST = 2**53  # beyond, i/n would no longer tell one sample from the next


@register
class OnZeta(Adapter):
    """Online label and proxy learning for a stream of known length.

    Args:
        classifier: its anchors are the text proxies, 1/scale their temperature.
        length: n, how many samples the stream has; `create_adapter` takes it from `source`.
        temperature: of the vision labels.
        proxy_step: the constant of the steps of w.
        dual_step: the constant of the steps of ρ.
        alpha: the share of samples, in units of 1/C, that every class is expected to get at least.
        beta: the weight of the vision labels at the end of the stream.
        order: answer a sample before learning from it ("predict-first") or after ("update-first").

    Logits are logarithms of the mixture of step 4. `predict` mixes as for the next sample ("predict-first") or as for
    the last one learnt ("update-first").

    With the paper's constants the first proxy steps overshoot so far that a difference of 10⁻¹² in the anchors can
    become one of 10⁻⁴ in logits. State is float64, so that batches cannot show; anchors rounded to float32 do.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> OnZeta(classifier, length=2).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "onzeta"
    recordable = True
    rho: Tensor
    proxies: Tensor
    seen: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        length: int | None = None,
        temperature: float = 0.04,
        proxy_step: float = 0.5,
        dual_step: float = 20.0,
        alpha: float = 1.0,
        beta: float = 0.8,
        order: Order = "predict-first",
    ) -> None:
        if length is None:
            raise InvalidParameter(
                "onzeta must know the length of the stream; give length=…, or the samples: create_adapter(…, source=…)"
            )
        self.length = require_count("length", length, 1, _LONGEST)
        self.temperature = require_number("temperature", temperature, 1e-4, 1e4)
        self.proxy_step = require_number("proxy_step", proxy_step, 0.0, _LARGEST_STEP)
        self.dual_step = require_number("dual_step", dual_step, 0.0, _LARGEST_STEP)
        self.alpha = require_number("alpha", alpha, 0.0, 1.0)
        self.beta = require_number("beta", beta, 0.0, 1.0)
        require_choice("order", order, get_args(Order))
        self.order = order
        super().__init__(
            classifier,
            length=self.length,
            temperature=self.temperature,
            proxy_step=self.proxy_step,
            dual_step=self.dual_step,
            alpha=self.alpha,
            beta=self.beta,
            order=order,
        )
        self.add_state("rho", lambda: self.classifier.anchors.new_zeros(self.classifier.classes, dtype=torch.float64))
        self.add_state("proxies", lambda: self.classifier.anchors.double().clone())
        self.add_state("seen", lambda: self.classifier.anchors.new_zeros((), dtype=torch.int64), per_class=False)

    def _step(self, samples: Samples) -> Tensor:
        features = samples.features.double()
        text = exact_logits(self.classifier, features)
        answers = []
        for z, x in zip(text, features, strict=True):
            self.seen += 1
            log_p, log_v = self._labels(z, x)
            self._learn(x, log_p.exp(), log_v.exp())
            if self.order == "update-first":
                log_p, log_v = self._labels(z, x)
            answers.append(self._mixture(log_p, log_v, self.seen))
        return torch.stack(answers).to(samples.features.dtype)

    def _predict(self, samples: Samples) -> Tensor:
        features = samples.features.double()
        log_p, log_v = self._labels(exact_logits(self.classifier, features), features)
        i = self.seen + int(self.order == "predict-first")
        return self._mixture(log_p, log_v, i).to(samples.features.dtype)

    def _labels(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of the text and the vision label."""
        vision = x @ self.proxies.T / self.temperature
        return (z + self.rho).log_softmax(dim=-1), vision.log_softmax(dim=-1)

    def _mixture(self, log_p: Tensor, log_v: Tensor, i: Tensor) -> Tensor:
        b = self.beta * (i.double() / self.length).clamp_max(1.0).sqrt()
        return torch.logaddexp(log_v + b.log(), log_p + (1 - b).log())

    def _learn(self, x: Tensor, p: Tensor, v: Tensor) -> None:
        root = self.seen.double().sqrt()
        self.rho.sub_(self.dual_step / root * (p - self.alpha / len(p))).clamp_min_(0.0)
        self.proxies.addr_(self.proxy_step / root / self.temperature * (p - v), x)
        normalize(self.proxies, dim=1, out=self.proxies)
