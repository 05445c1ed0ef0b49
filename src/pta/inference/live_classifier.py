"""Classifier: a model, a list of classes and a method, put together for samples as they come."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from pta.adapters import Adapter, create_adapter, load_adapter
from pta.encoders import Encoder, load_encoder
from pta.errors import InvalidParameter, nearest, shown
from pta.files import as_path
from pta.inference.answers import Answer, Answers, answers_from
from pta.inference.decoding import Decoding, open_decoding
from pta.inference.encoder_program import EncoderProgram
from pta.inference.encoding import encode_prepared, samples_of
from pta.inference.reading import Decode, Reading, Views
from pta.limits import USUAL_LIMITS, Limits
from pta.parameters import require_count, require_number, require_switch, require_texts
from pta.plain import plain_list
from pta.prompts import build_classifier, default_cache, load_templates
from pta.samples import Samples

MOST_ANSWERS = 2**20


class Classifier:
    """Says which of the classes a sample is, and learns from every sample it is asked about.

    A sample is whatever `Encoder.as_raw` takes: a path, bytes, or an object in memory, such as a Pillow image.

    Args:
        model: the name of a model, which then runs on `device` in the precision `dtype`, or an encoder.
        templates: a preset of `pta.prompts`, a file, one template, or several; `descriptions` are used beside them.
        method: how to adapt, with its parameters; `clip` is zero-shot.
        cache: the folder for text features; None to keep none.
        views: how many views are made of every sample, for a method that needs them.
        expected: how many samples will come, for a method that must know it.
        raw_probability: give the softmax of the method's logits as they are (see `Adapter.logit_factor`).
        reject_below: mark answers of a lower probability as rejected. They keep their label, and are learned from.
        limits: how large a sample may be; what is larger is refused before it is decoded.
        decode: what decodes image files, "pillow", "gpu", or "auto" for a GPU where there is one with a decoder.
        compiled: on a GPU, compile the model in the background once 2,000 samples have come.

    >>> from PIL import Image
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
        expected: int | None = None,
        raw_probability: bool = False,
        reject_below: float | None = None,
        limits: Limits = USUAL_LIMITS,
        decode: Decode = "auto",
        compiled: bool = True,
        **parameters: Any,
    ) -> None:
        self.encoder = model if isinstance(model, Encoder) else load_encoder(model, device=device, dtype=dtype)
        suited = self.encoder.modality.prompts
        prompts = load_templates(templates, suited) if isinstance(templates, str) else templates
        if isinstance(cache, str) and cache == "default":
            cache = default_cache()
        folder = None if cache is None else as_path(cache)
        self.classifier = build_classifier(self.encoder, classes, prompts, descriptions=descriptions, cache=folder)
        self.raw_probability = require_switch("raw_probability", raw_probability)
        self.reject_below = None if reject_below is None else require_number("reject_below", reject_below, 0.0, 1.0)
        if self.raw_probability and self.reject_below is not None:
            raise InvalidParameter("reject_below is for calibrated probabilities; leave raw_probability out")
        self.views, self._usual = Views(views, "crops", seed=None), Reading(limits=limits, decode=decode)
        self._optimise = require_switch("compiled", compiled)
        self._programs: dict[int, EncoderProgram] = {}
        self._decodings: dict[Reading, Decoding] = {}
        adapter = create_adapter(method, self.classifier, model=self.encoder, source=expected, **parameters)
        self.adapter = self._checked(adapter)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.classifier.class_names

    def __repr__(self) -> str:
        names, method = shown(", ".join(self.classes), 60), self.adapter.name
        learned = f"{self.adapter.position:,} samples learned"
        return f"<Classifier {self.encoder.architecture}, {len(self.classes):,} classes {names}, {method}, {learned}>"

    @overload  # a path is one sample, although a string is a sequence of strings
    def __call__(self, given: str | bytes, *, learn: bool = ..., top: int = ...) -> Answer: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, given: Sequence[object], *, learn: bool = ..., top: int = ...) -> list[Answer]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, given: object, *, learn: bool = ..., top: int = ...) -> Answer: ...

    def __call__(self, given: object, *, learn: bool = True, top: int = 1) -> Answer | list[Answer]:
        """What a sample is, or each of several in a list; each is learned from in turn, unless `learn` is False."""
        require_count("top", top, 1, MOST_ANSWERS)
        if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray | memoryview):
            return self.answer(self._encoded([given]), learn=learn, top=top)[0]
        return self.answer(self._encoded(given), learn=learn, top=top) if given else []

    def answer(self, samples: Samples | Tensor, *, learn: bool = True, top: int = 1) -> list[Answer]:
        """The same for samples whose features are known, B×d, with what else the method needs.

        Learning is the last thing that can fail: what was learned is answered.
        """
        require_count("top", top, 1, MOST_ANSWERS)
        require_switch("learn", learn)
        return [] if _is_empty(samples) else list(self.answers(samples, learn=learn, top=top))

    def answers(self, samples: Samples | Tensor, *, learn: bool, top: int) -> Answers:
        """The same as columns, for at least one sample; on a GPU they may still be under way."""
        known = self.adapter._checked(samples)
        classifier = self.adapter.classifier
        zero_shot = classifier.logits(known.features.to(classifier.anchors))
        logits = (self.adapter.step if learn else self.adapter.predict)(known)
        probabilities = self.adapter.probabilities(logits, raw=self.raw_probability)
        return answers_from(logits, probabilities, zero_shot, self.classes, top, self.reject_below)

    def reset(self, classes: Sequence[str] | None = None) -> None:
        """Forget what was learned, of all classes or of these."""
        self.adapter.reset(None if classes is None else self._numbers_of(classes))

    def save(self, path: str | Path, *, stream: Mapping[str, Any] | None = None) -> None:
        """Write what was learned to a file, and what is to be recorded about the stream it was learned from."""
        self.adapter.save(path, stream=stream)

    def load(self, path: str | Path) -> None:
        """Go on with what was saved, by the method and with the parameters it was saved with."""
        self.adapter = self._checked(load_adapter(path, self.classifier, model=self.encoder))

    def reading(self, reading: Reading, adapter: Adapter | None = None) -> Reading:
        """How samples are to be read so that the method, or that of another adapter, has everything it needs."""
        adapter = adapter or self.adapter
        return reading.for_needs(adapter.needs_with(adapter.parameters), self.views)

    def _numbers_of(self, names: Sequence[str]) -> list[int]:
        wanted = require_texts("classes", names)
        for name in wanted:
            if name not in self.classes:
                raise InvalidParameter(f"no class is called {shown(name)}; {nearest(name, self.classes)}")
        return [number for number, name in enumerate(self.classes) if name in wanted]

    def _checked(self, adapter: Adapter) -> Adapter:
        """The adapter, if samples can be given all that it needs; one that takes whole batches where the model is."""
        if adapter.wants_preview:
            raise InvalidParameter(
                f"{adapter.name} with these parameters sees the whole stream before it answers; pta eval shows it that"
            )
        reading = self.reading(Reading(), adapter)
        self.encoder.preparer(views=reading.views)
        counts = {"views": reading.views.count} if reading.views else {}
        counts |= {"patches": self.encoder.patch_count()} if reading.patches else {}
        if counts:
            one = torch.eye(1, self.encoder.dim)
            some = {name: one.expand(1, count, -1) for name, count in counts.items()}
            adapter.require(Samples(one, **some))  # finds out now whether they are enough
        takes_batches = adapter.at_once != 1 and adapter.needs_with(adapter.parameters) == {"features"}
        # One sample at a time, launching kernels would take longer than the host needs.
        return adapter.to(self.encoder.device) if takes_batches and self.encoder.device.type == "cuda" else adapter

    def _encoded(self, given: Sequence[object]) -> Samples:
        reading = self.reading(self._usual)
        decoding = self._decoding(reading)
        names = ["the sample"] if len(given) == 1 else [f"sample {number}" for number in range(len(given))]
        prepared = (decoding.prepare(one, name, n) for n, (one, name) in enumerate(zip(given, names, strict=True)))
        program = self._program(reading.encoded_at_once if len(given) > 1 or reading.views else 1)
        if reading.views is None:
            raw, errors = decoding.finish(list(prepared))
            for name, error in zip(names, errors, strict=True):
                if error is not None:
                    raise type(error)(f"{name}: {error}")
            parts = [encode_prepared(program, raw, reading)]
        else:  # one by one: the views of many samples are much to hold
            parts = [encode_prepared(program, [views], reading) for views in prepared]
        tensors = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        self.encoder.require_finite(tensors["features"])
        return samples_of(tensors)

    def _decoding(self, reading: Reading) -> Decoding:
        if reading not in self._decodings:
            self._decodings = {reading: open_decoding(self.encoder, reading)}
        return self._decodings[reading]

    def _program(self, batch: int) -> EncoderProgram:
        """The model for so many raw samples at once."""
        if batch not in self._programs:
            self._programs[batch] = EncoderProgram(self.encoder, batch, optimise=self._optimise)
        return self._programs[batch]

    def pipeline(self, *, top_k: int = 5, candidate_labels: Sequence[str] | None = None) -> Callable[..., Any]:
        """This classifier as a callable of the shape that `transformers` gives its image pipelines.

        What was learned belongs to the classes of the classifier, so other `candidate_labels` are refused.

        >>> from PIL import Image
        >>> from pta.datasets.fashion import load_fashion_test
        >>> fashion = load_fashion_test()
        >>> classify = Classifier("embedded", classes=fashion.class_names, cache=None).pipeline(top_k=2)
        >>> [one["label"] for one in classify(Image.fromarray(fashion.images[0]))]
        ['ankle boot', 'sneaker']
        """
        require_count("top_k", top_k, 1, MOST_ANSWERS)
        self._require_own_classes(candidate_labels)

        def scores(answer: Answer) -> list[dict[str, Any]]:
            return [{"label": label, "score": value} for label, value in answer.top]

        def classify(given: object, *, top_k: int = top_k, candidate_labels: Sequence[str] | None = None) -> Any:
            """A list of {label, score}, best first, for one sample; a list of such lists for several."""
            self._require_own_classes(candidate_labels)
            answers = self(given, top=top_k)
            return scores(answers) if isinstance(answers, Answer) else list(map(scores, answers))

        return classify

    def _require_own_classes(self, labels: object) -> None:
        if labels is not None and set(plain_list(labels) or ()) != set(self.classifier.class_names):
            raise InvalidParameter(
                "the classes are those of the classifier; for other candidate_labels make "
                f"pta.Classifier(…, classes={shown(labels)})"
            )


def _is_empty(samples: object) -> bool:
    try:
        return len(samples) == 0  # type: ignore[arg-type]
    except Exception:  # what has no length is no batch, and refused as such
        return False
