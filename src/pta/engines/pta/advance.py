"""PTA on whichever processor the prototypes are: find the touches, then learn them and score.

`advance` picks the fastest of the engines with equal answers on a host; on a GPU it is `pta.engines.gpu.triton`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.engines.gpu import processors
from pta.engines.pta.chunk import advance_by_chunk
from pta.engines.pta.loop import advance_by_loop
from pta.engines.pta.rule import Prototypes, Rule
from pta.engines.pta.step import advance_by_step
from pta.engines.pta.touches import Touches, find_touches
from pta.engines.zero_shot import ZeroShot

Engine = Callable[[Prototypes, Tensor, Tensor, Touches, Rule], Tensor]

# Measured, see benchmarks/results/engine-cpu.csv. `advance_by_chunk` takes as many rounds as a class has touches;
# where nearly every sample touches every class, short chunks cost less in rounds than they lose in products.
_NUMBA_CHUNK = 256
_CHUNK = 128
_CHUNK_OF_MANY_TOUCHES = 32
_MANY_TOUCHES_PER_SAMPLE = 16

Found = Touches | Tensor | None
"""Touches; or on a GPU a table C×B of their probabilities, or None for kernels that find them themselves."""


def advance(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn B samples in order and give the cosine of each with every class's anchored prototype, B×C.

    The answers and the state are those of one sample at a time, however the batch is cut.
    """
    if prototypes.knowledge.dtype not in (torch.float32, torch.float64):
        return advance_by_loop(prototypes, anchors, features, touches, rule)
    batch = prototypes, anchors, features, touches, rule
    on_cpu = features.device.type == "cpu"
    if on_cpu and len(features) == 1:
        return advance_by_step(*batch)
    if on_cpu and processors.numba_is_installed():
        from pta.engines.pta.numba_loops import advance_by_numba

        return advance_in_chunks(advance_by_numba, _NUMBA_CHUNK, *batch)
    many = len(touches.samples) > _MANY_TOUCHES_PER_SAMPLE * len(features)
    return advance_in_chunks(advance_by_chunk, _CHUNK_OF_MANY_TOUCHES if many else _CHUNK, *batch)


def advance_in_chunks(
    engine: Engine, size: int, prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule
) -> Tensor:
    """Let one engine do a batch in chunks of at most `size` samples."""
    if len(features) <= size:
        return engine(prototypes, anchors, features, touches, rule)
    parts = []
    for start in range(0, len(features), size):
        end = min(start + size, len(features))
        parts.append(engine(prototypes, anchors, features[start:end], touches.between(start, end), rule))
    return torch.cat(parts)


def runs_on_gpu(prototypes: Prototypes) -> bool:
    """Whether `pta.engines.gpu.triton` can follow these prototypes."""
    return prototypes.knowledge.dtype == torch.float32 and processors.triton_runs_on(prototypes.knowledge.device)


def touches_of_zero_shot(prototypes: Prototypes, zero_shot: ZeroShot, logits: Tensor, rule: Rule) -> Found:
    """The touches of samples by their zero-shot logits, decided as float64 would decide."""
    if not runs_on_gpu(prototypes):
        return touches_on_host(prototypes, zero_shot, logits, rule)
    if zero_shot.log_prior is None:
        return None
    return touches_of_probabilities(prototypes, zero_shot.exact_logits.softmax(dim=1), rule)


def touches_on_host(prototypes: Prototypes, zero_shot: ZeroShot, logits: Tensor, rule: Rule) -> Touches:
    """The same on the host, wherever the prototypes are."""
    if prototypes.knowledge.dtype == logits.dtype:
        return find_touches(zero_shot, logits, rule)
    # A half-precision state shows every bit. These are rounded from float64: the batch changes one in about 10⁸.
    return Touches.of(zero_shot.exact_logits.softmax(dim=1).float(), rule)


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
