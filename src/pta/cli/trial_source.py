"""From the options of `pta trial` to a labelled stream: checked before the model is loaded, and encoded once."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from typer import Argument, Option

from pta.cli import options
from pta.cli.extract import extract_to, warn_of_left_out
from pta.cli.messages import detail, say, warn
from pta.cli.options import NamedModel
from pta.data.features import FeatureFile, is_feature_folder, load_features
from pta.data.open import find_samples, open_samples
from pta.data.sample_set import SampleSet
from pta.door.plain_files import make_folder
from pta.door.private_cache import default_cache
from pta.errors import InvalidParameter, InvalidSamples, UnreadableSample, UnreadSample
from pta.measure.report.pictures import Picture, pictures_of
from pta.measure.trial.labels import Matched, match_labels
from pta.measure.trial.trial import LabelledStream, is_sorted, require_enough
from pta.methods.state_file import require_saved_for
from pta.run.extract import require_modality

_LONGEST_HEADER, _LONGEST_NAME = 4096, 40  # characters


@dataclass(frozen=True)
class TrialOptions:
    """What is tried."""

    source: Annotated[
        str,
        "A folder with a sub-folder per class, a .csv of path,label, or a feature file with labels.",
        Argument(metavar="SOURCE"),
    ]
    texts: options.TextOptions
    model: options.ModelOptions
    samples: options.SampleOptions
    unlabelled: Annotated[
        str | None,
        "The real stream: run over all of it in its own order, and score what SOURCE has labels for.",
        Option(metavar="PATH"),
    ] = None
    state: Annotated[Path | None, "Also continue this state of pta predict."] = None


@dataclass(frozen=True)
class TrialSource:
    """A labelled stream, and what it was made of."""

    stream: LabelledStream
    things: str  # what samples are called
    picture: Picture | None = None  # none of a feature file
    model: str = "the one that made the features"
    encoder_microseconds: float | None = None  # per sample, decoding included; unknown if all were encoded before


def open_trial(given: TrialOptions) -> TrialSource:
    """Open what the options name; samples are encoded, unless their features are in the cache."""
    is_file = Path(given.source).suffix in (".npz", ".safetensors")
    return (_open_features if is_file or is_feature_folder(Path(given.source)) else _open_samples)(given)


def _open_features(given: TrialOptions) -> TrialSource:
    for option, value in (("--unlabelled", given.unlabelled), ("--classes", given.texts.classes)):
        if value is not None:
            raise InvalidParameter(f"{option} is for samples, but {given.source} holds features; leave one of them out")
    data = load_features(given.source)
    if data.labels is None:
        raise InvalidSamples(f"{given.source} has no labels, which a trial counts by; see pta extract")
    return TrialSource(LabelledStream(data, data.labels, _order("file", data.labels)), "samples")


def _open_samples(given: TrialOptions) -> TrialSource:
    model = given.model.named
    names = None if given.texts.classes is None else given.texts.names()
    labelled = open_samples(given.source, class_names=names, modality=model.modality)
    require_modality(labelled, model.modality, model.name)
    if labelled.labels is None:
        todo = "give a folder with one sub-folder per class, or a .csv of path,label"
        raise InvalidSamples(f"{given.source} has no labels, which a trial counts by; {todo}")
    if _is_of_predict(Path(given.source)):
        raise InvalidSamples(f"the labels of {given.source} are answers of pta predict; a trial needs a person's")
    require_enough(labelled.labels, labelled.class_names)
    if given.state is not None:
        require_saved_for(given.state, labelled.class_names, None)
    for note in labelled.notes:
        say(note)
    things = f"{model.modality.name}s"
    if given.unlabelled is None:
        data, microseconds = _encoded(given, labelled, model)
        assert data.labels is not None
        where = "folders" if Path(given.source).is_dir() else "list"
        stream = LabelledStream(data, data.labels, _order(where, data.labels))
        return TrialSource(stream, things, _pictures(labelled, data), model.name, microseconds)
    if names is None:
        say(f"the classes are those of {given.source}; if the stream has others, name all of them with --classes")
    coming = tuple(find_samples([given.unlabelled], model.modality))
    passed = (UnreadableSample,) * (given.samples.on_error == "skip") + (UnreadSample,) * given.samples.give_up_unread
    matched = match_labels(coming, labelled, given.samples.max_bytes, passed=passed)
    require_enough(matched.labels[matched.labels >= 0], labelled.class_names)
    _warn_of_doubts(matched, things)
    unlabelled = SampleSet(Path(given.unlabelled).name, labelled.class_names, coming, None, modality=model.modality)
    data, microseconds = _encoded(given, unlabelled, model)
    label = dict(zip((sample.key for sample in coming), matched.labels.tolist(), strict=True))
    labels = np.array([label[key] for key in data.paths or ()], np.int64)
    note = f"All {len(labels):,} {things} of {given.unlabelled} came in their own order. {matched.sentence(things)}."
    stream = LabelledStream(data, labels, note)
    return TrialSource(stream, things, _pictures(unlabelled, data), model.name, microseconds)


def _is_of_predict(file: Path) -> bool:
    """Whether a list has the columns that `pta predict` writes."""
    if file.suffix.lower() != ".csv":
        return False
    with file.open(encoding="utf-8", errors="replace") as lines:
        return "zero_shot_label" in lines.readline(_LONGEST_HEADER)


def _encoded(given: TrialOptions, images: SampleSet, model: NamedModel) -> tuple[FeatureFile, float | None]:
    """The features, from the cache if they are there, and the microseconds per sample if they were made now."""
    place = given.source if given.unlabelled is None else given.unlabelled
    known = hashlib.sha256(os.fsencode(f"{os.path.realpath(place)}\n{model.name}")).hexdigest()
    folder = default_cache() / "trials"
    make_folder(default_cache(), 0o700)
    make_folder(folder)
    out = folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', images.name)[:_LONGEST_NAME]}-{known[:16]}.safetensors"
    reading = given.samples.reading(given.samples.processes)
    done = extract_to(out, images, model, given.texts, reading, given.samples.on_error, replace=True, wait=True)
    warn_of_left_out(done)
    detail(f"features: {out}")
    return load_features(out), 1e6 * done.seconds / done.encoded if done.encoded else None


def _warn_of_doubts(matched: Matched, things: str) -> None:
    if matched.by_name:
        warn(f"{matched.by_name:,} labelled {things} were found by their file name alone; are they the same {things}?")
    if matched.contradicting:
        first, count = matched.contradicting[0], len(matched.contradicting)
        warn(f"{count:,} labelled {things} have the content of another with another label, first {first}; not counted")


def _order(where: str, labels: NDArray[np.int64]) -> str:
    """The order of a source that somebody has listed, in words."""
    return f"The order is that of the {where}{', one class after the other' if is_sorted(labels) else ''}."


def _pictures(images: SampleSet, data: FeatureFile) -> Picture | None:
    """Pictures of the samples that could be encoded."""
    by_key = {sample.key: sample for sample in images.samples}
    return pictures_of([by_key[key] for key in data.paths or ()], images.modality)
