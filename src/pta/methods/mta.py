"""MTA: On the Test-Time Zero-Shot Generalization of Vision-Language Models: Do We Really Need Prompt Learning?

CVPR 2024, https://arxiv.org/abs/2405.02266

Keeps nothing from sample to sample: MeanShift finds the mode of a sample's views, each weighed by how well the others
agree with it.

For each sample with unit views f_1 … f_V, the plain image first:
1. Bandwidths: h_p² = half the mean of the k = int(bandwidth_share·(V−1)) smallest squared distances to other views.
2. Affinities: A_pq = ⟨softmax(z_p), softmax(z_q)⟩, with z_p the zero-shot logits of view p.
3. Start with equal weights y = 1/V at the plain image, m = f_1.
4. Five rounds, each of
   (a) with φ_p = exp(−‖f_p − m‖²/2h_p²), up to five times y ← softmax((φ + lambda_q·A·y)/lambda_y);
   (b) up to five times m ← Σ φ_p·y_p·f_p / Σ φ_p·y_p, scaled to unit length, with φ of the m before;
   where (a) and (b) end early once a step changes y, or m, by less than 10⁻⁶.
5. Score the mode: scale·T·m.

With too few views for k ≥ 1, the released program divides zero by zero; here such samples are refused.
Views that are copies of one another have h = 0, and 0/0 in the released program; here h² is 10⁻¹² at least.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import number
from pta.core.samples import Samples
from pta.engines.zero_shot import samples_at_once
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter

_ROUNDS = 5
_STEPS = 5
_SETTLED = 1e-6
_SMALLEST_BANDWIDTH = 1e-12  # squared; views that are copies of one another have none
_LARGEST = 1e6  # of both λ


class MTA(Adapter):
    """MeanShift over a sample's augmented views.

    The loop: `pta.reference.mta.mta_loop`.

    The mode is found in float64, so that when a sample ends early does not depend on its batch.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> views = [[[0.7, 0.7], [0.8, 0.6], [0.8, 0.5], [0.9, 0.6], [0.1, 0.9]]]
    >>> MTA(classifier).step(Samples.of([[0.7, 0.7]], views=views)).argmax(dim=1)
    tensor([0])
    """

    name = "mta"
    needs = frozenset({"features", "views"})
    may_fail = False
    lambda_y: float = number(0.2, 1e-6, _LARGEST, "λ_y, how even the weights of the views remain")
    lambda_q: float = number(4.0, 0.0, _LARGEST, "λ_q, weight of agreement between views against distance to the mode")
    bandwidth_share: float = number(0.3, 0.0, 1.0, "share of the other views that are neighbours of a view")

    def _declare_state(self) -> None:
        self.max_batch = samples_at_once(self.classifier, views=64)

    def require(self, samples: Samples) -> None:
        """Refuse samples without views, or with too few."""
        super().require(samples)
        if samples.views is not None and self._neighbours(samples.views.shape[1]) < 1:
            raise InvalidSamples(
                f"{samples.views.shape[1]} views leave none of a view's neighbours at "
                f"bandwidth_share={self.bandwidth_share:g}; mta needs more views, as pta extract --views 64 makes"
            )

    def _step(self, samples: Samples) -> Tensor:
        return self._answer(samples, learn=True)[1]

    _predict = _step

    def _answer(self, samples: Samples, *, learn: bool) -> tuple[Tensor, Tensor]:
        modes = self.refined(samples)
        return modes, self.zero_shot(Samples.unchecked(modes)).logits

    def refined(self, samples: Samples) -> Tensor:
        """The mode m of each sample's views, B×d, unit rows: steps 1 to 4."""
        f = normalize(samples.tensors()["views"].double(), dim=2)
        nearest = _squared_distances(f, f).sort(dim=2).values[:, :, 1 : self._neighbours(f.shape[1]) + 1]  # but itself
        twice_squared_h = nearest.mean(dim=2).clamp_min(2 * _SMALLEST_BANDWIDTH)
        s = self.zero_shot(Samples.unchecked(samples.features, views=f)).view_logits.softmax(dim=2)
        affinity = s @ s.mT

        def log_density(m: Tensor) -> Tensor:
            return -_squared_distances(f, m[:, None])[:, :, 0] / twice_squared_h

        def reweigh(y: Tensor, phi: Tensor) -> Tensor:
            agreement = (affinity @ y[:, :, None])[:, :, 0]
            return ((phi + self.lambda_q * agreement) / self.lambda_y).softmax(dim=1)

        def shift(m: Tensor, log_y: Tensor) -> Tensor:
            weights = (log_density(m) + log_y).softmax(dim=1)  # the quotient of step 4b, never 0/0
            return normalize((weights[:, None] @ f)[:, 0], dim=1)

        y, m = f.new_full(f.shape[:2], 1 / f.shape[1]), f[:, 0]
        for _ in range(_ROUNDS):
            y = _iterate(y, partial(reweigh, phi=log_density(m).exp()))
            m = _iterate(m, partial(shift, log_y=y.log()))
        return m.to(samples.features.dtype)

    def _neighbours(self, views: int) -> int:
        return int(self.bandwidth_share * (views - 1))


def _iterate(x: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
    """Let x, B×n, be step(x) a few times; a row that a step hardly moves stays there."""
    moving = x.new_ones((len(x), 1), dtype=torch.bool)
    for _ in range(_STEPS):
        moved = step(x)
        far = torch.linalg.vector_norm(moved - x, dim=1, keepdim=True) >= _SETTLED
        x = torch.where(moving, moved, x)
        moving = moving & far
    return x


def _squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """Between unit rows, for each sample: B×V×d and B×W×d give B×V×W."""
    return (2 - 2 * rows @ others.mT).clamp_min(0.0)
