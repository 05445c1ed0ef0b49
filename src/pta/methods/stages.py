"""Stages around the rule of a method: a prior in front of it, a gate and a calibration behind it."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import Samples
from pta.engines.balance import openness
from pta.engines.calibration import GRID, temperatures, temperatures_in_order
from pta.engines.gpu import processors
from pta.engines.local_prior import LocalPrior
from pta.engines.zero_shot import ZeroShot
from pta.methods.state import DISTRIBUTIONS, LARGEST_COUNT, Pieces, between, doubles, full

# A and B add at most 8 per sample and keep 255/256: no more than 2048, whatever state they start from.
_PRIOR = dict.fromkeys(("fast", "slow", "mean"), DISTRIBUTIONS) | {
    "found": between(-2100, 2100),
    "by_chance": between(0, 2100),
    "count": between(0, LARGEST_COUNT),
}
GATE_INTERVAL = 128  # samples between two refreshes of the gate, where the method has no refreshes of its own
GATE_SUMS = ("gate_total", "gate_squares")
"""The sums that the gate keeps."""
_ROUNDING_OF_SUMS = 1e-9  # per sample


class Stages:
    """The stages of one adapter, whose state is among the adapter's pieces."""

    def __init__(
        self, pieces: Pieces, add_state: Callable[..., Tensor], *, prior: bool, gate: bool, matched: bool
    ) -> None:
        self._pieces, self._prior, self._gate, self.matched = pieces, prior, gate, matched
        self._front: ZeroShot | None = None  # of the current samples
        add = partial(add_state, per_class=False)
        if self._prior:
            for name, bound in _PRIOR.items():
                add(f"local_{name}", partial(_fresh_prior, name), bound)
        if self._gate:
            add("gate_total", lambda c: doubles(0.0, c.classes)(c), between(0, LARGEST_COUNT))
            add("gate_squares", doubles(0.0), between(0, LARGEST_COUNT))
            add("gate_open", doubles(1.0), between(0, 1))
        if self.matched:
            add("calibration_gaps", doubles(0.0, len(GRID)), between(-1.01, 1.01))
            add("calibration_count", full(0, dtype=torch.int64))

    def zero_shot(self, classifier: ZeroShotClassifier, samples: Samples) -> ZeroShot:
        """The zero-shot quantities of samples, with the prior of the current ones."""
        front = self._front
        if front is not None and front.samples is samples:
            return front
        return ZeroShot(classifier, samples, None if front is None else front.log_prior)

    def around(
        self,
        answer: Callable[[Samples], Tensor],
        classifier: ZeroShotClassifier,
        samples: Samples,
        logit_factor: float,
        *,
        learn: bool,
    ) -> Tensor:
        """The logits of a method's answer with its stages, which learn as well if the method does."""
        front = self._front = ZeroShot(classifier, samples)
        try:
            if self._prior and learn:  # a sample that is not learned has no place in the order
                front.put_prior(LocalPrior(*(self._pieces[f"local_{name}"].tensor for name in _PRIOR)))
            logits = answer(samples)
        finally:
            self._front = None
        if learn and (self._gate or self.matched) and processors.triton_runs_on(logits.device):
            from pta.engines.gpu.triton_stages import answer_on_gpu

            state = self._pieces.tensors()
            return answer_on_gpu(front, logits, state, logit_factor, gate=self._gate, matched=self.matched)
        answered = self._behind_gate(front, logits, logit_factor, learn=learn) if self._gate else logits
        if not self.matched:
            return answered
        gaps, count = (self._pieces[f"calibration_{name}"].tensor for name in ("gaps", "count"))
        if learn:
            tau = temperatures_in_order(gaps, count, logits, front.text_probabilities.amax(dim=1))[:, None]
        else:
            tau = temperatures(gaps, count)
        if self._gate:  # zero-shot needs no other temperature than that of its scale
            tau = torch.lerp(torch.full_like(tau, 1 / logit_factor), tau, self._pieces["gate_open"].tensor)
        return answered / tau.to(logits.dtype)

    def _behind_gate(self, front: ZeroShot, logits: Tensor, logit_factor: float, *, learn: bool) -> Tensor:
        total, squares, open_by = (self._pieces[name].tensor for name in (*GATE_SUMS, "gate_open"))
        if learn:
            s = front.text_probabilities
            total += s.sum(dim=0)
            squares += torch.dot(s.flatten(), s.flatten())
        zero_shot, bias = front.exact_logits / logit_factor, front.classifier.bias
        zero_shot = zero_shot + bias * (1 - 1 / logit_factor) if bias else zero_shot  # which is added once
        return torch.lerp(zero_shot.to(logits.dtype), logits, open_by.to(logits.dtype))

    def contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        """What no samples could have as their sums: each adds probabilities, and squares of at least 1/C, at most 1."""
        if not self._gate:
            return None
        seen, total, squares = (state[name].double() for name in ("seen", *GATE_SUMS))
        least, slack = seen / len(total), _ROUNDING_OF_SUMS * (1 + seen)
        possible = ((total.sum() - seen).abs() <= slack) & (least - slack <= squares) & (squares <= seen + slack)
        return None if bool(possible) else "the gate's sums are not those of as many samples"

    def refresh(self) -> None:
        """Open or close the gate by all samples so far."""
        if self._gate:
            seen, total, squares, open_by = (self._pieces[name].tensor for name in ("seen", *GATE_SUMS, "gate_open"))
            if processors.triton_runs_on(total.device):
                from pta.engines.gpu.triton_stages import open_gate_on_gpu

                open_gate_on_gpu(seen, total, squares, open_by)
            else:
                open_by.copy_(openness(seen, total, squares))


def _fresh_prior(name: str, classifier: ZeroShotClassifier) -> Tensor:
    return getattr(LocalPrior.fresh(classifier), name)
