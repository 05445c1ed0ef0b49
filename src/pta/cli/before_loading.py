"""The model and the classes of a command, checked before the model is loaded."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from pta.cli.messages import detail, say
from pta.core.classifier import ZeroShotClassifier
from pta.core.modality import Modality
from pta.data.prompts import build_classifier, class_texts, default_cache, load_descriptions, load_templates
from pta.door.files import exists, read_text
from pta.errors import InvalidParameter, UnreadableFile, shown
from pta.models import Encoder, check_model, load_encoder


@dataclass(frozen=True)
class NamedModel:
    """A model that is loaded when it is first used. A wrong name, device or precision is refused at once."""

    name: str
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _ = self._declared

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded; suggests half precision on a GPU."""
        encoder = load_encoder(self.name, device=self.device, dtype=self.dtype)
        on = f"{encoder.device}, {self.dtype}, {encoder.dim} dimensions"
        detail(f"model {self.name}: {encoder.architecture}, {on}, fingerprint {encoder.fingerprint[:12]}")
        if encoder.device.type == "cuda" and encoder.dtype == torch.float32:
            say("--dtype float16 is several times as fast on a GPU; features differ in the fourth digit")
        return encoder

    @property
    def modality(self) -> Modality:
        """What the model reads; that of a plugin is loaded for it."""
        return self._declared or self.encoder.modality

    @cached_property
    def _declared(self) -> Modality | None:
        return check_model(self.name, device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class ClassTexts:
    """The classes of a command with the templates and sentences that describe them."""

    names: Sequence[str]
    templates: Sequence[str]
    descriptions: Mapping[str, Sequence[str]] | None

    @classmethod
    def read(cls, names: Sequence[str], templates: str, descriptions: Path | None, dataset: str | None) -> "ClassTexts":
        """Read and check them, which needs no model; `dataset` is the one whose templates are used by default."""
        sentences = None if descriptions is None else load_descriptions(descriptions)
        own = cls(names, load_templates(templates, dataset), sentences)
        class_texts(own.names, own.templates, own.descriptions)
        return own

    def classifier(self, encoder: Encoder, on_progress: Callable[[int, int], None] | None = None) -> ZeroShotClassifier:
        """The zero-shot classifier of a model for these classes."""
        how: dict[str, Any] = {"descriptions": self.descriptions, "cache": default_cache(), "on_progress": on_progress}
        return build_classifier(encoder, self.names, self.templates, **how)


_OTHER_FORMATS = (".json", ".yaml", ".yml", ".toml", ".xml")
_MARKED = re.compile(r"""[-*•]\s|["'].*["'],?$|.*[,;]$""")  # of a list with bullets, quotes, or commas at the ends
_LARGEST = 16 * 2**20  # bytes


def read_classes(given: str | None) -> list[str]:
    """The names of two or more classes, which are unique: from a file with one per line, or from a list with commas.

    In a file, lines that begin with # are comments.
    """
    if given is None:
        raise InvalidParameter(
            "--classes is required: a file with one name per line, or a list, e.g. --classes cat,dog,bird"
        )
    place = Path(given)
    if exists(place) and place.is_dir():
        listed = f"ls {shlex.quote(given)} > classes.txt"
        raise UnreadableFile(f"--classes {given} is a folder; it takes a file with one name per line: {listed}")
    if exists(place):
        lines = read_text(place, "class name", _LARGEST).splitlines()
        _require_bare_names(given, lines)
        names = [line for line in lines if not _is_comment(line)]
        if comments := len(lines) - len(names):
            say(f"{given}: lines that begin with # are comments, not classes ({comments:,} left out)")
    elif "," in given:
        if '"' in given:
            raise InvalidParameter(f"--classes {given}: quotes do not join a name; put names with commas into a file")
        names = given.split(",")
    else:
        more = "a list has two or more classes with commas between them: --classes cat,dog"
        raise UnreadableFile(f"no such file of class names: {given}; {more}")
    names = [name.strip() for name in names if name.strip()]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InvalidParameter(f"--classes names {shown(', '.join(twice))} more than once; class names must be unique")
    if len(names) < 2:
        raise InvalidParameter(f"--classes {given} names {len(names)}, but two or more classes are needed")
    return names


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _require_bare_names(file: str, lines: Sequence[str]) -> None:
    """Refuse a table, a list with marks or another format where there should be one name per line."""
    if Path(file).suffix.lower() in _OTHER_FORMATS:
        raise UnreadableFile(f"--classes {file}: write one class name per line into a text file")
    bare = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip() and not _is_comment(line)}
    if len(bare) == 1 and "," in next(iter(bare.values())):
        raise UnreadableFile(f"{file} has one line with commas; write one class name per line")
    for number, line in bare.items():
        if "\t" in line:
            raise UnreadableFile(f"{file}, line {number} has a tab; {_only_names(file, 'cut -f2')}")
    if len(bare) > 1 and all(re.match(r"\d+\s*,", line) for line in [*bare.values()][1:]):  # the first may be a heading
        raise UnreadableFile(f"{file} has numbers before its names; {_only_names(file, 'cut -d, -f2')}")
    if bare and (all(map(_MARKED.match, bare.values())) or _is_counted([*bare.values()])):
        number, line = next(iter(bare.items()))
        raise UnreadableFile(
            f"{file}, line {number}: {shown(line)} is more than a name; write only names, one per line"
        )


def _is_counted(lines: Sequence[str]) -> bool:
    """Whether every line begins with its number, counted from 0 or 1.

    >>> _is_counted(["0 cat", "1 dog"]), _is_counted(["1 cent", "10 cent"])
    (True, False)
    """
    numbers = [int(found[1]) for line in lines if (found := re.match(r"(\d{1,9})[.:)]?\s", line))]
    return numbers in ([*range(len(lines))], [*range(1, len(lines) + 1)])


def _only_names(file: str, cut: str) -> str:
    return f"write only names, one per line, e.g. {cut} {shlex.quote(file)} > classes.txt"
