"""The rule for a chunk of B samples at once: matrix products, and a recursion in scalars only.

Within a chunk every P and R is a combination of the R₀ and P₀ it starts from and the features f₁…f_B. A vector is
therefore followed by its *shadow*, a row of 2B+2 numbers: its inner products with the B features, and its coordinates
on (R₀, P₀, f₁…f_B). Learning a feature and refreshing R are the same linear operations on shadows as on vectors; all
they need besides is ‖P‖² and ⟨R,P⟩, which follow by recursion. Classes that are neither touched nor still moving cost
nothing but their column of F·Rᵀ. The products run where the features are; the recursion runs on the host.

Between two touches of a class, R stays in the plane of R and P. There it is two numbers (`refresh`): its part along
P/‖P‖, and the share that is left of the R it started from.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.engines.pta.rule import SMALLEST_DECAY, Prototypes, Rule
from pta.engines.pta.touches import Touches

Shadows = NDArray[Any]
Scalars = NDArray[np.float64]


def advance_by_chunk(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn all samples; give each one's cosine with every class's R as it was at that sample's turn, B×C."""
    return _follow(prototypes, anchors, features, touches, rule)[0]


def contraction_by_chunk(
    prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule
) -> Tensor:
    """Learn all samples; give the share of the R before them that is in each class's R after them, C, float64.

    The rule has a recursive, renormalised anchor: the share is the product of w/‖w·R+(1−w)·P‖ over the samples. An R
    that has arrived at P is followed no further, so the share may be too large then, never too small.
    """
    push = (1 - rule.w) * torch.linalg.vector_norm(prototypes.knowledge.double(), dim=1)
    share = (rule.w / (rule.w + push).clamp_min(SMALLEST_DECAY)) ** len(features)
    share[push == 0] = 1.0
    _, moving = _follow(prototypes, anchors, features, touches, rule)
    share[moving.classes] = torch.from_numpy(moving.R[:, len(features)]).to(share)
    return share


def _follow(
    prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule
) -> tuple[Tensor, "_MovingClasses"]:
    cosines = features @ prototypes.anchored.T
    unsettled = ~prototypes.resting if rule.anchor == "recursive" else torch.zeros_like(prototypes.resting)
    table = _Timetable.of(touches, unsettled.cpu().numpy())
    moving = _MovingClasses(prototypes, anchors, features, cosines, table, rule)
    rounds = len(table.rows)
    for round_ in range(rounds):
        moving.wait(round_)
        moving.learn(round_)
    moving.wait(rounds)
    moving.write_back(prototypes, cosines)
    return cosines, moving


@dataclass(frozen=True)
class _Timetable:
    """Classes never influence each other, so round k can bring each class to its k-th touch, whenever that is.

    Classes with more touches come first: those that take part in round k are the first `rows[k]` ones.
    """

    classes: NDArray[np.int64]  # M class numbers
    when: NDArray[np.int64]  # (rounds+1)×M sample numbers, the batch size where a class has no further touch
    probabilities: NDArray[np.float64]  # rounds×M, of each touch
    rows: list[int]  # for each round, how many classes have that touch

    @classmethod
    def of(cls, touches: Touches, also: NDArray[np.bool_]) -> "_Timetable":
        """The timetable of the touched classes and of the `also` flagged ones, which just wait."""
        counts = np.bincount(touches.classes, minlength=len(also))
        first = np.cumsum(counts) - counts  # where a class's touches begin, they being sorted by class
        touched = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        everyone = np.concatenate([touched, np.flatnonzero(also & (counts == 0))])
        rounds = int(counts.max())
        rows = [int(np.count_nonzero(counts > round_)) for round_ in range(rounds)]
        when = np.full((rounds + 1, len(everyone)), touches.count)
        probabilities = np.zeros((rounds, len(everyone)))
        for round_, taking_part in enumerate(rows):
            touch = first[touched[:taking_part]] + round_
            when[round_, :taking_part] = touches.samples[touch]
            probabilities[round_, :taking_part] = touches.probabilities[touch]
        return cls(everyone, when, probabilities, rows)


