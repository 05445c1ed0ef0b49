"""From the features of many views to one feature: the mean of those that zero-shot is most confident of."""

from dataclasses import replace

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import plain_number
from pta.core.samples import Samples
from pta.engines.prompts.view_entropy import by_entropy, number_kept
from pta.errors import InvalidParameter, InvalidSamples, shown

_LOGITS_AT_ONCE = 2**24  # bounds memory, changes no result


@torch.no_grad()
def confident_mean(samples: Samples, classifier: ZeroShotClassifier, *, keep: float = 0.1) -> Samples:
    """Each sample as the mean of its most confident views.

    Of the V views of a sample those int(V·keep), at least one, are kept whose zero-shot probabilities have the lowest
    entropy; the first view takes part on equal terms. The mean of their unit features is shorter than one and stays so,
    as in the released program: a sample that its views disagree about weighs less. The kept views stay with the
    samples as `most_confident`, the most confident first.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> views = torch.tensor([[[0.8, 0.6], [0.7, 0.7], [0.6, 0.8]]])
    >>> confident_mean(Samples.of(views[:, 0], views=views), classifier, keep=0.7).features
    tensor([[0.7000, 0.7000]])
    """
    if not 0 < plain_number(keep) <= 1:
        raise InvalidParameter(f"keep must be a share above 0 and up to 1, not {shown(keep)}")
    views = samples.views
    if views is None:
        raise InvalidSamples("the samples have no views; make them with pta extract --views 64")
    if views.shape[2] != classifier.dim:
        given = f"views have {views.shape[2]} dimensions but the classifier's anchors have {classifier.dim}"
        raise InvalidSamples(f"{given}; both must come from the same model")
    kept = number_kept(views.shape[1], keep)
    max_batch = max(1, _LOGITS_AT_ONCE // (views.shape[1] * classifier.classes))
    most_confident = torch.cat([_most_confident(part, classifier, kept) for part in torch.split(views, max_batch)])
    return replace(samples, features=most_confident.mean(dim=1), most_confident=most_confident)


def _most_confident(views: Tensor, classifier: ZeroShotClassifier, kept: int) -> Tensor:
    unit = torch.nn.functional.normalize(views.to(classifier.anchors), dim=2)
    most_confident = by_entropy(classifier.logits(unit))[:, :kept]
    return unit.take_along_dim(most_confident[:, :, None], dim=1)
