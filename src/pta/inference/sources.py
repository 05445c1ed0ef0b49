"""Where samples come from that are to be labelled: folders, files, and pipes."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from pta.datasets.sample_set import SampleFile
from pta.datasets.trees import sample_files
from pta.errors import InvalidParameter, UnreadableFile
from pta.images.frames import split_frames
from pta.modality import IMAGES, Modality

_STDIN = "-"


@dataclass(frozen=True)
class Frame:
    """A picture that came through a pipe."""

    key: str
    content: bytes

    def read(self) -> bytes:
        """The picture, still encoded."""
        return self.content


def open_places(
    places: Sequence[str], modality: Modality = IMAGES, *, frames: bool = False
) -> tuple[Iterable[SampleFile | Frame], int | None]:
    """The samples of folders and files, or of standard input for `-`, and how many there are, if that can be known.

    Standard input holds the paths of samples, one per line, or with `frames` pictures themselves.
    """
    if _STDIN not in places:
        if frames:
            raise InvalidParameter("--frames reads pictures from standard input; say so with -")
        found = find_samples(places, modality)
        return found, len(found)
    if len(places) > 1:
        raise InvalidParameter("standard input (-) cannot be mixed with other places")
    if sys.stdin is None:
        raise InvalidParameter("there is no standard input to read from")
    if frames and modality != IMAGES:
        raise InvalidParameter(f"--frames reads pictures, but the model reads {modality.name}s")
    # Not sys.stdin itself: Python could not end while a thread waits in it for a picture that never comes.
    stdin = os.dup(sys.stdin.fileno())
    if frames:
        return frames_from(os.fdopen(stdin, "rb")), None
    return paths_from(os.fdopen(stdin, encoding="utf-8", errors="surrogateescape")), None


def find_samples(places: Sequence[str | Path], modality: Modality = IMAGES) -> list[SampleFile]:
    """The given files, and all samples in the given folders and below them, sorted by path within each."""
    if not all(map(str, places)):
        raise UnreadableFile("one of the given places has an empty name")
    found: list[SampleFile] = []
    for place in map(Path, places):
        if place.is_dir():
            inside = [place / name for name in sample_files(place, modality)]
            if not inside:
                raise UnreadableFile(f"no {modality.name}s in {place}; the model reads {modality.endings}")
            found += [SampleFile(path, str(path)) for path in inside]
        elif place.exists():
            found.append(SampleFile(place, str(place)))
        else:
            raise UnreadableFile(f"no such file or folder: {place}")
    return found


def paths_from(lines: Iterable[str]) -> Iterator[SampleFile]:
    """A sample for each line that is not empty, as the lines arrive."""
    for line in lines:
        if path := line.rstrip("\r\n"):
            yield SampleFile(Path(path), path)


def frames_from(pipe: BufferedReader) -> Iterator[Frame]:
    """An image for each JPEG or PNG picture in a pipe, as they arrive, numbered from 0."""
    for number, content in enumerate(split_frames(pipe)):
        yield Frame(f"frame {number}", content)
