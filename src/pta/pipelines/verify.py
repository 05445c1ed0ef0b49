"""Is this model the one the papers used? Zero-shot accuracies beside the published ones."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from pta.datasets.features import load_features
from pta.datasets.open import open_images
from pta.encoders import Encoder
from pta.errors import InvalidParameter, PtaError, UnreadableFile
from pta.pipelines.encoding import Reading
from pta.pipelines.extract import extract
from pta.prompts import build_classifier, default_cache, load_templates


@dataclass(frozen=True)
class Reference:
    """Published zero-shot accuracies of one architecture with one choice of templates, in percent."""

    architecture: str
    templates: str
    accuracies: Mapping[str, float]
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """A dataset's published and measured accuracy, or why it could not be measured."""

    dataset: str
    published: float
    measured: float | None
    images: int
    note: str

    @property
    def difference(self) -> float | None:
        """Measured minus published, in points."""
        return None if self.measured is None else self.measured - self.published


def find_reference(architecture: str, templates: str) -> Reference:
    """The published accuracies for an architecture and a choice of templates.

    >>> find_reference("RN50", "clip").accuracies["dtd"]
    42.2
    """
    packaged = json.loads((resources.files("pta") / "data" / "acceptance.json").read_text(encoding="utf-8"))
    known = [Reference(**row) for row in packaged["rows"]]
    for reference in known:
        if (reference.architecture, reference.templates) == (architecture, templates):
            return reference
    listed = ", ".join(f"{one.architecture} with {one.templates}" for one in known)
    raise InvalidParameter(f"no published accuracies of {architecture} with templates {templates}; there are {listed}")


def verify(
    encoder: Encoder,
    reference: Reference,
    root: Path,
    features: Path,
    datasets: Sequence[str],
    reading: Reading | None = None,
    on_progress: Callable[[str, int, int], None] = lambda dataset, done, total: None,
) -> Iterator[Verdict]:
    """Measure the datasets that are in `root`, keeping their feature files in the folder `features`."""
    prompts = {dataset: load_templates(reference.templates, dataset) for dataset in datasets}
    for dataset in datasets:
        published, note = reference.accuracies[dataset], reference.notes.get(dataset, "")
        try:
            images = open_images(dataset, root=root)
        except UnreadableFile as error:
            yield Verdict(dataset, published, None, 0, str(error))
            continue
        classifier = build_classifier(encoder, images.class_names, prompts[dataset], cache=default_cache())
        out = features / f"{dataset}-{encoder.fingerprint[:12]}-{reference.templates}.safetensors"

        def move(done: int, dataset: str = dataset, total: int = len(images)) -> None:
            on_progress(dataset, done, total)

        try:
            extract(images, encoder, classifier, out, reading, on_progress=move)
        except PtaError as error:
            yield Verdict(dataset, published, None, 0, str(error))
            continue
        measured = load_features(out)
        yield Verdict(dataset, published, measured.zero_shot_accuracy, len(measured.samples), note)
