"""The model hub, and the libraries that read model files: whatever they raise becomes one line."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pta.door.foreign import in_words
from pta.errors import MachineFailure, PtaError, UnavailableModel, family, first_line

SECONDS = 10  # the hub's own client asks six times, over half a minute and aloud, when there is no network


class MissingFiles(UnavailableModel):
    """A file of a model is missing or damaged, so it may be worth fetching."""


def in_one_line(
    say: Callable[[str], str], refusal: type[UnavailableModel] = UnavailableModel
) -> AbstractContextManager[None]:
    """Turn any error of the block into what is said about its first line, unless the machine failed."""

    def said(error: Exception) -> PtaError:
        return family(error, refusal)(say(str(error) if isinstance(error, PtaError) else first_line(error)))

    return in_words(said, passing=MachineFailure)


def hub_folder(repository: str, **which: Any) -> Path:
    """The folder of a repository in the hub's cache, with those files fetched that are asked for; others may lack."""
    from huggingface_hub import snapshot_download

    with in_one_line(lambda said: f"{repository} could not be fetched: {said}", MissingFiles):
        return Path(snapshot_download(repository, **which))


def require_reachable(repository: str, *, model: str, instead: str) -> None:
    """Refuse, within seconds, a model whose repository is not available; `instead` is the local form of its name."""
    from huggingface_hub import HfApi

    def said(error: Exception) -> UnavailableModel:  # whatever the HTTP library of the day raises without a network
        lacking = f"{model} is not on this machine and could not be fetched ({_why_not(error)})"
        return UnavailableModel(f"{lacking}; give a local {instead}, or try --model embedded (it knows clothing only)")

    with in_words(said):
        HfApi().model_info(repository, timeout=SECONDS)


def asking_hub(what: str) -> AbstractContextManager[None]:
    """Turn errors of the hub's client into one line that begins with what was not done."""
    return in_words(lambda error: UnavailableModel(f"{what}: {_why_not(error)}"))


def _why_not(error: Exception) -> str:
    """Why the hub, asked by its client, has not done something."""
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    if isinstance(error, errors.GatedRepoError):
        return "its licence must be accepted on the hub first"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub knows no such model, or it is private"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repository has no such revision"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.LocalTokenNotFoundError) or status in (401, 403):
        return "the hub wants a token with the right to do this: run hf auth login, or give token="
    if isinstance(error, errors.HfHubHTTPError):
        return f"the hub says: {first_line(error)}"
    return "the hub cannot be reached"
