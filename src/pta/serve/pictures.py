"""What a picture may be, found out from its header before anything is decoded."""

from pta.errors import UnreadableSample
from pta.images.reading import open_image
from pta.limits import Limits

_ANIMATION_IN_PNG = b"\0\0\0\x08acTL"  # a chunk in front of the pixels


def require_still(content: bytes, limits: Limits) -> None:
    """Refuse what is no single picture of a format that is read, or has too many pixels."""
    image = open_image(content, limits=limits)
    if getattr(image, "is_animated", False) or _ANIMATION_IN_PNG in content[: max(0, content.find(b"IDAT"))]:
        raise UnreadableSample("it is animated; send one frame as a picture of its own")
