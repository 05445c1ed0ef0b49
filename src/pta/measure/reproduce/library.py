"""Library: the data of a profile as features, extracted once and cached in one folder for all experiments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from pta.core.classifier import ZeroShotClassifier
from pta.core.modality import CLOUDS
from pta.data import point_shapes
from pta.data.features import FeatureFile, load_features
from pta.data.open import open_samples
from pta.data.prompts import build_classifier, load_descriptions, load_templates
from pta.data.sample_set import SampleSet
from pta.data.views import Mode, confident_mean
from pta.door.plain_files import make_folder
from pta.door.private_cache import default_cache
from pta.errors import InvalidParameter, InvalidSamples, UnreadableFile
from pta.measure.reproduce.profile import kind_of
from pta.models import Encoder, find_device, load_encoder
from pta.run.encoding import OnError
from pta.run.extract import extract
from pta.run.reading import Reading, Views

VIEWS = 64  # of an image, as in the paper
_STORED = {"raw": "pixels", "generated": "generated pictures"}  # what a file calls them, if not as methods do


@dataclass
class Library:
    """Where features come from."""

    folder: Path  # where those that were extracted are kept
    root: Path | None = None  # the folder of all datasets, if there is one
    model: str = ""  # its name
    models: Mapping[str, str] = field(default_factory=dict)  # other ones, for datasets whose id begins so
    own: Mapping[str, FeatureFile] = field(default_factory=dict)  # of the user, by the id of their dataset
    descriptions: Path | None = None  # a folder with the sentences of each class, DATASET.json
    device: str = "cpu"  # of the model and the methods
    dtype: str = "float32"  # of the model only
    reading: Reading = field(default_factory=Reading)  # how plain images are read; views are cut out by Pillow
    on_error: OnError = "stop"  # what happens at an image that cannot be decoded
    views_of: Sequence[str] | None = None  # the datasets that augmented views are made of, if not all
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None  # told of what is being extracted
    skipped: dict[str, int] = field(default_factory=dict, init=False)  # pictures that could not be read, by dataset
    _stored: dict[Path, FeatureFile] = field(default_factory=dict, init=False)  # the last one
    _ready: dict[Any, FeatureFile] = field(default_factory=dict, init=False)  # the last one
    _encoders: dict[str, Encoder] = field(default_factory=dict, init=False)  # by the names of their models

    @property
    def encoder(self) -> Encoder:
        """The model, loaded when it is first needed."""
        return self._loaded(self.model)

    @property
    def is_model_loaded(self) -> bool:
        """Whether the model was needed until now."""
        return self.model in self._encoders

    def model_of(self, dataset: str) -> str:
        """The name of the model that encodes a dataset."""
        return self.models.get(kind_of(dataset), self.model)

    def encoder_of(self, dataset: str) -> Encoder:
        """The model that encodes a dataset."""
        return self._loaded(self.model_of(dataset))

    def _loaded(self, model: str) -> Encoder:
        if model not in self._encoders:
            self._encoders[model] = load_encoder(model, device=self.device, dtype=self.dtype)
        return self._encoders[model]

    def images(self, dataset: str) -> SampleSet:
        """The images of a dataset, not read yet."""
        if dataset in self.own:
            raise InvalidSamples(f"{dataset} is a feature file; it has no images")
        if self.root is None and kind_of(dataset) not in ("fashion", point_shapes.NAME):
            raise UnreadableFile(f"{dataset}: give the folder of the datasets with --data ROOT")
        return open_samples(dataset, root=self.root)

    def features(
        self,
        dataset: str,
        *,
        templates: str = "clip",
        descriptions: bool = False,
        views: str | None = None,
        needs: frozenset[str] = frozenset(),
    ) -> FeatureFile:
        """A dataset as a method sees it; `views` as in a row, `needs` as the method declares them."""
        wanted = (dataset, templates, descriptions, views, needs)
        if wanted in self._ready:
            return self._ready[wanted]
        views = views or ""
        if dataset in self.own:
            data = self.own[dataset]
            if templates not in ("clip", "coop") or descriptions:
                raise InvalidParameter("the texts of a feature file cannot be changed")
            for missing in sorted(needs - data.samples.provides):
                raise InvalidSamples(f"the feature file holds no {_STORED.get(missing, missing)}")
        else:
            images = self.images(dataset)
            if "generated" in needs:
                raise InvalidSamples("no generated pictures; name a file of pta extract --views-from with --features")
            if views and self.views_of is not None and dataset not in self.views_of:
                raise InvalidSamples(f"to save time, views are only made of {', '.join(self.views_of)}")
            classifier = self._classifier(images, templates, descriptions)
            data = replace(self._joined(images, views, needs), classifier=classifier)
        if views.endswith("-mean") or (views and "views" not in needs):
            if data.samples.views is None:
                raise InvalidSamples("the feature file holds no views")
            data = replace(data, samples=confident_mean(data.samples, data.classifier))
        self._ready = {wanted: replace(data, classifier=data.classifier.to(device=find_device(self.device)))}
        return self._ready[wanted]

    def _classifier(self, images: SampleSet, templates: str, descriptions: bool) -> ZeroShotClassifier:
        sentences = None
        if descriptions:
            if self.descriptions is None:
                raise InvalidParameter("sentences for each class are needed, --descriptions FOLDER with DATASET.json")
            sentences = load_descriptions(self.descriptions / f"{images.name}.json")
        prompts = load_templates(templates, images.prompts)
        encoder = self.encoder_of(images.name)
        return build_classifier(encoder, images.class_names, prompts, descriptions=sentences, cache=default_cache())

    def _joined(self, images: SampleSet, views: str, needs: frozenset[str]) -> FeatureFile:
        """What a method needs of the images; views and patches are in files of their own, which others need, too.

        A cloud has so few local features that one file holds them and the feature of the whole.
        """
        if images.modality is CLOUDS and not views and "raw" not in needs and self._gives_patches(images):
            return self._extracted(images, kept="patches")
        first, _, further = views.partition("+")
        data = self._extracted(images, drawn_views(first), "pixels" if "raw" in needs else "")
        beside: dict[str, Any] = {}
        if further:
            others = self._extracted(images, drawn_views(further)).samples.tensors()["views"]
            beside["views"] = torch.cat([data.samples.tensors()["views"], others[:, 1:]], dim=1)
        if "patches" in needs:
            beside["patches"] = self._extracted(images, kept="patches").samples.patches
        return replace(data, samples=replace(data.samples, **beside)) if beside else data

    def _gives_patches(self, images: SampleSet) -> bool:
        try:
            return self.encoder_of(images.name).patch_count() > 0
        except InvalidParameter:
            return False

    def _extracted(self, images: SampleSet, views: Views | None = None, kept: str = "") -> FeatureFile:
        """The features of all images, and either views or what else is kept of the plain image: pixels or patches."""
        kinds = [f"{views.count}-{views.mode}" if views else "", kept, "" if self.dtype == "float32" else self.dtype]
        encoder = self.encoder_of(images.name)
        name = "-".join([images.name.replace("/", "-"), encoder.fingerprint[:12], *filter(None, kinds)])
        out = self.folder / f"{name}.safetensors"
        if out not in self._stored:
            make_folder(self.folder)
            stored: dict[str, Any] = {"views": views, "raw": kept == "pixels", "patches": kept == "patches"}
            reading = replace(self.reading, **stored, decode="pillow" if views else self.reading.decode)
            done = extract(
                *(images, encoder, self._classifier(images, "clip", False), out, reading),
                about={"model": self.model_of(images.name)},
                replace=True,
                on_error=self.on_error,
                on_progress=lambda done: self.on_progress(images.name, done, len(images)),
                wait=True,  # a second process waits, and then finds all of it done
            )
            if left_out := len(done.skipped) + len(done.given_up):
                self.skipped[images.name] = left_out
            self._stored = {out: load_features(out)}
        return self._stored[out]


def drawn_views(views: str) -> Views | None:
    """How the views of a row are drawn; none if it has none."""
    mode, _, count = views.partition("-")
    return Views(int(count) if count.isdigit() else VIEWS, cast(Mode, mode)) if views else None
