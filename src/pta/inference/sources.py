"""Where samples come from that are to be labelled: folders, files, and pipes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from pta.datasets.sample_set import SampleFile
from pta.datasets.trees import sample_files
from pta.errors import UnreadableFile
from pta.images.frames import split_frames
from pta.modality import IMAGES, Modality


@dataclass(frozen=True)
class Frame:
    """A picture that came through a pipe."""

    key: str
    content: bytes

    def read(self) -> bytes:
        """The picture, still encoded."""
        return self.content


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
