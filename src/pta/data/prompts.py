"""From class names and templates to a classifier: every text of a class is encoded, and their mean is its anchor.

Anchors may be kept in a folder, so that the same model and texts are encoded once. Files of this cache are checked like
computed anchors, and no failure of the cache stops a computation.
"""

import hashlib
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import require_mapping, require_texts
from pta.core.towers import Model
from pta.door.files import load_tensors, packaged_json, read_json, read_text, save_tensors, understanding
from pta.door.plain_files import make_folder
from pta.errors import InvalidParameter, PtaError, UnreadableFile, naming, nearest, shown, some_of

_ENSEMBLES = ("vanilla", "clip7", "clip80", "ulip64")
_MIXTURES = {"clip": "clip7", "coop": "vanilla", "dpe": "clip7"}  # what each is for classes of no known dataset
_LARGEST = 2**20
_HEADINGS = re.compile(r"(class|category|label)( ?(id|names?))?|classes|categories|labels|names?|id|idx|index|number")


class DoubtfulClassNames(UserWarning):
    """Class names that are probably not what was meant."""


class DuplicateClassNames(DoubtfulClassNames):
    """Several classes have the same texts, up to case, so most models cannot tell them apart."""


def class_texts(
    class_names: Sequence[str], templates: Sequence[str], descriptions: Mapping[str, Sequence[str]] | None = None
) -> list[list[str]]:
    """The texts of each class: every template filled with its cleaned name, then its sentences.

    >>> class_texts(["cat", "sea_lion"], ["a photo of a {}."], {"cat": ["It purrs."], "sea lion": ["It barks."]})
    [['a photo of a cat.', 'It purrs.'], ['a photo of a sea lion.', 'It barks.']]
    """
    names, templates = _cleaned(class_names), require_templates(templates)
    if not templates and descriptions is None:
        raise InvalidParameter("give at least one template or description")
    filled = [[template.replace("{}", name) for template in templates] for name in names]
    if descriptions is None:
        return filled
    known = {clean_name(key): sentences for key, sentences in require_mapping("descriptions", descriptions).items()}
    return [texts + _sentences(name, known) for name, texts in zip(names, filled, strict=True)]


def clean_name(name: str) -> str:
    """A class name as it stands in a text.

    >>> clean_name("golden_retriever")
    'golden retriever'
    """
    return name.replace("_", " ")


def _cleaned(class_names: Sequence[str]) -> list[str]:
    """The names of at least two classes, cleaned."""
    if isinstance(class_names, str) or not isinstance(class_names, Sequence):
        raise InvalidParameter(f"class names must be a list of strings, not {shown(class_names)}")
    if len(class_names) < 2:
        raise InvalidParameter(f"a classifier needs at least two class names, got {len(class_names)}")
    for number, name in enumerate(class_names):
        if not isinstance(name, str):
            raise InvalidParameter(f"class name {number} must be a string, not {shown(name)}")
        if not clean_name(name).strip():
            raise InvalidParameter(f"class name {number} is blank")
        if any("\ud800" <= sign <= "\udfff" for sign in name):  # lone surrogates: undecodable bytes of a file name
            raise InvalidParameter(f"class name {number}, {name!a}, has bytes that are not UTF-8; rename it")
    return [clean_name(name) for name in class_names]


def _sentences(name: str, descriptions: Mapping[str, Sequence[str]]) -> list[str]:
    if name not in descriptions:
        raise InvalidParameter(f"the descriptions have no class {name!r}; {nearest(name, descriptions)}")
    if isinstance(descriptions[name], str):
        raise InvalidParameter(f"the description of {name!r} must be a list of sentences, not one string")
    return require_texts(f"the description of {name!r}", descriptions[name])


def load_descriptions(path: str | Path) -> dict[str, list[str]]:
    """Sentences by cleaned class name from one JSON object, of the form that CuPL and DPE publish."""
    descriptions: dict[str, list[str]] = {}
    with understanding(path, "description file"):
        found = read_json(Path(path), "description")
        if not isinstance(found, dict) or not found:
            raise UnreadableFile(f"{path} must hold a JSON object, class name → list of sentences")
        for key, own in found.items():
            if not isinstance(own, list) or not own or not all(isinstance(one, str) and one.strip() for one in own):
                wanted = "must have a list of sentences, at least one and none of them blank"
                raise UnreadableFile(f"{path}: {key!r} {wanted}")
            if clean_name(key) in descriptions:
                raise UnreadableFile(f"{path}: two keys are the class {clean_name(key)!r}; keep one")
            descriptions[clean_name(key)] = own
    return descriptions


