"""Classifier: a model, a list of classes and a method, for a stream of samples, and its answers."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import plain_list
from pta.core.labels import NONE, UNKNOWN, Labels
from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.parameters import require_choice, require_count, require_number, require_switch, require_texts
from pta.core.samples import Samples
from pta.data.label_file import label_texts
from pta.data.prompts import build_classifier, load_templates
from pta.door.files import as_path
from pta.door.private_cache import default_cache
from pta.engines.gpu.download import Download
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.errors import InvalidParameter, require_known, shown
from pta.methods import DEFAULT_METHOD, Adapter, adapter_class, create_adapter, load_adapter
from pta.methods.state_file import Monitored
from pta.models import Encoder, Runtime, load_encoder
from pta.run.encoding import encode_prepared, samples_of
from pta.run.gpu.encoder_program import EncoderProgram
from pta.run.on_hub import OnHub
from pta.run.reading import Decode, Decoding, Reading, Views, open_decoding

Named = Sequence[str | None] | str | None
"""Labels by class name, None where unknown, or the one of a single sample."""


@dataclass(frozen=True)
class Answer:
    """The prediction for one sample: class and probability, after adaptation and zero-shot.

    With `shadow` the label is zero-shot's.
    """

    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    entropy: float  # of the probabilities after adaptation, in nats; 0 is certain
    top: tuple[tuple[str, float], ...]  # the most probable classes, best first, with their probabilities
    rejected: bool = False  # the probability is below `reject_below`: the sample may belong to none of the classes
    adapted_label: str | None = None  # with `shadow`, what adaptation would have answered
    held: bool = False  # the zero-shot probability is below `reject_holds`: nothing was learned from the sample

    @property
    def changed(self) -> bool:
        """Whether adaptation changes the label."""
        return (self.adapted_label or self.label) != self.zero_shot_label


class AnswerColumns(NamedTuple):
    """The answers for B samples, column by column."""

    labels: list[list[str]]  # of the best class, of the second best and so on, B each
    probabilities: list[list[float]]  # of these
    zero_shot_labels: list[str]
    zero_shot_probabilities: list[float]  # of these
    entropies: list[float]  # of the probabilities after adaptation, in nats
    changed: int  # answers that adaptation changes
    more: dict[str, list[Any]]  # further columns, by their names in rows: those of `MORE` that there are


MORE = ("adapted_label", "learned_label", "rejected", "held")
"""Columns beside the usual ones: with `shadow`, where labels are learned, with `reject_below`, with `reject_holds`."""


class AnswerBatch(Sequence[Answer]):
    """The answers for B samples. They may still be on their way from a GPU; reading one waits for them.

    Args:
        numbers: B×(2·k + 3), float64: the k best classes, their probabilities, the zero-shot class, its probability,
            the entropy, and with `shadow` the class after adaptation.
        reject_below: answers with a lower probability are rejected; None to reject none.
        learned: the label that was learned from each sample, empty where none was; None if labels are not learned.
        held: whether each sample was answered and not learned; None without `reject_holds`.

    `given_up` are samples that have a row without an answer: by their places among the rows, keys and reasons.
    `about` are further columns, of what is known about the samples.
    """

    def __init__(
        self,
        numbers: Tensor,
        class_names: Sequence[str],
        reject_below: float | None = None,
        *,
        learned: list[str] | None = None,
        held: list[bool] | None = None,
    ) -> None:
        self._count, self._top = len(numbers), (numbers.shape[1] - 3) // 2
        self._shadow = numbers.shape[1] % 2 == 0
        self._download = Download(numbers)
        self.given_up: dict[int, tuple[str, str]] = {}
        self._class_names, self._reject_below, self._learned, self._held = class_names, reject_below, learned, held
        self.about: dict[str, list[Any]] = {}

    @classmethod
    def joined(cls, parts: "Sequence[tuple[list[int], AnswerBatch]]") -> "AnswerBatch":
        """Batches of one kind as one; each comes with the rows of its answers in it."""
        rows, first = [row for own, _ in parts for row in own], parts[0][1]
        order = np.argsort(rows)

        def column(name: str) -> Any:
            cells = [cell for _, one in parts for cell in getattr(one, name) or ()]
            return None if getattr(first, name) is None else [cells[place] for place in order]

        numbers = torch.cat([one._download.wait() for _, one in parts])[torch.from_numpy(order)]
        texts = {"learned": column("_learned"), "held": column("_held")}
        return cls(numbers, first._class_names, first._reject_below, **texts)

    @property
    def arrived(self) -> bool:
        """Whether they can be read without waiting."""
        return self._download.arrived

    @cached_property
    def columns(self) -> AnswerColumns:
        """All of them, column by column."""
        top, least = self._top, self._reject_below
        numbers = self._download.wait().T.tolist()
        probabilities = numbers[top : 2 * top]
        labels, alone = [self._names(column) for column in numbers[:top]], self._names(numbers[2 * top])
        adapted = self._names(numbers[-1]) if self._shadow else None
        more = {
            "adapted_label": adapted,
            "learned_label": self._learned,
            "rejected": None if least is None else [probability < least for probability in probabilities[0]],
            "held": self._held,
        }
        return AnswerColumns(
            labels=labels,
            probabilities=probabilities,
            zero_shot_labels=alone,
            zero_shot_probabilities=numbers[2 * top + 1],
            entropies=numbers[2 * top + 2],
            changed=sum(map(str.__ne__, adapted or labels[0], alone)),
            more={name: column for name, column in more.items() if column is not None} | self.about,
        )

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Answer: ...

    @overload
    def __getitem__(self, row: slice) -> list[Answer]: ...

    def __getitem__(self, row: int | slice) -> Answer | list[Answer]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        held = self.columns
        ranked = tuple((names[row], values[row]) for names, values in zip(held.labels, held.probabilities, strict=True))
        zero_shot = (held.zero_shot_labels[row], held.zero_shot_probabilities[row])
        more = {name: held.more[name][row] for name in ("rejected", "adapted_label", "held") if name in held.more}
        return Answer(*ranked[0], *zero_shot, held.entropies[row], ranked, **more)

    def _names(self, column: list[float]) -> list[str]:
        return [self._class_names[int(number)] for number in column]


def answer_numbers(
    logits: Tensor,
    probabilities: Tensor,
    zero_shot: Tensor,
    top: int = 1,
    *,
    shadow: bool = False,
    with_adapted: bool = False,
) -> Tensor:
    """The numbers of an `AnswerBatch`, given the adapted logits, their probabilities and the zero-shot logits, all B×C.

    With `shadow` what is answered is zero-shot's; `with_adapted` they have the class after adaptation also without it.

    Logits rank the classes, so that probabilities that round to the same number change no label. All is computed on
    the device of the logits, and copied to the host once.
    """
    adapted = [logits.argmax(dim=1)] if shadow or with_adapted else []
    if shadow:
        logits, probabilities = zero_shot, zero_shot.double().softmax(dim=1)
    best = logits.topk(min(top, logits.shape[1]), dim=1).indices
    alone = zero_shot.double().softmax(dim=1).max(dim=1)
    columns = (alone.indices, alone.values, entropy_of(probabilities), *adapted)
    parts = (best, probabilities.gather(1, best), *(column[:, None] for column in columns))
    return torch.cat([part.double() for part in parts], dim=1)


MOST_ANSWERS = 2**20


class Classifier(OnHub):
    """Classifies samples, and adapts to every sample it classifies.

    A sample is whatever `Encoder.as_raw` takes: a path, bytes, or an object in memory, such as a Pillow image.

    Args:
        model: an encoder, or the name of a model to load on `device` in the precision `dtype`.
        templates: a preset of `pta.data.prompts`, a file, one template, or several; `descriptions` are added to them.
        method: the adaptation method, with its parameters; `clip` is zero-shot, `pta` the paper's rule.
        cache: the folder for text features; None to keep none.
        views: augmented views per sample, for methods that need them.
        expected: the length of the stream, for methods that need it.
        raw_probability: return the softmax of the logits as they are (see `Adapter.logit_factor`); those of `wpta` are
            calibrated unless `calibration="fixed"`.
        reject_below: mark answers of a lower probability as rejected. They keep their label, and are learned from.
        reject_holds: answer samples whose zero-shot probability is lower, and do not learn from them (`Answer.held`),
            unless they have a label.
        shadow: answer as zero-shot, and say what adaptation would have answered beside it (`Answer.adapted_label`).
            Learning goes on.
        limits: the largest allowed sample; larger ones are refused before they are decoded.
        decode: the decoder of image files: "pillow", "gpu", or "auto" (a GPU if there is one with a decoder).
        compiled: on a GPU, compile the model in the background after 2,000 samples.
        runtime: what makes the features of a model that is given by name: "torch", or "onnx" for ONNX Runtime, for
            images on a CPU in float32.

    >>> from PIL import Image
    >>> from pta.data.fashion import load_fashion_test
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
        method: str = DEFAULT_METHOD,
        device: str = "auto",
        dtype: str = "float32",
        cache: Path | str | None = "default",
        views: int = 64,
        expected: int | None = None,
        raw_probability: bool = False,
        reject_below: float | None = None,
        reject_holds: float | None = None,
        shadow: bool = False,
        limits: Limits = USUAL_LIMITS,
        decode: Decode = "auto",
        compiled: bool = True,
        runtime: Runtime = "torch",
        **parameters: Any,
    ) -> None:
        self.encoder = _loaded(model, device, dtype, runtime)
        self.model_name = None if isinstance(model, Encoder) else model
        suited = self.encoder.modality.prompts
        prompts = load_templates(templates, suited) if isinstance(templates, str) else templates
        self.templates, self.descriptions = prompts, descriptions
        folder = default_cache() if cache == "default" else None if cache is None else as_path(cache)
        how: dict[str, Any] = {"descriptions": descriptions, "cache": folder}
        how["keep_prompts"] = "prompts" in adapter_class(method).needs_with(parameters)
        self.classifier = build_classifier(self.encoder, classes, prompts, **how)
        for name, given in (("raw_probability", raw_probability), ("shadow", shadow), ("compiled", compiled)):
            require_switch(name, given)
        require_choice("decode", decode, get_args(Decode))
        if reject_below is not None:
            require_probabilities(raw_probability, reject_below)
        if reject_holds is not None:
            require_number("reject_holds", reject_holds, 0.0, 1.0)
        self.reject_holds = reject_holds
        self.raw_probability, self.reject_below, self.shadow = raw_probability, reject_below, shadow
        self.views, self._limits, self._decode = Views.crops(views), limits, decode
        self._optimise = compiled
        self._programs: dict[int, EncoderProgram] = {}
        self._opened: tuple[frozenset[str], Reading, Decoding] | None = None
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
    def __call__(self, given: str | bytes, *, learn: bool = ..., top: int = ..., labels: Named = ...) -> Answer: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, given: Sequence[object], *, learn: bool = ..., top: int = ..., labels: Named = ...
    ) -> list[Answer]: ...

    @overload
    def __call__(self, given: object, *, learn: bool = ..., top: int = ..., labels: Named = ...) -> Answer: ...

    def __call__(
        self, given: object, *, learn: bool = True, top: int = 1, labels: Named = None
    ) -> Answer | list[Answer]:
        """Classify one sample, or a list of samples in order, and adapt to each unless `learn` is False.

        Labels are class names, None where unknown. A label changes what is learned from its sample, not its answer.
        """
        require_count("top", top, 1, MOST_ANSWERS)
        if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray | memoryview):
            return self.answer(self.encoded([given]), learn=learn, top=top, labels=labels)[0]
        return self.answer(self.encoded(given), learn=learn, top=top, labels=labels) if given else []

    def answer(
        self, samples: Samples | Tensor, *, learn: bool = True, top: int = 1, labels: Named = None
    ) -> list[Answer]:
        """Classify samples by their features, B×d, with whatever else the method needs.

        Learning is the last step that can fail, so every sample that was learned has an answer.
        """
        require_count("top", top, 1, MOST_ANSWERS)
        require_switch("learn", learn)
        numbers = None if labels is None else self._label_numbers(labels, len(self.adapter.checked(samples)))
        if numbers is not None and not learn:
            raise InvalidParameter("labels are for learning; leave them out with learn=False")
        return list(self.answers(samples, learn=learn, top=top, labels=numbers))

    def answers(self, samples: Samples | Tensor, *, learn: bool, top: int, labels: Labels | None = None) -> AnswerBatch:
        """The same as columns, for at least one sample; on a GPU they may still be computed. Labels are numbers."""
        known = self.adapter.checked(samples)
        classifier = self.adapter.classifier
        zero_shot = classifier.logits(known.features.to(classifier.anchors))
        held = None
        if self.reject_holds is not None and learn:
            held = self.below_hold(known, labels)
            told = np.full(len(known), UNKNOWN) if labels is None else labels
            logits = self.adapter.step_or_answer(known, np.where(held, NONE, told))
        elif labels is not None:
            logits = self.adapter.step_or_answer(known, labels)
        else:
            logits = (self.adapter.step if learn else self.adapter.predict)(known)
        probabilities = self.adapter.probabilities_unchecked(logits, raw=self.raw_probability)
        learned = None if labels is None else label_texts(labels, self.classes)
        numbers = answer_numbers(logits, probabilities, zero_shot, top, shadow=self.shadow)
        marks = None if held is None else held.tolist()
        return AnswerBatch(numbers, self.classes, self.reject_below, learned=learned, held=marks)

    def below_hold(self, samples: Samples, labels: Labels | None) -> NDArray[np.bool_]:
        """Which checked samples have a lower zero-shot probability than `reject_holds`, and no label."""
        on_device = samples.to(self.adapter.classifier.anchors)
        confidence = ZeroShot(self.adapter.classifier, on_device).text_probabilities.amax(dim=1)
        is_low = (confidence < (self.reject_holds or 0.0)).cpu().numpy()
        return is_low if labels is None else is_low & (labels == UNKNOWN)

    def reset(self, classes: Sequence[str] | None = None) -> None:
        """Forget what was learned about all classes, or about these."""
        self.adapter.reset(None if classes is None else self._numbers_of(classes))
        if classes is None:
            self.origin = None

    def fork(self) -> "Classifier":
        """Another one with the same model and classes, and what was learned so far; each then learns for itself."""
        other = copy(self)
        other.adapter = self.adapter.clone()
        return other

    def save(
        self, path: str | Path, *, stream: Mapping[str, Any] | None = None, monitor: Monitored | None = None
    ) -> None:
        """Save the state to a file, with a record of the stream it was learned from, and of its monitor."""
        self.adapter.save(path, stream=stream, monitor=monitor)

    def load(self, path: str | Path) -> None:
        """Load a saved state, with the method and parameters it was saved with."""
        self.adapter = self._checked(load_adapter(path, self.classifier, model=self.encoder))
        self.origin = None

    def reading(self, reading: Reading) -> Reading:
        """How to read samples so that the method gets what it needs."""
        return reading.for_needs(self.adapter.inputs, self.views)

    def _label_numbers(self, labels: Sequence[str | None] | str, count: int) -> Labels:
        """Labels by name as numbers; one sample may have its label alone."""
        given = [labels] if isinstance(labels, str) else list(labels)
        if len(given) != count:
            raise InvalidParameter(f"there must be one label per sample, {count}, got {len(given)}")
        known = iter(self._numbers_of([name for name in given if name is not None]))
        return np.array([UNKNOWN if name is None else next(known) for name in given], np.int64)

    def _numbers_of(self, names: Sequence[str]) -> list[int]:
        wanted = require_texts("classes", names)
        for name in wanted:
            require_known("class", name, self.classes)
        return [self.classes.index(name) for name in wanted]

    def _checked(self, adapter: Adapter) -> Adapter:
        """The adapter, if samples can provide what it needs. Whole-batch methods go to the model's device."""
        if adapter.wants_preview:
            raise InvalidParameter(
                f"{adapter.name} with these parameters needs the whole stream before it predicts; use pta eval"
            )
        if self.reject_holds is not None:
            require_holdable(adapter)
        counts = {}
        if "views" in adapter.inputs:
            self.encoder.preparer(views=self.views)
            counts["views"] = self.views.count
        if "patches" in adapter.inputs:
            counts["patches"] = self.encoder.patch_count()
        if counts:
            one = torch.eye(1, self.encoder.dim)
            some = {name: one.expand(1, count, -1) for name, count in counts.items()}
            adapter.require(Samples(one, **some))  # fails early if something is missing
        takes_batches = adapter.max_batch != 1 and adapter.inputs == {"features"} and adapter.model is None
        # One sample at a time, launching kernels would take longer than the host needs.
        return adapter.to(self.encoder.device) if takes_batches and self.encoder.device.type == "cuda" else adapter

    def encoded(self, given: Sequence[object]) -> Samples:
        """The features of at least one sample, with whatever else the method needs, for `answers`."""
        reading, decoding = self._open_decoding()
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

    def _open_decoding(self) -> tuple[Reading, Decoding]:
        """How samples in memory are read, which changes only with what the method needs."""
        needs = self.adapter.inputs
        if self._opened is None or self._opened[0] != needs:
            reading = Reading(limits=self._limits, decode=self._decode).for_needs(needs, self.views)
            self._opened = needs, reading, open_decoding(self.encoder, reading)
        return self._opened[1:]

    def _program(self, batch: int) -> EncoderProgram:
        """The model for batches of this size."""
        if batch not in self._programs:
            self._programs[batch] = EncoderProgram(self.encoder, batch, optimise=self._optimise)
        return self._programs[batch]

    def pipeline(self, *, top_k: int = 5, candidate_labels: Sequence[str] | None = None) -> Callable[..., Any]:
        """This classifier as a callable like the image pipelines of `transformers`.

        What was learned belongs to the classes of the classifier, so other `candidate_labels` are refused.

        >>> from PIL import Image
        >>> from pta.data.fashion import load_fashion_test
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


def _loaded(model: str | Encoder, device: str, dtype: str, runtime: Runtime) -> Encoder:
    if not isinstance(model, Encoder):
        return load_encoder(model, device=device, dtype=dtype, runtime=runtime)
    if runtime not in (Encoder.runtime, model.runtime):
        raise InvalidParameter(f"the model is loaded already; give its name, or load_encoder(…, runtime={runtime!r})")
    return model


def require_probabilities(raw_probability: bool, reject_below: object) -> None:
    """Refuse a threshold that is not a probability, and any threshold for raw probabilities."""
    require_number("reject_below", reject_below, 0.0, 1.0)
    if raw_probability:
        raise InvalidParameter("reject_below needs calibrated probabilities; leave out raw_probability")


def require_holdable(adapter: Adapter | type[Adapter]) -> None:
    """Refuse a method whose answers would change if samples of a batch were held."""
    if adapter.scope != "sample":
        raise InvalidParameter(f"reject_holds: {adapter.name} does not answer sample by sample; leave it out")
