"""The views of a picture: itself as the model sees it, and random variations of it; and one feature for many of them.

They are random resized crops, as torchvision defines them, flipped half of the time. AugMix
(https://arxiv.org/abs/1912.02781) at severity 1, as TPT and its successors use it, distorts a crop x:

1. Draw w ~ Dirichlet(1, 1, 1) and m ~ Beta(1, 1).
2. Each of three chains starts from x and applies one, two or three random operations.
3. The view is m·x + (1 − m)·Σₖ wₖ·chainₖ, all of them normalised before.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import plain_number
from pta.core.samples import Samples
from pta.door.images import Preprocessing
from pta.engines.prompts.view_entropy import by_entropy, number_kept
from pta.errors import InvalidParameter, InvalidSamples, shown

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
_TRIES = 10
CHAINS = 3
_LONGEST_CHAIN = 3
_LEVELS = (0.1, 1.0)  # severity 1, out of 10
_LOGITS_AT_ONCE = 2**24  # bounds memory, changes no result
Mode = Literal["augmix", "crops"]
MODES: tuple[str, ...] = get_args(Mode)
MOST_VIEWS = 1024
Box = tuple[int, int, int, int]
"""The left, top, right and bottom of a part of a picture in whole pixels, as Pillow's `crop` takes it."""


def make_views(
    image: Image.Image, preprocessing: Preprocessing, *, count: int, mode: Mode, seed: int | tuple[int, ...]
) -> Tensor:
    """The views of a picture, count×channels×size×size and normalised; the first is what `preprocessing` makes of it.

    Every view is made from the image at its original size. The paper has 64. `crops` are random crops, flipped half of
    the time; `augmix` mixes chains of distortions into them. Fewer views of a seed are the first ones of many.

    >>> make_views(Image.new("RGB", (64, 48)), Preprocessing(32), count=4, mode="augmix", seed=(1, 7)).shape
    torch.Size([4, 3, 32, 32])
    """
    rng = np.random.default_rng(seed)
    first = preprocessing(image)
    picture = preprocessing.coloured(image)
    return torch.cat([first, *(_view(picture, preprocessing, mode, rng) for _ in range(count - 1))])


def _view(picture: Image.Image, preprocessing: Preprocessing, mode: Mode, rng: np.random.Generator) -> Tensor:
    crop = random_crop(picture, preprocessing.size, rng)
    if mode == "crops":
        return _normalised([crop], preprocessing)
    m, w = random_weights(rng)
    chains = [random_chain(crop, rng) for _ in range(CHAINS)]
    ready = _normalised([crop, *chains], preprocessing)
    return mix(ready[:1], ready[1:, None], m, w)


def _normalised(pictures: list[Image.Image], preprocessing: Preprocessing) -> Tensor:
    """Pictures of the right size and mode to a batch; nothing is resized again."""
    size = preprocessing.size
    pixels = [np.asarray(picture).reshape(size, size, -1).transpose(2, 0, 1) for picture in pictures]
    return preprocessing.normalise(torch.from_numpy(np.stack(pixels)))


def random_box(width: int, height: int, rng: np.random.Generator) -> Box:
    """A part with a random share of the area and a random aspect; the central one where ten draws do not fit."""
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
            return left, top, left + wide, top + high
    return central_box(width, height)


def central_box(width: int, height: int) -> Box:
    """The largest part in the middle whose aspect is allowed.

    >>> central_box(100, 30)
    (30, 0, 70, 30)
    """
    wide, high = width, height
    if width / height < ASPECT[0]:
        high = round(width / ASPECT[0])
    elif width / height > ASPECT[1]:
        wide = round(height * ASPECT[1])
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def random_crop(picture: Image.Image, size: int, rng: np.random.Generator) -> Image.Image:
    """A random part, scaled to size×size (bilinear, unlike the model's own preprocessing), half of the time flipped."""
    part = picture.crop(random_box(*picture.size, rng)).resize((size, size), Image.Resampling.BILINEAR)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part


def _affine(picture: Image.Image, *matrix: float) -> Image.Image:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


OPERATIONS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda picture, level: ImageOps.autocontrast(picture),
    "equalize": lambda picture, level: ImageOps.equalize(picture),
    "posterize": lambda picture, level: ImageOps.posterize(picture, 4 - int(4 * abs(level) / 10)),  # four bits, always
    "rotate": lambda picture, level: picture.rotate(int(30 * level / 10), resample=Image.Resampling.BILINEAR),
    "solarize": lambda picture, level: ImageOps.solarize(picture, 256 - int(256 * abs(level) / 10)),
    "shear_x": lambda picture, level: _affine(picture, 1, 0.3 * level / 10, 0, 0, 1, 0),
    "shear_y": lambda picture, level: _affine(picture, 1, 0, 0, 0.3 * level / 10, 1, 0),
    # By whole pixels, at most a thirtieth of the side.
    "translate_x": lambda picture, level: _affine(picture, 1, 0, int(picture.width / 3 * level / 10), 0, 1, 0),
    "translate_y": lambda picture, level: _affine(picture, 1, 0, 0, 0, 1, int(picture.height / 3 * level / 10)),
}
"""What a chain is drawn from. A level of 0.1 … 1 says how much of it; where it has two sides, the sign says which."""


_DRAWN = tuple(OPERATIONS.values())


def random_level(rng: np.random.Generator) -> float:
    """How much of an operation: 0.1 … 1, to either side."""
    return float(rng.uniform(*_LEVELS)) * (1 if rng.random() < 0.5 else -1)


def random_chain(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """One to three operations in a row, drawn with replacement."""
    for _ in range(rng.integers(1, _LONGEST_CHAIN + 1)):
        picture = _DRAWN[rng.integers(len(_DRAWN))](picture, random_level(rng))
    return picture


def random_weights(rng: np.random.Generator) -> tuple[float, NDArray[np.float32]]:
    """The share m of the crop, and the shares w of the chains in the rest."""
    shares = rng.dirichlet(np.ones(CHAINS)).astype(np.float32)
    return float(np.float32(rng.beta(1.0, 1.0))), shares


def mix(crop: Tensor, chains: Sequence[Tensor] | Tensor, m: float, w: NDArray[np.float32]) -> Tensor:
    """The normalised crop and its normalised chains in one view."""
    mixed = sum((float(share) * chain for share, chain in zip(w, chains, strict=True)), torch.zeros_like(crop))
    return m * crop + (1 - m) * mixed


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
