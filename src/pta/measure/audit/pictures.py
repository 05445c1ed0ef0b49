"""The pictures of drawn rows: found before the first is shown, and shown as JPEG of a moderate size."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path, PurePath

from pta.data import SampleFile, open_samples
from pta.data.sample_set import SampleReference
from pta.door.files import is_path
from pta.door.images.preprocessing import Preprocessing
from pta.door.images.reading import ROOM, load_image, open_image
from pta.door.safe_text import printable
from pta.errors import PtaError, UnreadableFile

_LONGEST_SIDE = 1200  # pixels
_COLOURS = Preprocessing(size=_LONGEST_SIDE)


def find_pictures(keys: Sequence[str], source: str | None) -> list[SampleReference]:
    """The samples of rows: files, or the samples of a source with the same keys, or with their ends as keys."""
    if source is None:
        files = [SampleFile(Path(key), key) for key in keys]
        _require_none([one.key for one in files if not is_path(one.path) or one.stamp[0] < 0], keys, "no such file")
        return [*files]
    known: dict[str, SampleReference] = {printable(sample.key): sample for sample in open_samples(source).samples}

    def ends(key: str) -> list[str]:
        parts = PurePath(key).parts
        return [key, *("/".join(parts[depth:]) for depth in range(1, len(parts)))]

    found = [next((known[end] for end in ends(key) if end in known), None) for key in keys]
    _require_none([key for key, one in zip(keys, found, strict=True) if one is None], keys, f"not in {source}")
    return [one for one in found if one is not None]


def _require_none(missing: Sequence[str], keys: Sequence[str], why: str) -> None:
    if missing:
        advice = "--pictures names the folder or source that holds them"
        raise UnreadableFile(
            f"{len(missing):,} of {len(keys):,} pictures are missing, first {missing[0]}: {why}; {advice}"
        )


def shown_picture(sample: SampleReference) -> bytes | None:
    """The picture as JPEG; None for what is not a picture or cannot be read."""
    try:
        picture = open_image(sample.read(), at_least=_LONGEST_SIDE)
        with ROOM.of(picture.width * picture.height):
            load_image(picture)
            coloured = _COLOURS.coloured(picture)
            coloured.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    except PtaError:
        return None
    content = BytesIO()
    coloured.save(content, "JPEG", quality=90)
    return content.getvalue()
