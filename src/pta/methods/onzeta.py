"""OnZeta: Online Zero-Shot Classification with CLIP (ECCV 2024).

https://arxiv.org/abs/2408.13320

Keeps two things per class: a dual variable ρ_c (zero at first), which lifts classes that come too rarely, and a vision
proxy w_c (the text anchor at first), learned by gradient steps towards the lifted text labels. Must know the stream's
length n.

For the i-th sample, with unit feature x:
1. Text label: p = softmax(scale·T·x + ρ).
2. Dual step: ρ ← max(0, ρ − (dual_step/√i)·(p − alpha/C)).
3. Vision label: v = softmax(w·x/temperature).
4. Answer: ln(b·v + (1−b)·p), with b = beta·√(i/n).
5. Proxy step: w ← w − (proxy_step/√i)/temperature · (v − p)⊗x, rows scaled to unit length.

In a stream longer than announced, b stays at beta from sample n on; the paper does not have this case.
The first proxy steps overshoot, so that rounding moves accuracies by about ±1 point, in the authors' program too.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import Order, Prior, count, learning_order, number, prior_in_front
from pta.core.samples import Samples
from pta.errors import InvalidParameter
from pta.methods.adapter import Adapter
from pta.methods.declaration import Origin
from pta.methods.state import UNIT_BALL, between, doubles

_LARGEST_STEP = 1e6
_LONGEST = 2**53  # beyond, i/n would no longer tell one sample from the next


class OnZeta(Adapter):
    """Online label and proxy learning for a stream of known length.

    The loop: `pta.reference.onzeta.onzeta_loop`.

    Logits are logarithms of the mixture of step 4. `predict` mixes as for the next sample ("predict-first") or as for
    the last one learned ("update-first").

    With the paper's constants the first proxy steps overshoot, and later ones magnify every difference. So a batch can
    differ from a loop: the rounding of float64 changed 71 of 20,000 answers, and the last bit of float32 features 4,483
    (benchmarks/rounding.py). With proxy_step = 0.05 neither changed any.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> OnZeta(classifier, length=2).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "onzeta"
    may_fail = False
    loses_frozen = True
    prototypes_in = "proxies"
    fixed_classes = ""
    max_batch = 1024
    length: int = count(None, 1, _LONGEST, "n, length of the stream; by default that of `source`")
    temperature: float = number(0.04, 1e-4, 1e4, "temperature of the vision labels")
    proxy_step: float = number(0.5, 0.0, _LARGEST_STEP, "step size constant of w")
    dual_step: float = number(20.0, 0.0, _LARGEST_STEP, "step size constant of ρ")
    alpha: float = number(1.0, 0.0, 1.0, "minimum expected share of samples per class, in units of 1/C")
    beta: float = number(0.8, 0.0, 1.0, "weight of the vision labels at the end of the stream")
    order: Order = learning_order("predict-first")
    prior: Prior = prior_in_front()

    def _declare_state(self) -> None:
        # Step i adds at most dual_step/(C·√i) to ρ, and there are at most _LONGEST steps.
        C = self.classifier.classes
        self.rho = self.add_state("rho", doubles(0.0, C), between(0.0, 2 * self.dual_step * _LONGEST**0.5 / C))
        self.proxies = self.add_state("proxies", lambda c: c.anchors.double().clone(), UNIT_BALL)

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters; the length is that of the stream, unless it is given."""
        length = origin.length if given.get("length") is None else given["length"]
        if length is None:
            raise InvalidParameter(
                "onzeta must know how many samples will come; give length=1000 (--set onzeta.length=1000), or samples "
                "that can be counted (a folder in the place of -, create_adapter(…, source=…))"
            )
        return super().complete({**given, "length": length}, origin)

    def _step(self, samples: Samples) -> Tensor:
        features = samples.features.double()
        answers = []
        for at, (z, x) in enumerate(zip(self.zero_shot(samples).exact_logits, features, strict=True), start=1):
            i = self.seen + at
            log_p, log_v = self._labels(z, x)
            self._learn(x, log_p.exp(), log_v.exp(), i)
            if self.order == "update-first":
                log_p, log_v = self._labels(z, x)
            answers.append(self._mixture(log_p, log_v, i))
        return torch.stack(answers).to(samples.features.dtype)

    def _predict(self, samples: Samples) -> Tensor:
        features = samples.features.double()
        log_p, log_v = self._labels(self.zero_shot(samples).exact_logits, features)
        i = self.seen + int(self.order == "predict-first")
        return self._mixture(log_p, log_v, i).to(samples.features.dtype)

    def _labels(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of the text and the vision label."""
        vision = x @ self.proxies.T / self.temperature
        return (z + self.rho).log_softmax(dim=-1), vision.log_softmax(dim=-1)

    def _mixture(self, log_p: Tensor, log_v: Tensor, i: Tensor) -> Tensor:
        b = self.beta * (i.double() / self.length).clamp_max(1.0).sqrt()
        return torch.logaddexp(log_v + b.log(), log_p + (1 - b).log())

    def _learn(self, x: Tensor, p: Tensor, v: Tensor, i: Tensor) -> None:
        root = i.double().sqrt()
        self.rho.sub_(self.dual_step / root * (p - self.alpha / len(p))).clamp_min_(0.0)
        self.proxies.addr_(self.proxy_step / root / self.temperature * (p - v), x)
        normalize(self.proxies, dim=1, out=self.proxies)
