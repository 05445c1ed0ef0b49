"""One step of PTA on whichever processor the prototypes are: find the touches, then learn them and score."""

from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.engines import advance, runs_on_gpu
from pta.engines.pta.prototypes import Prototypes
from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches, find_touches, find_touches_exactly
from pta.engines.zero_shot import ZeroShot

Found = Touches | Tensor | None
"""Touches; or on a GPU a table C×B of their probabilities, or None for kernels that find them themselves."""


def touches_of_zero_shot(prototypes: Prototypes, zero_shot: ZeroShot, rule: Rule) -> Found:
    """The touches of samples by their zero-shot probabilities, decided as float64 would decide."""
    if not runs_on_gpu(prototypes):
        return touches_on_host(prototypes, zero_shot, rule)
    if zero_shot.log_prior is None:
        return None
    return touches_of_probabilities(prototypes, zero_shot.exact_logits.softmax(dim=1), rule)


def touches_on_host(prototypes: Prototypes, zero_shot: ZeroShot, rule: Rule) -> Touches:
    """The same on the host, wherever the prototypes are."""
    if prototypes.knowledge.dtype == zero_shot.logits.dtype:
        return find_touches(zero_shot, rule)
    return find_touches_exactly(zero_shot, rule)  # half-precision state shows every bit


def touches_of_probabilities(prototypes: Prototypes, probabilities: Tensor, rule: Rule) -> Found:
    """The touches of samples by given probabilities, B×C."""
    if runs_on_gpu(prototypes):
        from pta.engines.gpu.triton_touches import table_of

        return table_of(probabilities, rule)
    return Touches.of(probabilities, rule)


def learn_and_score(
    prototypes: Prototypes,
    classifier: ZeroShotClassifier,
    features: Tensor,
    logits: Tensor,
    touches: Found,
    rule: Rule,
    *,
    add: bool,
) -> Tensor:
    """Learn B samples in order and score each against every class's R at its turn, B×C.

    Kernels find touches from the logits, B×C. With `add`, gives the sum of the logits and the scores, which may be
    written into the logits.
    """
    if not isinstance(touches, Touches):
        from pta.engines.gpu.triton import advance_on_gpu

        onto = logits if add else None
        return advance_on_gpu(prototypes, classifier, features, logits, rule, onto=onto, table=touches)
    cosines = advance(prototypes, classifier.anchors, features, touches, rule).to(logits.dtype)
    return add_scores(logits, cosines, classifier) if add else classifier.scores(cosines)


def add_scores(logits: Tensor, cosines: Tensor, classifier: ZeroShotClassifier) -> Tensor:
    """Logits plus the scores of cosines, in the place of the logits."""
    logits.add_(cosines, alpha=classifier.scale)
    return logits.add_(classifier.bias) if classifier.bias else logits
