"""Modality: a kind of samples, such as images, by its word and by how the names of its files end."""

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Modality:
    """A kind of samples.

    >>> [IMAGES.takes(name) for name in ("a.JPG", "README.txt", "._a.jpg")]
    [True, False, False]
    """

    name: str  # the word for one sample, for messages
    suffixes: frozenset[str]  # how the names of files end that are taken for such a sample, in small letters
    prompts: str | None = None  # whose templates suit such samples where no dataset is known; None for photographs

    def takes(self, file_name: str) -> bool:
        """Whether a file of this name is taken for a sample."""
        return not file_name.startswith(".") and PurePosixPath(file_name).suffix.lower() in self.suffixes

    @property
    def endings(self) -> str:
        """The suffixes, for messages."""
        return " ".join(sorted(self.suffixes))


IMAGES = Modality("image", frozenset((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")))
CLOUDS = Modality("cloud", frozenset((".npy", ".npz", ".xyz", ".ply", ".off", ".obj")), prompts="point_clouds")