def load_templates(name: str, dataset: str | None = None) -> tuple[str, ...]:
    """The templates of a name, each with one `{}` where the class name goes.

    Names are `vanilla`, `clip7`, `clip80`, `ulip64`; `clip` (the mixture of the paper's experiments), `coop` or `dpe`
    (DPE's, beside descriptions), which depend on the dataset and without one are `clip7`, `vanilla` and `clip7`; a .txt
    file with one template per line or a .json file with a list of them; or the one template itself.

    >>> load_templates("clip", "dtd")
    ('{} texture.',)
    >>> len(load_templates("clip")), load_templates("a sketch of a {}.")
    (7, ('a sketch of a {}.',))
    """
    if name in _ENSEMBLES:
        return _ensemble(name)
    if name in _MIXTURES:
        return _ensemble(_MIXTURES[name]) if dataset is None else _of_dataset(name, dataset)
    if "{" in name or "}" in name:
        return require_templates([name])
    if name.endswith((".txt", ".json")):
        with understanding(name, "template file"):
            return _of_file(Path(name))
    raise InvalidParameter(
        f"no templates are called {name!r}; {nearest(name, (*_MIXTURES, *_ENSEMBLES))} (or give a .txt or .json file, "
        "or a template with {} where the class name goes)"
    )


def require_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """The same templates, if each of them has exactly one place for a class name."""
    if isinstance(templates, str):
        raise InvalidParameter(f"templates must be a list of strings; for one template pass [{templates!r}]")
    for template in require_texts("templates", templates):
        if "{}" not in template or template.count("{") != 1 or template.count("}") != 1:
            raise InvalidParameter(
                f"the template {template!r:.60} must contain {{}} exactly once, where the class name goes, "
                "and no other braces"
            )
    return tuple(templates)


def _ensemble(name: str) -> tuple[str, ...]:
    return tuple(packaged_json("templates.json")["ensembles"][name])


def _of_dataset(mixture: str, dataset: str) -> tuple[str, ...]:
    packaged = packaged_json("templates.json")
    ensembles, own = packaged[mixture], packaged["dataset"]
    if dataset in own:
        return (own[dataset],)
    if dataset not in ensembles:
        known = nearest(dataset, sorted({**own, **ensembles}))
        raise InvalidParameter(f"no templates for a dataset {dataset!r}; {known}")
    return _ensemble(ensembles[dataset])


def _of_file(path: Path) -> tuple[str, ...]:
    if path.suffix == ".txt":
        lines = read_text(path, "template", _LARGEST).splitlines()
        templates = [line.strip() for line in lines if line.strip()]
    else:
        templates = read_json(path, "template", _LARGEST)
        if not isinstance(templates, list):
            raise UnreadableFile(f"{path} must hold a JSON list of templates, not {type(templates).__name__}")
    if not templates:
        raise UnreadableFile(f"{path} holds no template")
    with naming(str(path)):
        return require_templates(templates)


def warn_about_names(class_names: Sequence[str], texts: Sequence[Sequence[str]], remark: str | None) -> None:
    """Warn about names that look like a heading or a comment, about classes of the same texts, and of the model's."""
    odd = [name for number, name in enumerate(class_names) if name.startswith("#") or (not number and is_heading(name))]
    if odd:
        told = f"{some_of(odd)} was taken as a class, but looks like the heading of a table, or a comment"
        warnings.warn(f"{told}; remove it if so", DoubtfulClassNames, stacklevel=3)
    names_by_text: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, own in zip(class_names, texts, strict=True):
        names_by_text[tuple(text.casefold() for text in own)].append(clean_name(name))
    if same := [names for names in names_by_text.values() if len(names) > 1]:
        called = some_of([name for names in same for name in dict.fromkeys(names)])
        is_same = all(len(set(names)) == 1 for names in same)
        equal = "are the same" if is_same else "differ at most in case, which most models ignore"
        told = f"several classes are called {called}: their texts {equal}, so zero-shot always predicts the first"
        warnings.warn(f"{told}; give them different names", DuplicateClassNames, stacklevel=3)
    if remark:
        warnings.warn(remark, DoubtfulClassNames, stacklevel=3)


def is_heading(name: str) -> bool:
    """Whether a name is what tables of classes have in their first line.

    >>> [is_heading(name) for name in ("Class name", "id,name", "class_name", "name tag", "cat")]
    [True, True, True, False, False]
    """
    cells = re.split(r"[,;\t]", clean_name(name).casefold())
    return all(_HEADINGS.fullmatch(cell.strip()) for cell in cells)