class _MovingClasses:
    """The M classes that move during this chunk, row by row in the order of the timetable."""

    def __init__(
        self, prototypes: Prototypes, anchors: Tensor, features: Tensor, cosines: Tensor, table: _Timetable, rule: Rule
    ) -> None:
        self.table, self.rule, self.features = table, rule, features
        self.recursive = rule.anchor == "recursive"
        self.arrived_within = prototypes.arrived_within
        self.batch = len(features)
        self.classes = torch.from_numpy(table.classes).to(features.device)
        self.P0 = prototypes.knowledge[self.classes]
        self.cosines = cosines[:, self.classes].T.contiguous().cpu().numpy()
        norm = torch.linalg.vector_norm(self.P0, dim=1).cpu().numpy()

        # A resting R is P/‖P‖ (or P is zero), so its products are known; any other start needs its own.
        pull = prototypes.anchored if self.recursive else anchors
        resting = prototypes.resting[self.classes] & self.recursive
        others = torch.nonzero(~resting)[:, 0].cpu().numpy()
        P0, R0 = self.P0[others], pull[self.classes[others]]
        along_r, along_p, overlap = self.cosines.copy(), self.cosines * norm[:, None], norm.copy()
        along_r[others] = (R0 @ features.T).cpu().numpy()
        along_p[others] = (P0 @ features.T).cpu().numpy()
        overlap[others] = (R0 * P0).sum(dim=1).cpu().numpy()

        gram = (features @ features.T).cpu().numpy()
        no_part, itself = np.zeros((self.batch, 2), gram.dtype), np.eye(self.batch, dtype=gram.dtype)
        self.samples = np.concatenate([gram, no_part, itself], axis=1)
        self.R = self._shadows(along_r, coordinate=0)
        self.P = self._shadows(along_p, coordinate=1)
        self.text = None if self.recursive else self.R.copy()
        self.pull = pull
        self.square, self.overlap = np.square(norm, dtype=np.float64), overlap.astype(np.float64)
        self.length = prototypes.length[self.classes].cpu().numpy()
        self.arrived = np.zeros(len(table.classes), dtype=bool)
        self.now = np.full(len(table.classes), -1)

    def _shadows(self, products: Shadows, coordinate: int) -> Shadows:
        shadows = np.zeros((len(products), 2 * self.batch + 2), dtype=products.dtype)
        shadows[:, : self.batch] = products
        shadows[:, self.batch + coordinate] = 1
        return shadows

    def wait(self, round_: int) -> None:
        """Refresh R until just before the touch of this round (or the chunk's end), and score what passes by."""
        if round_ == 0 and not self.recursive:
            return  # an R with a fixed anchor moves only when touched
        rows = self.table.rows[round_ - 1] if round_ else len(self.now)
        if not rows:
            return
        now = self.now[:rows]
        missed = self.table.when[round_, :rows] - now - 1
        square, length, overlap = self.square[:rows], self.length[:rows], self.overlap[:rows]
        R, P, B = self.R[:rows], self.P[:rows], self.batch

        steps = int(missed.max()) if self.recursive else 0
        path = refresh(overlap, square, length, steps, self.rule, self.arrived_within)
        each = np.arange(rows)
        first = now + (0 if self.rule.order == "update-first" else 1)
        scored = self.cosines[:rows]
        end_r, end_p = (scalars[-1].astype(R.dtype)[:, None] for scalars in (path.from_r, path.from_p))
        settled = end_r * R[:, :B] + end_p * P[:, :B]
        np.copyto(scored, settled, where=np.arange(B) >= first[:, None])
        columns = first + np.arange(path.steps)[:, None]
        seen, row = np.nonzero((columns >= 0) & (columns < B))
        at = columns[seen, row]
        scored[row, at] = path.from_r[seen, row] * R[row, at] + path.from_p[seen, row] * P[row, at]

        last = np.minimum(missed, path.steps)
        from_r, from_p = path.from_r[last, each], path.from_p[last, each]
        if self.recursive:
            R *= from_r.astype(R.dtype)[:, None]
            R += P * from_p.astype(R.dtype)[:, None]
            self.arrived[:rows] = path.arrived[last, each]
            if not self.rule.renormalise:
                self.length[:rows] = np.where(square > 0, path.length[last, each], length * self.rule.w**missed)
            self.overlap[:rows] = from_r * overlap + from_p * square

    def learn(self, round_: int) -> None:
        """Let the sample of this round flow into P, and refresh R once."""
        rows = self.table.rows[round_]
        rule, sample, each = self.rule, self.table.when[round_, :rows], np.arange(rows)
        log_keep = rule.log_decay(self.table.probabilities[round_, :rows])
        keep, share = np.exp(log_keep), -np.expm1(log_keep)
        P, A = self.P[:rows], (self.R if self.text is None else self.text)[:rows]

        own = self.samples[sample, sample]
        square = keep**2 * self.square[:rows] + 2 * keep * share * P[each, sample] + share**2 * own
        overlap = keep * self.overlap[:rows] + share * A[each, sample]
        P *= keep.astype(P.dtype)[:, None]
        P += self.samples[sample] * share.astype(P.dtype)[:, None]

        pull = rule.w * (self.length[:rows] if self.recursive else 1.0)
        push = 1 - rule.w
        size = np.sqrt(np.maximum(pull**2 + 2 * pull * push * overlap + push**2 * square, 0.0))
        stuck = size == 0
        size[stuck] = 1.0
        from_a, from_p = np.where(stuck, 1.0, pull / size), np.where(stuck, 0.0, push / size)
        R = A * from_a.astype(P.dtype)[:, None]
        R += P * from_p.astype(P.dtype)[:, None]
        self.R[:rows] = R
        self.square[:rows] = square
        self.overlap[:rows] = from_a * overlap + from_p * square if self.recursive else overlap
        if self.recursive and not rule.renormalise:
            self.length[:rows] = np.where(stuck, 0.0, size)
        self.now[:rows] = sample

    def write_back(self, prototypes: Prototypes, cosines: Tensor) -> None:
        """Turn coordinates into vectors again."""
        if self.recursive and not self.rule.renormalise:
            prototypes.length[~prototypes.touched] *= self.rule.w**self.batch
        classes, F = self.classes, self.features

        def there(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(F.device)

        p = there(self.P[:, self.batch :])
        P = torch.addmm(p[:, 1:2] * self.P0, p[:, 2:], F)
        under_way = there(np.flatnonzero(~self.arrived))
        r = there(self.R[:, self.batch :])[under_way]
        R = r[:, 0:1] * self.pull[classes[under_way]] + r[:, 1:2] * self.P0[under_way] + r[:, 2:] @ F
        prototypes.knowledge[classes] = P
        P[under_way] = R
        prototypes.anchored[classes] = P / torch.linalg.vector_norm(P, dim=1, keepdim=True, dtype=torch.float64).to(P)
        prototypes.length[classes] = there(self.length)
        prototypes.resting[classes] = there(self.arrived | (self.square == 0) | (not self.recursive))
        prototypes.touched[classes] = True  # a class that moves untouched was touched before
        cosines[:, classes] = there(self.cosines).T


@dataclass(frozen=True)
class Refreshed:
    """R after j = 0, 1, … refreshes is from_r[j]·R + from_p[j]·P, and its length is length[j], for every class.

    The last row holds for every later j, too: all classes have arrived at P there, or no more rows were asked for.
    """

    from_r: Scalars
    from_p: Scalars
    length: Scalars
    arrived: NDArray[np.bool_]

    @property
    def steps(self) -> int:
        """The largest j that has a row of its own."""
        return len(self.from_r) - 1


def refresh(
    overlap: Scalars, square: Scalars, length: Scalars, steps: int, rule: Rule, arrived_within: float
) -> Refreshed:
    """Refresh up to `steps` times, given ⟨R,P⟩, ‖P‖² and the length that belongs to the unit vectors R.

    Where P = 0, R stays as it is (and fades: `Refreshed.length` has no row for that); so does an R whose
    mixture with P is exactly zero.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        norm = np.sqrt(square)
        cosine = np.where(norm > 0, np.clip(overlap / norm, -1, 1), 1.0)
        sine = np.sqrt(1 - cosine * cosine)
        push = norm * (1 - rule.w)
        goal = 1.0 if rule.renormalise else norm
        along, share = [cosine * length], [length]
        for step in range(1, steps + 1):
            along.append(along[-1] * rule.w + push)
            share.append(share[-1] * rule.w)
            if rule.renormalise:
                size = np.hypot(along[-1], share[-1] * sine)
                along[-1] /= size
                share[-1] /= size
            if step % 3 == 0 and np.all(_arrived(along[-1], share[-1], goal, arrived_within) | (norm == 0)):
                break
        alongs, shares = np.stack(along), np.stack(share)
        size = np.hypot(alongs, shares * sine)
        moved = (size > 0) & (norm > 0)
        from_r = np.where(moved, shares / size, 1.0)
        from_p = np.where(moved, (alongs / size - from_r * cosine) / norm, 0.0)
        arrived = _arrived(alongs, shares, goal, arrived_within)
    return Refreshed(from_r, from_p, np.ones_like(size) if rule.renormalise else size, arrived)


def _arrived(along: Scalars, share: Scalars, goal: Scalars | float, within: float) -> NDArray[np.bool_]:
    return (share <= within * along) & (np.abs(along - goal) <= within * goal)
