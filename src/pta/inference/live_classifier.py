"""Classifier: a model, a list of classes and a method, put together for pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from pta.adapters.adapter import adapter_class, create_adapter, load_adapter
from pta.encoders import Encoder, load_encoder
from pta.files import load_tensors
from pta.images import as_picture
from pta.inference.answers import Answer, answers_from
from pta.inference.encoding import Reading, Views, encode_prepared, samples_of
from pta.prompts import build_classifier, default_cache, load_templates
from pta.samples import Samples
from pta.towers import ImageTower

Picture = Image.Image | str | Path | npt.NDArray[np.uint8]
_ONE = (Image.Image, str, Path, np.ndarray)


class Classifier:
    """Says which of the classes a picture shows, and learns from every picture it is asked about.

    Args:
        model: the name of a model, or an encoder.
        classes: what there is to tell apart.
        templates: a preset of `pta.prompts`, a file, one template, or several.
        descriptions: sentences for each class, beside the templates.
        method: how to adapt; `clip` is zero-shot.
        device, dtype: where and in which precision a model that is given by name runs.
        cache: the folder for text features; None to keep none.
        views: how many views are made of every picture, for a method that needs them; no other makes any.
        parameters: of the method.

    >>> from pta.datasets.fashion import load_fashion_test
    >>> fashion = load_fashion_test()
    >>> clf = Classifier("embedded", classes=fashion.class_names, cache=None)
    >>> answer = clf(fashion.images[0])
    >>> answer.label, answer.zero_shot_label
    ('ankle boot', 'ankle boot')
    >>> [answer.label for answer in clf([fashion.images[1], Image.fromarray(fashion.images[2])])]
    ['pullover', 'trouser']
    """

    def __init__(
        self,
        model: str | Encoder,
        classes: Sequence[str],
        *,
        templates: str | Sequence[str] = "clip",
        descriptions: Mapping[str, Sequence[str]] | None = None,
        method: str = "pta",
        device: str = "auto",
        dtype: str = "float32",
        cache: Path | str | None = "default",
        views: int = 64,
        **parameters: Any,
    ) -> None:
        prompts = load_templates(templates) if isinstance(templates, str) else tuple(templates)
        self.encoder = load_encoder(model, device=device, dtype=dtype) if isinstance(model, str) else model
        folder = default_cache() if cache == "default" else cache
        self.classifier = build_classifier(
            self.encoder, classes, prompts, descriptions=descriptions, cache=None if folder is None else Path(folder)
        )
        self.views = Views(views, "crops", seed=None)
        self.adapter = create_adapter(method, self.classifier, tower=self._tower_for(method), **parameters)
        if "views" in self.adapter.needs:
            some = torch.ones(1, views, self.encoder.dim)
            self.adapter.require(Samples(some[:, 0], views=some))  # finds out now whether they are enough

    @overload  # a path is one picture, although a string is a sequence of strings
    def __call__(self, images: Picture, *, learn: bool = ..., top: int = ...) -> Answer: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, images: Sequence[Picture], *, learn: bool = ..., top: int = ...) -> list[Answer]: ...

    def __call__(
        self, images: Picture | Sequence[Picture], *, learn: bool = True, top: int = 1
    ) -> Answer | list[Answer]:
        """What a picture shows, or several; each is learnt from in turn, unless `learn` is False."""
        if isinstance(images, _ONE):
            return self([images], learn=learn, top=top)[0]
        if not len(images):
            return []
        return self.answer(self._encoded(images), learn=learn, top=top)

    def answer(self, samples: Samples | Tensor, *, learn: bool = True, top: int = 1) -> list[Answer]:
        """The same for pictures whose features are known, B×d, with what else the method needs."""
        if not len(samples):
            return []
        known = samples if isinstance(samples, Samples) else Samples.of(samples)
        logits = (self.adapter.step if learn else self.adapter.predict)(known)
        zero_shot = self.classifier.logits(known.features.to(self.classifier.anchors))
        return answers_from(logits, zero_shot, self.classifier.class_names, top)

    def save(self, path: str | Path) -> None:
        """Write what was learnt to a file."""
        self.adapter.save(path)

    def load(self, path: str | Path) -> None:
        """Go on with what was saved, by the method and with the parameters it was saved with."""
        _, about = load_tensors(path, kind="state", only=())
        method = about.get("method")
        tower = self._tower_for(method) if isinstance(method, str) else None
        self.adapter = load_adapter(path, self.classifier, tower=tower)

    def reading(self, reading: Reading) -> Reading:
        """How images are to be read so that the method has everything it needs."""
        needs = self.adapter.needs
        return replace(reading, views=self.views if "views" in needs else None, pixels="pixels" in needs)

    def _tower_for(self, method: str) -> ImageTower | None:
        return self.encoder.image_tower() if "pixels" in adapter_class(method).needs else None

    def _encoded(self, images: Sequence[Picture]) -> Samples:
        reading, preprocess = self.reading(Reading()), self.encoder.preprocess
        if reading.views is None:
            prepared = [preprocess.pixels(as_picture(image)) for image in images]
            return samples_of(encode_prepared(self.encoder, prepared, pixels=reading.pixels))
        views = reading.views
        parts = []
        for number, image in enumerate(images):  # one by one: the views of many pictures are much to hold
            parts.append(encode_prepared(self.encoder, [views.of(as_picture(image), number, preprocess)], views))
        return samples_of({name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def pipeline(self, *, top_k: int = 5) -> Callable[..., Any]:
        """This classifier as a callable of the shape that `transformers` gives its image pipelines.

        >>> from pta.datasets.fashion import load_fashion_test
        >>> fashion = load_fashion_test()
        >>> classify = Classifier("embedded", classes=fashion.class_names, cache=None).pipeline(top_k=2)
        >>> [one["label"] for one in classify(Image.fromarray(fashion.images[0]))]
        ['ankle boot', 'sneaker']
        """

        def classify(images: Picture | Sequence[Picture], *, top_k: int = top_k) -> Any:
            """A list of {label, score}, best first, for one picture; a list of such lists for several."""
            if isinstance(images, _ONE):
                return classify([images], top_k=top_k)[0]
            answers = self(images, top=top_k)
            return [[{"label": label, "score": value} for label, value in answer.top] for answer in answers]

        return classify
