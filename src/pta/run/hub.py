"""A classifier as a repository of the Hugging Face Hub, by huggingface_hub's `ModelHubMixin`.

A repository comes from strangers: its revision is fixed and the sizes of its files are checked before anything is
fetched, two files are read, and their contents must agree before a model is loaded. Names of files and places never
come from it.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from huggingface_hub import HfApi, ModelHubMixin, hf_hub_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from pta.core.parameters import require_switch
from pta.data.prompts import clean_name
from pta.door.files import as_path, is_path, load_tensors, unpack_tensors, write_atomically
from pta.door.weights.hub import SECONDS, MissingFiles, asking_hub, in_one_line
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile, explaining, naming, nearest, shown
from pta.methods import Adapter, Origin, adapter_class
from pta.methods.state_file import load_state
from pta.models import Encoder
from pta.run.hub_card import card
from pta.run.hub_config import HubConfig, require_model_of_the_hub

CONFIG, STATE, CARD = "config.json", "state.safetensors", "README.md"
_LARGEST = {CONFIG: 16 * 2**20, STATE: 2**30}  # bytes
_FROM_CONFIG = {"model", "classes", "templates", "descriptions", "method", "parameters"}
_NOT_SENT = "not sent: samples, their names, paths, sources and labels, thumbnails, the stream's record, the monitor"


class DifferentModel(UserWarning):
    """The model has the texts' features that the state was learned with, but is not exactly the same."""


class Shared(Protocol):
    """What of a classifier goes to the hub and comes back: `pta.Classifier` has it."""

    encoder: Encoder
    adapter: Adapter
    model_name: str | None
    templates: Sequence[str]
    descriptions: Mapping[str, Sequence[str]] | None
    origin: str | None

    @property
    def classes(self) -> Sequence[str]: ...

    def load(self, path: Path) -> object: ...


