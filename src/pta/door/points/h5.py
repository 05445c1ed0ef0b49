"""HDF5 files of clouds, as ModelNet and ScanObjectNN have them: `data` N×n×3 and `label` N or N×1 (extra `points`).

HDF5 can make a file read other files and load code for its filters. Such files are refused.
"""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.core.limits import require_unpackable
from pta.door.files import existing_file, understanding, write_atomically
from pta.errors import MissingPackage, UnreadableFile, how_to_install

_LARGEST_CHUNK = 256 * 2**20  # bytes, of which a whole one is read for a single number
_BUILT_IN_FILTERS = frozenset((1, 2, 3, 32000))  # deflate, shuffle, checksum, lzf; HDF5 loads others from libraries


@dataclass(frozen=True, eq=False)
class StoredClouds:
    """Clouds of one size N×n×3, of real numbers that may be anything, and their labels N."""

    clouds: NDArray[Any]
    labels: NDArray[np.int64]


def read_h5(path: str | Path) -> StoredClouds:
    """The clouds of a file; every mistake is one line that names it."""
    h5py = _h5py()
    path = existing_file(path, "cloud")
    with understanding(path, "file of clouds"), h5py.File(path, "r") as file:
        data, label = (_dataset(h5py, file, path, name) for name in ("data", "label"))
        if data.dtype.kind not in "fiu" or data.ndim != 3 or data.shape[2] != 3 or 0 in data.shape:
            raise UnreadableFile(f"{path}: data must be numbers N×n×3, got {data.dtype} of shape {data.shape}")
        count = len(data)
        if label.dtype.kind not in "iu" or label.shape not in ((count,), (count, 1)):
            what = f"{label.dtype} of shape {label.shape}"
            raise UnreadableFile(f"{path}: label must be a whole number for each of {count} clouds, got {what}")
        require_unpackable(path, data.size * data.dtype.itemsize)
        return StoredClouds(data[()], label[()].reshape(count).astype(np.int64))


def write_h5(path: str | Path, stored: StoredClouds) -> None:
    """Write a file that `read_h5` reads, atomically; equal clouds give equal bytes."""
    content = BytesIO()
    with _h5py().File(content, "w") as file:
        file.create_dataset("data", data=stored.clouds)
        file.create_dataset("label", data=stored.labels[:, None])
    write_atomically(path, content.getvalue())


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingPackage(f".h5 files need h5py; {how_to_install('points')}") from None
    return h5py


def _dataset(h5py: Any, file: Any, path: Path, name: str) -> Any:
    """A dataset whose numbers are in the file itself."""
    link = file.get(name, getlink=True)
    if link is None:
        held = ", ".join(sorted(file)[:5]) or "nothing"
        raise UnreadableFile(f"{path} has no {name}; a file of clouds has data and label, this one {held}")
    found = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(found, h5py.Dataset):
        raise UnreadableFile(f"{path}: {name} is a {type(link if found is None else found).__name__}, no dataset")
    if found.is_virtual or found.external:
        raise UnreadableFile(f"{path}: the numbers of {name} are in other files, which are not read")
    properties = found.id.get_create_plist()
    filters = {properties.get_filter(number)[0] for number in range(properties.get_nfilters())}
    if not filters <= _BUILT_IN_FILTERS:
        raise UnreadableFile(
            f"{path}: {name} is packed by filter {min(filters - _BUILT_IN_FILTERS)}; save it with gzip"
        )
    if found.chunks and np.prod(found.chunks, dtype=float) * found.dtype.itemsize > _LARGEST_CHUNK:
        raise UnreadableFile(f"{path}: a chunk of {name} has more than {_LARGEST_CHUNK:,} bytes")
    return found
