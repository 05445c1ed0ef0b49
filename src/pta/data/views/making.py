"""The views of a picture: itself as the model sees it, and random variations of it."""

from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pta.core.parameters import require_seed, require_text
from pta.data.views.augmix import CHAINS, mix, random_chain, random_weights
from pta.data.views.crops import random_crop
from pta.door.images import Preprocessing
from pta.errors import InvalidParameter, nearest, shown

Mode = Literal["augmix", "crops"]
MODES: tuple[str, ...] = get_args(Mode)
MOST_VIEWS = 1024


def make_views(
    image: Image.Image, preprocessing: Preprocessing, *, count: int, mode: Mode, seed: int | tuple[int, ...]
) -> Tensor:
    """The views of a picture, count×channels×size×size and normalised; the first is what `preprocessing` makes of it.

    Every view is made from the image at its original size. The paper has 64. `crops` are random crops, flipped half of
    the time; `augmix` mixes chains of distortions into them. Fewer views of a seed are the first ones of many.

    >>> make_views(Image.new("RGB", (64, 48)), Preprocessing(32), count=4, mode="augmix", seed=(1, 7)).shape
    torch.Size([4, 3, 32, 32])
    """
    if not isinstance(count, int) or not 1 <= count <= MOST_VIEWS:
        raise InvalidParameter(f"there must be at least one view, and at most {MOST_VIEWS}, not {shown(count)}")
    if require_text("the mode of views", mode) not in MODES:
        raise InvalidParameter(f"no views are called {mode!r}; {nearest(mode, MODES)}")
    rng = np.random.default_rng([require_seed(one) for one in (seed if isinstance(seed, tuple) else (seed,))])
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
