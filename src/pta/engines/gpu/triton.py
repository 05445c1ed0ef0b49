"""The rule on a GPU: every class is followed by a program of its own, its two vectors in registers from first to last.

Nothing is read back to the host. A single sample of not too many classes takes one kernel, softmax and fusion included.
A batch takes a few: the probabilities that are large enough to learn from, as a table (`triton_touches.py`); a matrix
product that scores every sample against every R as it was before; a kernel that follows those classes that move, sample
by sample while they do; and one that scores the samples after their R has come to rest for good, all at once.
"""

import torch
import triton
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from pta.core.classifier import ZeroShotClassifier
from pta.door.foreign import works
from pta.engines.gpu.triton_kernels import follow, score_rested, step
from pta.engines.gpu.triton_touches import deciders, exact_logits_of_one, find_touches_on_gpu, split
from pta.engines.pta.rule import Prototypes, Rule

# Measured on an H200, see docs/performance.md.
MOST_STEPS = 4  # samples for which as many steps are faster than a batch: benchmarks/results/gpu-forms.csv
_MOST_CLASSES_FOR_A_STEP = 2048  # each program computes the softmax for itself
_NUMBERS_AT_ONCE = 2**22  # in the table of probabilities, 16 MiB
_MOST_SAMPLES = 1024  # in a batch
_MOST_WARPS = 32
_PROGRAMS = 2048  # that share the classes of a batch; more than a GPU runs at a time
# Two numbers per thread at least: the compiler would fuse the product of a single one into the first addition across
# threads, and their sums would differ in the last bit (racecheck of compute-sanitizer finds such threads).
_SHORTEST_VECTOR = 64
_A_THREADS_PART_OF_A_VECTOR, _A_THREADS_PART_OF_ROWS = 8, 64  # numbers that it keeps in registers
_RESTED_ROWS, _RESTED_NUMBERS = 32, 128  # samples, and numbers of each, that a program scores together

_Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # features, z, what scores are added to, and scores


def works_on(device: torch.device) -> bool:
    """Whether kernels can be compiled and launched there; if not, says why."""
    classifier = ZeroShotClassifier(torch.eye(2, device=device), ["yes", "no"])
    rule = Rule(20.0, 0.01, 0.1, "recursive", "update-first", "saturating", renormalise=True)
    feature = classifier.anchors[:1]
    given = Prototypes.fresh(classifier.anchors), classifier, feature, classifier.logits(feature), rule

    def trial() -> None:
        advance_on_gpu(*given)
        exact_logits_of_one(classifier, feature)  # which is launched ahead, where that is possible

    return works(trial, "PTA does without its GPU kernels")


def advance_on_gpu(
    prototypes: Prototypes,
    classifier: ZeroShotClassifier,
    features: Tensor,
    z: Tensor,
    rule: Rule,
    *,
    onto: Tensor | None = None,
    table: Tensor | None = None,
) -> Tensor:
    """Learn B samples in order and score each against every class's R at its turn, B×C.

    The prototypes are float32 and changed in place, features have any precision. Scores are added to `onto`, B×C. The
    table, C×B, has the probabilities of touches if they are not those of the zero-shot logits z.
    """
    if isinstance(z, FakeTensor):  # without numbers no kernel can be launched, and none is needed to know the shape
        return torch.empty_like(z, dtype=torch.float32)
    features, z = features.contiguous(), z.float().contiguous()
    # a kernel does not read what it is given in the place of `onto` if there is none
    base, scores = z if onto is None else onto.float().contiguous(), torch.empty_like(z)
    by_steps = len(z) <= MOST_STEPS and table is None and classifier.classes <= _MOST_CLASSES_FOR_A_STEP
    max_batch = 1 if by_steps else min(_MOST_SAMPLES, max(1, _NUMBERS_AT_ONCE // classifier.classes))
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        for start in range(0, len(z), max_batch):
            part = slice(start, start + max_batch)
            batch = features[part], z[part], base[part], scores[part]
            how = prototypes, classifier, rule, onto is not None
            if by_steps:
                _take_step(batch, *how)
            elif table is None:
                _take_batch(batch, find_touches_on_gpu(classifier, *batch[:2], rule), *how)
            else:
                _take_batch(batch, table[:, part].contiguous(), *how)
    return scores


def _take_step(
    batch: _Batch, prototypes: Prototypes, classifier: ZeroShotClassifier, rule: Rule, has_base: bool
) -> None:
    C, d = classifier.anchors.shape
    step[(C,)](
        *(*batch, classifier.anchors, *vars(prototypes).values()),
        *(C, d, *deciders(classifier, rule), rule.h, *split(rule.w), 1 - rule.w, prototypes.arrived_within),
        **_switches(rule),
        ONTO=has_base,
        D=_padded(d),
        CLASSES=triton.next_power_of_2(C),
        num_warps=_warps(d),
    )


def _take_batch(
    batch: _Batch, table: Tensor, prototypes: Prototypes, classifier: ZeroShotClassifier, rule: Rule, has_base: bool
) -> None:
    features, z, base, scores = batch
    (B, C), d = z.shape, classifier.dim
    D, warps = _padded(d), _warps(d)
    numbers = B, C, d, classifier.scale, classifier.bias
    rests = torch.empty(C, dtype=torch.int32, device=table.device)
    F, R = features.to(prototypes.anchored.dtype), prototypes.anchored
    if has_base:
        torch.addmm(base, F, R.T, alpha=classifier.scale, out=scores)
    else:
        torch.mm(F * classifier.scale, R.T, out=scores)
    if classifier.bias:
        scores.add_(classifier.bias)
    follow[(min(C, _PROGRAMS),)](
        *(features, table, base, scores, rests, classifier.anchors, *vars(prototypes).values()),
        *(*numbers, rule.h, *split(rule.w), 1 - rule.w, prototypes.arrived_within),
        **_switches(rule),
        ONTO=has_base,
        D=D,
        SAMPLES=triton.next_power_of_2(B),
        ROWS=max(1, _A_THREADS_PART_OF_ROWS * 32 * warps // D),
        num_warps=warps,
    )
    score_rested[(min(C, _PROGRAMS), triton.cdiv(B, _RESTED_ROWS))](
        *(features, base, scores, rests, prototypes.anchored, *numbers),
        ONTO=has_base,
        ROWS=_RESTED_ROWS,
        NUMBERS=_RESTED_NUMBERS,
    )


def _padded(d: int) -> int:
    return max(_SHORTEST_VECTOR, int(triton.next_power_of_2(d)))


def _warps(d: int) -> int:
    return min(_MOST_WARPS, max(1, _padded(d) // (32 * _A_THREADS_PART_OF_A_VECTOR)))


def _switches(rule: Rule) -> dict[str, bool]:
    return {
        "RECURSIVE": rule.anchor == "recursive",
        "RENORMALISE": rule.renormalise or rule.anchor == "fixed",
        "UPDATE_FIRST": rule.order == "update-first",
        "SATURATING": rule.weight == "saturating",
    }
