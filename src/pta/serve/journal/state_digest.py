"""States that are named by a digest of their files, so that a flipped bit in one is noticed.

An import is DIGEST.safetensors, a snapshot SEQUENCE-DIGEST.safetensors. Older snapshots have no digest in their names,
but one of their content inside.
"""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

from pta.errors import PtaError, UnreadableFile, family, reason


def digest_of(content: bytes) -> str:
    """The digest that a state is named by."""
    return blake2b(content, digest_size=16).hexdigest()


def require_named(path: Path) -> None:
    """Refuse a state that is not the one that its name says."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise family(error)(f"{path} cannot be read: {reason(error)}; restore it from a backup") from None
    if digest_of(content) != path.stem.rpartition("-")[2]:
        raise UnreadableFile(f"{path} is damaged: its content does not have the digest that names it")


def damaged_states(folder: Path) -> Iterator[str]:
    """The imports and snapshots of a data folder that are not as they were written, one line each."""
    from pta.serve.streams.snapshots import require_whole  # with torch, which a journal does not need

    for path in sorted(folder.glob("streams/*/imports/*.safetensors")):
        yield from _damage(path, require_named)
    for path in sorted(folder.glob("streams/*/snapshots/[0-9]*.safetensors")):
        yield from _damage(path, require_whole)


def _damage(path: Path, require: Callable[[Path], object]) -> Iterator[str]:
    try:
        require(path)
    except PtaError as error:
        if path.exists():  # a running service removes some
            yield str(error)
