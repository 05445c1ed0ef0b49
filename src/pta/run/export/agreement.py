"""An export is run before it is written, and refused if it does not answer as the library."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.errors import MachineFailure
from pta.methods import Adapter
from pta.methods.classes import class_prototypes

LARGEST_DIFFERENCE = 1e-3
"""Of a logit of an export from the library's; logits of CLIP differ by units between classes."""
_COUNT = 256


def samples_near(adapter: Adapter) -> Tensor:
    """Unit rows between texts, prototypes and noise, the same for equal states."""
    anchors, random = adapter.classifier.anchors.float(), torch.Generator().manual_seed(0)
    classes = torch.randint(len(anchors), (_COUNT,), generator=random)
    texts, images, noise = torch.rand(3, _COUNT, 1, generator=random)
    pure = normalize(torch.randn(_COUNT, anchors.shape[1], generator=random), dim=1)
    rows = texts * anchors[classes] + images * class_prototypes(adapter).float()[classes] + noise * pure
    return normalize(rows, dim=1)


def require_agreement(adapter: Adapter, features: Tensor, logits: Tensor) -> None:
    """Refuse logits that are not those that the library gives the features."""
    expected, difference = adapter.predict(features), float("nan")
    if logits.shape == expected.shape:
        difference = float((logits.double() - expected.double()).abs().max())
    if not difference <= LARGEST_DIFFERENCE:
        raise MachineFailure(
            f"the export answers otherwise than the library: a logit differs by {difference:.2g}, more than "
            f"{LARGEST_DIFFERENCE:g}; nothing was written"
        )
