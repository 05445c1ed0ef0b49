"""Features that look like CLIP's."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta import ZeroShotClassifier

LIKENESS = 0.6  # how much classes of a kind differ, so that a sample touches between one and two
_AT_ONCE = 2**17  # a million samples are made in little more memory than they take


def clip_like(
    classes: int, dim: int, count: int, seed: int = 1, part: int | None = None
) -> tuple[ZeroShotClassifier, Tensor]:
    """Texts and images in two cones; a class's images lean towards its text, and no class attracts all images.

    With `part`, the images are those of this part of a stream, which can be made apart from the others.
    """
    rng = torch.Generator().manual_seed(seed)
    text_cone, image_cone = normalize(torch.randn(2, dim, generator=rng), dim=1)
    kinds = torch.randn(classes // 5, dim, generator=rng).repeat_interleave(5, 0)  # five classes of a kind
    kinds = torch.cat([kinds, torch.randn(classes - len(kinds), dim, generator=rng)])
    texts = kinds + LIKENESS * torch.randn(classes, dim, generator=rng)
    texts = normalize(texts - (texts @ image_cone)[:, None] * image_cone, dim=1)
    if part is not None:
        rng = torch.Generator().manual_seed(1000 * seed + part)
    images = torch.empty(count, dim)
    for part in images.split(_AT_ONCE):
        labels = torch.randint(classes, (len(part),), generator=rng)
        noise = normalize(torch.randn(len(part), dim, generator=rng), dim=1)
        part.copy_(normalize(0.16 * texts[labels] + 0.75 * image_cone + 0.5 * noise, dim=1))
    classifier = ZeroShotClassifier(0.65 * texts + 0.75 * text_cone, [str(number) for number in range(classes)])
    return classifier, images
