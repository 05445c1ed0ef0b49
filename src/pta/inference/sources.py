"""Where pictures come from that are to be labelled: folders, files, and pipes."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from pta.datasets.sample_set import FileImage
from pta.datasets.trees import IMAGE_SUFFIXES, image_files
from pta.errors import InvalidParameter, UnreadableFile
from pta.images.frames import split_frames

_STDIN = "-"


@dataclass(frozen=True)
class Frame:
    """A picture that came through a pipe."""

    key: str
    content: bytes

    def read(self) -> bytes:
        """The picture, still encoded."""
        return self.content


def open_places(places: Sequence[str], *, frames: bool = False) -> tuple[Iterable[FileImage | Frame], int | None]:
    """The images of folders and files, or of standard input for `-`, and how many there are, if that can be known.

    Standard input holds the paths of images, one per line, or with `frames` the images themselves.
    """
    if _STDIN not in places:
        if frames:
            raise InvalidParameter("--frames reads pictures from standard input; say so with -")
        found = find_images(places)
        return found, len(found)
    if len(places) > 1:
        raise InvalidParameter("standard input (-) cannot be mixed with other places")
    if sys.stdin is None:
        raise InvalidParameter("there is no standard input to read from")
    # Not sys.stdin itself: Python could not end while a thread waits in it for a picture that never comes.
    stdin = os.dup(sys.stdin.fileno())
    if frames:
        return frames_from(os.fdopen(stdin, "rb")), None
    return paths_from(os.fdopen(stdin, encoding="utf-8", errors="surrogateescape")), None


def find_images(places: Sequence[str | Path]) -> list[FileImage]:
    """The given files, and all images in the given folders and below them, sorted by path within each."""
    if not all(map(str, places)):
        raise UnreadableFile("one of the given places has an empty name")
    found: list[FileImage] = []
    for place in map(Path, places):
        if place.is_dir():
            inside = [place / name for name in image_files(place)]
            if not inside:
                raise UnreadableFile(f"no images in {place}; pta looks for {' '.join(sorted(IMAGE_SUFFIXES))}")
            found += [FileImage(path, str(path)) for path in inside]
        elif place.exists():
            found.append(FileImage(place, str(place)))
        else:
            raise UnreadableFile(f"no such file or folder: {place}")
    return found


def paths_from(lines: Iterable[str]) -> Iterator[FileImage]:
    """An image for each line that is not empty, as the lines arrive."""
    for line in lines:
        if path := line.rstrip("\r\n"):
            yield FileImage(Path(path), path)


def frames_from(pipe: BufferedReader) -> Iterator[Frame]:
    """An image for each JPEG or PNG picture in a pipe, as they arrive, numbered from 0."""
    for number, content in enumerate(split_frames(pipe)):
        yield Frame(f"frame {number}", content)
