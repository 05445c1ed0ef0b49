"""The `config.json` of a classifier on the hub: a model of the hub or a packaged one, classes, texts, a method.

It comes from strangers. It can name no file, no address, no code and no option of this machine.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pta.core.parameters import require_mapping, require_text, require_texts
from pta.door.files import exists, read_json
from pta.door.safe_text import to_json
from pta.errors import InvalidParameter, nearest, shown
from pta.methods import adapter_class

_FORMAT = 1
_LARGEST = 16 * 2**20  # bytes; the names of 20,000 classes take 1 MiB
_MOST_TEXTS = 2**21  # 20,000 classes with 100 templates
_PACKAGED = ("embedded", "embedded-points")
_WORD = r"[A-Za-z0-9][\w.-]*"
_OF_THE_HUB = re.compile(rf"hf:({_WORD}/{_WORD})|openclip:hf-hub:{_WORD}/{_WORD}|openclip:{_WORD}/({_WORD})", re.ASCII)


@dataclass(frozen=True)
class HubConfig:
    """What `config.json` says."""

    model: str  # as `pta.models.load_encoder` takes it
    model_fingerprint: str  # of the encoder that the state was learned with
    classes: list[str]
    templates: list[str]
    method: str
    parameters: dict[str, Any]
    descriptions: dict[str, list[str]] | None = None
    continued_from: str | None = None  # the repository and revision whose state was loaded before learning went on
    format: int = _FORMAT

    def __post_init__(self) -> None:
        require_model_of_the_hub(self.model)
        for name in ("model_fingerprint", "continued_from"):
            require_text(name, getattr(self, name) or "")
        require_texts("classes", self.classes)
        require_texts("templates", self.templates)
        for name, sentences in require_mapping("descriptions", self.descriptions or {}).items():
            require_texts(f"the description of {shown(name)}", sentences)
        texts = len(self.classes) * len(self.templates) + sum(map(len, (self.descriptions or {}).values()))
        if texts > _MOST_TEXTS:
            raise InvalidParameter(f"{texts:,} texts of classes; at most {_MOST_TEXTS:,} are encoded")
        known = adapter_class(require_text("method", self.method)).declared
        for name in require_mapping("parameters", self.parameters):
            if name not in known:  # so that none can be an option of `pta.Classifier`
                raise InvalidParameter(f"{self.method} has no parameter {shown(name)}; {nearest(name, known)}")

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file."""
        said = read_json(path, "configuration", _LARGEST)
        if not isinstance(said, dict):
            raise InvalidParameter("it is not a JSON object")
        if said.get("format") != _FORMAT:
            found = shown(said.get("format"))
            raise InvalidParameter(f"it has format {found}; this version of pta reads {_FORMAT}, from push_to_hub")
        fields = cls.__dataclass_fields__
        if unknown := said.keys() - fields.keys():
            raise InvalidParameter(f"it has {shown(min(unknown))}, which pta does not read")
        if lacking := {"model", "model_fingerprint", "classes", "templates", "method", "parameters"} - said.keys():
            raise InvalidParameter(f"it has no {min(lacking)}")
        return cls(**said)

    def content(self) -> bytes:
        """The content of the file."""
        return (to_json({name: value for name, value in asdict(self).items() if value is not None}, 1) + "\n").encode()


def require_model_of_the_hub(name: object) -> None:
    """Refuse a model that is neither packaged nor of the hub: a path, an address, a model of a plugin."""
    if name in _PACKAGED:
        return
    found = _OF_THE_HUB.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        known = f"{' or '.join(_PACKAGED)}, hf:OWNER/NAME or openclip:ARCHITECTURE/TAG"
        raise InvalidParameter(f"the model {shown(name)} is neither packaged nor of the hub: {known}")
    local = found[1] or found[2]  # where the loader of this kind of model would look first
    if local and exists(Path(local)):
        raise InvalidParameter(f"{shown(name)} is of the hub, but {local} is also here; call this in another folder")
