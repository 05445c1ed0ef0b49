"""Pictures of changes in a folder: only their owner can read them, and the oldest make room for new ones."""

import os
import re
import secrets
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from stat import S_ISREG

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pta.door.plain_files import make_own_folder
from pta.errors import MachineFailure, explaining
from pta.run.watch.change import AnswerChange

_OWN = re.compile(r"pta-[\w.-]+\.jpg|\.pta-[0-9a-f]{16}", re.ASCII)  # the latter if a kill came before its name
_LONGEST = 40  # characters of each part of a name


class SnapshotFolder:
    """Keeps at most so many bytes of pictures; files of other names stay as they are."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        make_own_folder(folder)
        with explaining(f"{folder} cannot be read"):
            found = [
                (entry, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder) if _OWN.match(entry.name)
            ]
        files = sorted((one.st_mtime_ns, entry.name, one.st_size) for entry, one in found if S_ISREG(one.st_mode))
        self._kept = {name: size for _, name, size in files}  # the oldest first

    def deliver(self, taken: tuple[AnswerChange, NDArray[np.uint8]]) -> None:
        """Write the picture of a change; the same change again replaces it."""
        change, pixels = taken
        encoded = BytesIO()
        Image.fromarray(pixels).save(encoded, "jpeg", quality=90)
        content = encoded.getvalue()
        if len(content) > self._most_bytes:
            raise MachineFailure(
                f"a picture has {len(content):,} bytes, and all together may have {self._most_bytes:,}"
            )
        parts = (change.camera, change.region or "picture", change.time, change.label)
        plain = [re.sub(r"[^A-Za-z0-9_.]", "_", part)[:_LONGEST] for part in parts]
        if plain[:2] != list(parts[:2]):  # regions may differ in what was replaced
            plain.append(sha256(repr(parts[:2]).encode()).hexdigest()[:8])
        name = f"pta-{'-'.join(plain)}.jpg"
        self._kept.pop(name, None)
        while sum(self._kept.values()) + len(content) > self._most_bytes:
            oldest = next(iter(self._kept))
            (self._folder / oldest).unlink(missing_ok=True)
            del self._kept[oldest]
        self._write(name, content)
        self._kept[name] = len(content)

    def _write(self, name: str, content: bytes) -> None:
        temporary = self._folder / f".pta-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with explaining(f"snapshots cannot be written to {self._folder}"):
            try:
                with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                    file.write(content)
                temporary.replace(self._folder / name)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
