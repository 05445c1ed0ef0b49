"""PTA's rule as a program would be written that knows no 0/0, every result rounded to one precision.

In float16 this is the arithmetic of the released program: products are summed in float32 and rounded, everything else
is rounded operation by operation. `pta` keeps the R of a class that is still empty; here it is divided by its length.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.data.features import FeatureFile

Form = Literal["released", "printed"]
Weight = Literal["saturating", "raw"]


@dataclass(frozen=True)
class Unguarded:
    """A rule and a precision.

    Attributes:
        form: "released" scales R to unit length at every refresh and adds logits; "printed" lets R shrink, uses its
            cosine and adds probabilities.
        weight: β = 1 − e^(−s/h), or β = s ("raw").
        min_probability: the mask; 0 is none.
        dtype: of state and arithmetic.
    """

    form: Form = "released"
    weight: Weight = "saturating"
    w: float = 0.01
    h: float = 20.0
    min_probability: float = 0.1
    dtype: torch.dtype = torch.float32

    def share(self, s: Tensor) -> Tensor:
        """β, how much of P the sample replaces, of the probabilities s."""
        beta = s if self.weight == "raw" else 1 - torch.exp(-s / self.h)
        return torch.where(s >= self.min_probability, beta, 0)


@dataclass(frozen=True)
class Outcome:
    """What came of a stream.

    Attributes:
        predictions: the class named at each position of the stream.
        first_nan: after how many samples some R was no number any more; None if never.
        knowledge: P at the end, or where all later answers are settled.
    """

    predictions: NDArray[np.int64]
    first_nan: int | None
    knowledge: Tensor


@torch.no_grad()
def stream(rule: Unguarded, data: FeatureFile, order: NDArray[np.int64]) -> Outcome:
    """Learn and answer each sample in turn.

    A NaN stays for ever and wins every arg-max, the first of several. So once the first class has one (or any class,
    where a softmax spreads it to all), all further answers are the first class, and the loop ends.
    """
    T = data.classifier.anchors.to(rule.dtype)
    P, R = torch.zeros_like(T), T.clone()
    predictions = np.zeros(len(order), dtype=np.int64)
    first_nan = None
    for position, f in enumerate(data.samples.features[torch.from_numpy(order)].to(rule.dtype)):
        scaled = data.classifier.scale * f
        z = _product(T, scaled)
        s = _softmax(z)
        beta = rule.share(s)
        touched = beta.nonzero()[:, 0]
        P[touched] = (1 - beta[touched, None]) * P[touched] + beta[touched, None] * f
        R = rule.w * R + (1 - rule.w) * P
        direction = R / _length(R)
        R = direction if rule.form == "released" else R
        logits = _product(direction, scaled)
        scores = z + logits if rule.form == "released" else s + _softmax(logits)
        predictions[position] = scores.argmax()
        if first_nan is None and direction[:, 0].isnan().any():
            first_nan = position + 1
        if first_nan and (rule.form == "printed" or direction[0, 0].isnan()):
            break
    return Outcome(predictions, first_nan, P)


def _product(rows: Tensor, f: Tensor) -> Tensor:
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    return (rows.to(wide) @ f.to(wide)).to(rows.dtype)


def _softmax(z: Tensor) -> Tensor:
    wide = torch.float64 if z.dtype == torch.float64 else torch.float32
    return z.to(wide).softmax(dim=0).to(z.dtype)


def _length(rows: Tensor) -> Tensor:
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=wide).to(rows.dtype)
