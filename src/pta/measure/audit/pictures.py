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
    """The samples of rows: files, or the samples of a source with the same keys.

    If a source has none of these keys, the same number of folders is taken off the front of all of them.
    """
    if source is None:
        files = [SampleFile(Path(key), key) for key in keys]
        _require_none([one.key for one in files if not is_path(one.path) or one.stamp[0] < 0], keys, "no such file")
        return [*files]
    known: dict[str, SampleReference] = {printable(sample.key): sample for sample in open_samples(source).samples}
    parts = [PurePath(key).parts for key in keys]
    shortened = [
        [key if not depth else "/".join(own[depth:]) for key, own in zip(keys, parts, strict=True)]
        for depth in range(max(map(len, parts)))
    ]
    best = max(shortened, key=lambda names: sum(name in known for name in names))
    _require_none([key for key, name in zip(keys, best, strict=True) if name not in known], keys, f"not in {source}")
    return [known[name] for name in best]


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
