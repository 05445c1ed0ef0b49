"""Modality: a kind of samples, such as images, with its name and its file suffixes."""

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Modality:
    """A kind of samples.

    >>> [IMAGES.takes(name) for name in ("a.JPG", "README.txt", "._a.jpg")]
    [True, False, False]
    """

    name: str  # of one sample, for messages
    suffixes: frozenset[str]  # of its files, in lower case
    prompts: str | None = None  # the dataset whose templates are the default; None for photographs

    def takes(self, file_name: str) -> bool:
        """Whether a file of this name is a sample."""
        return not file_name.startswith(".") and PurePosixPath(file_name).suffix.lower() in self.suffixes

    @property
    def endings(self) -> str:
        """The suffixes, for messages."""
        return " ".join(sorted(self.suffixes))


IMAGES = Modality("image", frozenset((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")))
CLOUDS = Modality("cloud", frozenset((".npy", ".npz", ".xyz", ".ply", ".off", ".obj")), prompts="point_clouds")
