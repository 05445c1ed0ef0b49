"""From the features of many views to one feature: the mean of those that zero-shot is surest of."""

import torch
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.errors import InvalidParameter, InvalidSamples
from pta.samples import SMALLEST_NORM, Samples

_LOGITS_AT_ONCE = 2**24  # bounds memory, changes no result


@torch.no_grad()
def confident_mean(view_features: Tensor, classifier: ZeroShotClassifier, *, keep: float = 0.1) -> Samples:
    """Each sample as the mean of its most confident views.

    Of the V views of a sample those int(V·keep), at least one, are kept whose zero-shot probabilities have the lowest
    entropy; the first view takes part on equal terms. The mean of their unit features is shorter than one and stays so,
    as in the released program: a sample that its views disagree about weighs less.

    Args:
        view_features: N×V×d.
        classifier: whose probabilities are meant.
        keep: the share of the views that is kept.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> confident_mean(torch.tensor([[[0.8, 0.6], [0.7, 0.7], [0.6, 0.8]]]), classifier, keep=0.7).features
    tensor([[0.7000, 0.7000]])
    """
    if not 0 < keep <= 1:
        raise InvalidParameter(f"keep must be a share above 0 and up to 1, not {keep!r}")
    _require_views(view_features, classifier)
    kept = max(1, int(view_features.shape[1] * keep))
    at_once = max(1, _LOGITS_AT_ONCE // (view_features.shape[1] * classifier.classes))
    means = [_mean_of_surest(part, classifier, kept) for part in torch.split(view_features, at_once)]
    return Samples.of(torch.cat(means), normalise=False)


def _mean_of_surest(views: Tensor, classifier: ZeroShotClassifier, kept: int) -> Tensor:
    unit = torch.nn.functional.normalize(views.to(classifier.anchors), dim=2)
    entropy = torch.special.entr(classifier.logits(unit).softmax(dim=2)).sum(dim=2)
    surest = entropy.argsort(dim=1, stable=True)[:, :kept]
    return unit.take_along_dim(surest[:, :, None], dim=1).mean(dim=1)


def _require_views(views: object, classifier: ZeroShotClassifier) -> None:
    if not isinstance(views, Tensor) or not views.is_floating_point() or views.ndim != 3 or views.numel() == 0:
        shape = tuple(views.shape) if isinstance(views, Tensor) else type(views).__name__
        raise InvalidSamples(f"view features must be a floating-point tensor N×views×d, got {shape}")
    if views.shape[2] != classifier.dim:
        raise InvalidSamples(
            f"view features have {views.shape[2]} dimensions but the classifier's anchors have {classifier.dim}; "
            "both must come from the same model"
        )
    norms = torch.linalg.vector_norm(views, dim=2, dtype=torch.promote_types(views.dtype, torch.float32))
    usable = torch.isfinite(norms) & (norms >= SMALLEST_NORM)
    if not bool(usable.all()):
        sample, view = torch.nonzero(~usable)[0].tolist()
        raise InvalidSamples(f"view {view} of sample {sample} is zero, NaN or Inf and has no direction")
