"""`--features`: the feature files that a command works on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pta.datasets.features import FeatureFile, load_features
from pta.encoders import find_device
from pta.errors import InvalidParameter, UnreadableFile

_SUFFIXES = (".npz", ".safetensors")


def open_features(places: Sequence[Path], device: str) -> list[FeatureFile]:
    """The files, and those in the folders, ready on a device; no two of one name."""
    on = find_device(device)
    files = [replace(data, classifier=data.classifier.to(device=on)) for data in map(load_features, _files(places))]
    names = [data.name for data in files]
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"two feature files are called {name}")
    return files


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        inside = sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES) if place.is_dir() else [place]
        if not inside:
            raise UnreadableFile(f"no feature files ({', '.join(_SUFFIXES)}) in {place}")
        yield from inside
