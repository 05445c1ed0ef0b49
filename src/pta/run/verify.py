"""Comparison of a model's zero-shot accuracies with the published ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pta.core.parameters import require_text
from pta.data.catalogue import find_entry
from pta.data.features import load_features
from pta.data.layouts import missing_places
from pta.data.open import open_samples
from pta.data.prompts import build_classifier, load_descriptions, load_templates
from pta.door.files import packaged_json
from pta.door.private_cache import default_cache
from pta.errors import InvalidParameter, UserMistake, nearest
from pta.models import Encoder
from pta.run.extract import extract
from pta.run.reading import Reading

NOTHING_MEASURED = "no dataset could be measured in {}; check them with pta datasets check"


@dataclass(frozen=True)
class Reference:
    """Published zero-shot accuracies of one architecture with one choice of templates, in percent."""

    architecture: str
    templates: str
    accuracies: Mapping[str, float]
    descriptions: bool = False  # whether each class had sentences of its own
    notes: Mapping[str, str] = field(default_factory=dict)

    def choose(self, datasets: Sequence[str] | None = None) -> list[str]:
        """These datasets, or all; each must have a published accuracy.

        >>> find_reference("RN50", "clip").choose(["dtd"])
        ['dtd']
        """
        for name in datasets or ():
            if name not in self.accuracies:
                raise InvalidParameter(f"no published accuracy for {name!r}; {nearest(name, self.accuracies)}")
        return list(datasets or self.accuracies)

    def require_descriptions(self, given: bool) -> None:
        """Refuse descriptions where the published accuracies were measured without, and the other way round."""
        if self.descriptions != given:
            need = "needs --descriptions FOLDER" if self.descriptions else "was made without descriptions"
            raise InvalidParameter(f"the reference for templates {self.templates} {need}")


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

    def record(self) -> dict[str, object]:
        """What is written to JSON."""
        return {**vars(self), "difference": self.difference}


def find_reference(architecture: str, templates: str) -> Reference:
    """The published accuracies for an architecture and a choice of templates.

    >>> find_reference("RN50", "clip").accuracies["dtd"]
    42.2
    """
    known = {f"{one.architecture} with {one.templates}": one for one in _references()}
    chosen = f"{require_text('architecture', architecture)} with {require_text('templates', templates)}"
    if found := known.get(chosen):
        return found
    listed = ", ".join(known)
    raise InvalidParameter(f"no published accuracies of {architecture} with templates {templates}; there are {listed}")


def matching_references(architecture: str | None, templates: str, descriptions: bool) -> list[Reference]:
    """The published accuracies that a model of this architecture, or of any, may be compared with."""
    if architecture is not None:
        known = [find_reference(architecture, templates)]
    else:
        known = [one for one in _references() if one.templates == templates]
        if not known:
            there_are = nearest(templates, sorted({one.templates for one in _references()}))
            raise InvalidParameter(f"no published accuracies with templates {templates}; {there_are}")
    if all(one.descriptions != descriptions for one in known):
        known[0].require_descriptions(descriptions)
    return known


def require_datasets(references: Sequence[Reference], datasets: Sequence[str] | None, root: Path) -> None:
    """Refuse datasets that no reference has, and a folder that holds none of them."""
    every = {name: value for one in references for name, value in one.accuracies.items()}
    chosen = replace(references[0], accuracies=every).choose(datasets)
    if all(missing_places(find_entry(name), root) for name in chosen):
        raise InvalidParameter(NOTHING_MEASURED.format(root))


def _references() -> list[Reference]:
    return [Reference(**row) for row in packaged_json("acceptance.json")["rows"]]


def verify(
    encoder: Encoder,
    reference: Reference,
    root: Path,
    features: Path,
    datasets: Sequence[str],
    reading: Reading | None = None,
    *,
    descriptions: Path | None = None,
    on_progress: Callable[[str, int, int], None] = lambda dataset, total, done: None,
) -> Iterator[Verdict]:
    """Measure the datasets that are in `root`, keeping their feature files in the folder `features`.

    A reference that was made with descriptions needs the folder `descriptions`, with a file DATASET.json for each.
    """
    reference.require_descriptions(descriptions is not None)
    for dataset in datasets:
        published, note = reference.accuracies[dataset], reference.notes.get(dataset, "")
        try:
            images = open_samples(dataset, root=root)
            sentences = None if descriptions is None else load_descriptions(descriptions / f"{dataset}.json")
            templates = load_templates(reference.templates, images.prompts)
            given = (encoder, images.class_names, templates)
            classifier = build_classifier(*given, descriptions=sentences, cache=default_cache())
            out = features / f"{dataset.replace('/', '-')}-{encoder.fingerprint[:12]}.safetensors"
            told = partial(on_progress, dataset, len(images))
            extract(images, encoder, classifier, out, reading, replace=True, on_progress=told)
        except UserMistake as error:
            yield Verdict(dataset, published, None, 0, str(error))
            continue
        measured = load_features(out)
        note = "; ".join(filter(None, [note, *images.notes]))
        yield Verdict(dataset, published, measured.zero_shot_accuracy, len(measured.samples), note)
