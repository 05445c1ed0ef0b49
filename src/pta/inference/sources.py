"""Where pictures come from that are to be labelled: folders, files, and pipes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from pta.datasets.sample_set import FileImage
from pta.datasets.trees import IMAGE_SUFFIXES, image_files
from pta.errors import UnreadableFile
from pta.images.frames import split_frames


@dataclass(frozen=True)
class Frame:
    """A picture that came through a pipe."""

    key: str
    content: bytes

    def read(self) -> bytes:
        """The picture, still encoded."""
        return self.content


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