_KIND = "text anchors"
_TEXTS_AT_ONCE = 1024  # so that progress can be told; the encoder divides further as it likes


class TextEncoder(Model, Protocol):
    """A model with texts."""

    bias: float  # what is added to logits

    @property
    def scale(self) -> float: ...

    def encode_texts(self, texts: Sequence[str]) -> Tensor: ...


def build_classifier(
    encoder: TextEncoder,
    class_names: Sequence[str],
    templates: Sequence[str],
    *,
    descriptions: Mapping[str, Sequence[str]] | None = None,
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    keep_prompts: bool = False,
) -> ZeroShotClassifier:
    """The zero-shot classifier of an encoder for at least two classes, on the CPU; names stay as they are given.

    Each text becomes a unit row; a class's anchor is the direction of the plain mean over its texts. A sentence of the
    descriptions weighs as much as a template. In texts `_` is a blank. Names that are probably a mistake are warned
    about (`DoubtfulClassNames`). Anchors are kept in the folder `cache`, if given. `on_progress` is told how many texts
    of how many are encoded. With `keep_prompts` the classifier also has the features of each class's first P texts, of
    as many as every class has.
    """
    texts = class_texts(class_names, templates, descriptions)
    remark_on = getattr(encoder, "remark_on_names", None)  # not of every model: see `pta.models.packaged.embedded`
    warn_about_names(class_names, texts, None if remark_on is None else remark_on(class_names))
    key = anchors_key(encoder.fingerprint, encoder.dtype, texts)
    anchors = None if cache is None or keep_prompts else read_anchors(cache, key, len(texts))
    bank = None
    if anchors is None:
        encoded, rows = _encode(encoder, texts, on_progress)
        means = [encoded[own].double().mean(dim=0) for own in rows]
        anchors = normalize(torch.stack(means), dim=-1).float()
        if keep_prompts:
            bank = encoded[torch.tensor([own[: min(map(len, rows))] for own in rows])]
        if cache is not None:
            write_anchors(cache, key, anchors)
    how: dict[str, Any] = {"prompts": texts, "prompt_features": bank}
    return ZeroShotClassifier(anchors, class_names, encoder.scale, encoder.bias, **how)


def _encode(
    encoder: TextEncoder, texts: Sequence[Sequence[str]], on_progress: Callable[[int, int], None] | None
) -> tuple[Tensor, list[list[int]]]:
    """The features of the distinct texts, and which of them each class has."""
    distinct = list(dict.fromkeys(text for own in texts for text in own))
    rows = []
    for start in range(0, len(distinct), _TEXTS_AT_ONCE):
        part = distinct[start : start + _TEXTS_AT_ONCE]
        rows.append(normalize(encoder.encode_texts(part).float().cpu(), dim=-1))
        if on_progress:
            on_progress(start + len(part), len(distinct))
    row_of = {text: row for row, text in enumerate(distinct)}
    return torch.cat(rows), [[row_of[text] for text in own] for own in texts]


def anchors_key(fingerprint: str, dtype: torch.dtype, texts: Sequence[Sequence[str]]) -> str:
    """The sha256 of everything that anchors depend on: the model, its precision, and the texts of each class."""
    about = json.dumps([fingerprint, str(dtype), [list(own) for own in texts]])
    return hashlib.sha256(about.encode()).hexdigest()


def read_anchors(folder: Path, key: str, classes: int) -> Tensor | None:
    """The cached anchors of a key, or None."""
    try:
        tensors, about = load_tensors(_place(folder, key), _KIND)
    except (PtaError, OSError):
        return None
    anchors = tensors.get("anchors")
    if anchors is None or about.get("key") != key or anchors.dtype != torch.float32:
        return None
    sound = anchors.ndim == 2 and len(anchors) == classes and bool((anchors.norm(dim=1) - 1).abs().lt(1e-3).all())
    return anchors if sound else None


def write_anchors(folder: Path, key: str, anchors: Tensor) -> None:
    """Cache anchors under a key; if the folder is not writable, nothing is cached."""
    place = _place(folder, key)
    with suppress(PtaError, OSError):
        make_folder(folder, 0o700)  # compiled code is kept in no folder that a group can write to
        place.parent.mkdir(exist_ok=True)
        save_tensors(place, {"anchors": anchors}, {"kind": _KIND, "key": key})


def _place(folder: Path, key: str) -> Path:
    return folder / "anchors" / f"{key}.safetensors"