class HubModel(ModelHubMixin):  # type: ignore[misc]  # huggingface_hub is optional and has no types here
    """A classifier with the interface of the mixin."""

    def __init__(self, classifier: Shared, repository: str = "OWNER/NAME") -> None:
        self.classifier, self.repository = classifier, repository

    # -- from the hub -------------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        kind: Callable[..., Shared],
        model: str | Encoder | None,
        options: Mapping[str, Any],
        **where: Any,
    ) -> Self:
        """In the place of the mixin's, which would fetch and read a file of any size and content."""
        known = inspect.signature(kind).parameters.keys() - _FROM_CONFIG
        for option in options:
            if option in _FROM_CONFIG:
                raise InvalidParameter(f"the repository has its own {option}; make pta.Classifier(…) to choose others")
            if option not in known:
                raise InvalidParameter(f"from_pretrained has no option {shown(option)}; {nearest(option, known)}")
        is_folder = is_path(name) and Path(name).expanduser().is_dir()
        if is_folder and where["revision"] is not None:
            raise InvalidParameter(f"{name} is a folder and has no revisions; leave revision out")
        folder = Path(name).expanduser() if is_folder else _fetched(name, **where)
        for file in _LARGEST:
            _require_small(str(name), file, (folder / file).stat().st_size if (folder / file).is_file() else None)
        with naming(f"{name}: {CONFIG}"):
            config = HubConfig.read(folder / CONFIG)
        with naming(str(name)):
            _require_agreement(folder / STATE, config)
            texts = {"templates": config.templates, "descriptions": config.descriptions}
            how: dict[str, Any] = {**texts, "method": config.method, **options, **config.parameters}
            classifier = kind(model or config.model, config.classes, **how)
            classifier.load(folder / STATE)
        if classifier.encoder.fingerprint == config.model_fingerprint:
            classifier.model_name = config.model  # also where the caller gave it as a folder
        else:
            told = f"{name}: {model or config.model} is not exactly the model that the state was learned with"
            warnings.warn(told, DifferentModel, stacklevel=3)
        classifier.origin = None if is_folder else f"{name}@{folder.name}"
        return cls(classifier, str(name))

    # -- to the hub ---------------------------------------------------------------------------------------------------

    def send(
        self, *, dry_run: bool, show: Callable[[str], object], private: bool, token: str | None, **how: Any
    ) -> Any:
        """Show what will be sent, and send it, unless it is a dry run."""
        _require_name(self.repository, "not OWNER/NAME")
        require_switch("dry_run", dry_run)
        require_switch("private", private)
        files = self.files
        show(f"{self.repository} ({'private' if private else 'public'}):")
        for name, content in files.items():
            show(f"  {name}: {len(content):,} bytes")
        show(f"  with names, templates and descriptions of {len(self.classifier.classes):,} classes")
        show(_NOT_SENT)
        if dry_run:
            return None
        with asking_hub(f"{self.repository} was not sent"):
            if private:
                self._require_not_public(token)
            return self.push_to_hub(self.repository, private=private, token=token, **how).commit_url

    def _save_pretrained(self, folder: Path) -> None:
        for name, content in self.files.items():
            write_atomically(folder / name, content)

    def save_pretrained(self, folder: str | Path, **how: Any) -> Any:
        """The mixin's, with errors of one line."""
        with explaining(f"cannot write {folder}"):
            place, names = as_path(folder), list(self.files)  # or refused, before the folder is made
            if not (place / STATE).exists() and (other := next((one for one in names if (place / one).exists()), None)):
                raise InvalidParameter(f"{folder} has a {other} of something else; give another folder")
            return super().save_pretrained(place, **how)

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What a repository consists of, by name. The record of the stream and the monitor are left out."""
        classifier = self.classifier
        named = classifier.model_name
        if named is None:
            raise InvalidParameter("others cannot load a model object; make the classifier with a model's name")
        with naming("others cannot load this model"):
            require_model_of_the_hub(named)
        state = classifier.adapter.to_bytes()
        about = unpack_tensors(state, "state")[1]
        names = set(map(clean_name, about["class_names"]))
        described = classifier.descriptions or {}
        config = HubConfig(
            model=named,
            model_fingerprint=classifier.encoder.fingerprint,
            classes=about["class_names"],
            templates=list(classifier.templates),
            descriptions={name: list(own) for name, own in described.items() if clean_name(name) in names} or None,
            method=about["method"],
            parameters=about["parameters"],
            continued_from=classifier.origin,
        )
        text = card(classifier.adapter, config, self.repository).encode()
        files = {STATE: state, CONFIG: config.content(), CARD: text}
        for name in _LARGEST:
            _require_small("this classifier", name, len(files[name]))
        return files

    def _require_not_public(self, token: str | None) -> None:
        """The mixin would send to an existing repository whether or not it is private."""
        try:
            found = HfApi(token=token).model_info(self.repository, timeout=SECONDS)
        except RepositoryNotFoundError:
            return
        if not found.private:
            raise InvalidParameter(f"{self.repository} is public; give private=False to send there nevertheless")


def _fetched(name: object, *, revision: str | None, token: Any, local_files_only: bool, **how: Any) -> Path:
    """The folder of the hub's cache with the two files at one revision, whose sizes were checked before."""
    _require_name(name)
    with asking_hub(f"{name} could not be fetched"):
        if not local_files_only:
            about = HfApi(token=token).model_info(name, revision=revision, files_metadata=True, timeout=SECONDS)
            sizes = {one.rfilename: one.size or 0 for one in about.siblings or []}
            for file in _LARGEST:
                _require_small(str(name), file, sizes.get(file))
            revision = about.sha
        where = {"revision": revision, "token": token, "local_files_only": local_files_only, **how}
        with in_one_line(lambda said: f"{name} could not be fetched: {said}", MissingFiles):
            config, state = (Path(hf_hub_download(str(name), file, **where)) for file in (CONFIG, STATE))
    if config.parent != state.parent:
        raise UnreadableFile(f"{name}: its files in the cache are of several revisions; give revision=COMMIT")
    return config.parent


def _require_name(name: object, what: str = "neither a folder here nor OWNER/NAME") -> None:
    try:
        if not isinstance(name, str) or "/" not in name:
            raise HFValidationError
        validate_repo_id(name)
    except HFValidationError:
        advice = "" if not str(name).endswith(".safetensors") else "; Classifier.load reads a file with a state"
        raise InvalidParameter(f"{shown(name)} is {what} on the hub{advice}") from None


def _require_small(name: str, file: str, size: int | None) -> None:
    if size is None:
        raise UnreadableFile(f"{name} has no {file}: it was not written by push_to_hub of pta")
    if size > _LARGEST[file]:
        raise UnreadableFile(f"{name}: {file} has {size:,} bytes; at most {_LARGEST[file]:,} are read")


def _require_agreement(state: Path, config: HubConfig) -> None:
    """Refuse a state of other classes, method or parameters, or whose parameters ask for more memory than it has."""
    about = load_tensors(state, "state", only=[])[1]
    agreed = {"class_names": config.classes, "method": config.method, "parameters": config.parameters}
    for name, expected in agreed.items():
        if about.get(name) != expected:
            raise StateMismatch(f"{STATE} has other {name} than {CONFIG}")
    snapshot = load_state(state, None, None)
    method = adapter_class(config.method)
    if about.get("model") is None:  # no tower is needed; on the device meta, tensors have a size and no memory
        classifier = snapshot.classifier.to(device=torch.device("meta"))
        given = method.with_former(config.parameters, config.parameters)
        asked = method(classifier, checked=method.complete(given, Origin(classifier))).state_bytes
        if asked > state.stat().st_size:
            raise StateMismatch(f"the parameters ask for a state of {asked:,} bytes, more than {STATE} has")
