"""What a picture may be, found out from its header before anything is decoded."""

from pta.door.images.reading import open_counted
from pta.door.limits import Limits
from pta.errors import UnreadableSample

_ANIMATION_IN_PNG = b"\0\0\0\x08acTL"  # a chunk in front of the pixels


def pixels_of(content: bytes, limits: Limits) -> int:
    """How many pixels a picture counts as; an animation and a format that is not read are refused."""
    image, pixels = open_counted(content, limits)
    if getattr(image, "is_animated", False) or _ANIMATION_IN_PNG in content[: max(0, content.find(b"IDAT"))]:
        raise UnreadableSample("it is animated; send one frame as a picture of its own")
    return pixels
