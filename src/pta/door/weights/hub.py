"""The model hub, and the libraries that read model files: whatever they raise becomes one line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pta.errors import MachineFailure, PtaError, UnavailableModel, family, first_line

_SECONDS = 10  # the hub's own client asks six times, over half a minute and aloud, when there is no network


class MissingFiles(UnavailableModel):
    """A file of a model is missing or damaged, so it may be worth fetching."""


@contextmanager
def in_one_line(say: Callable[[str], str], refusal: type[UnavailableModel] = UnavailableModel) -> Iterator[None]:
    """Turn any error of the block into what is said about its first line, unless the machine failed.

    Libraries raise whatever they like.
    """
    try:
        yield
    except MachineFailure:
        raise
    except Exception as error:
        said = str(error) if isinstance(error, PtaError) else first_line(error)
        raise family(error, refusal)(say(said)) from None


def hub_folder(repository: str, **which: Any) -> Path:
    """The folder of a repository in the hub's cache, with those files fetched that are asked for; others may lack."""
    from huggingface_hub import snapshot_download

    with in_one_line(lambda said: f"{repository} could not be fetched: {said}", MissingFiles):
        return Path(snapshot_download(repository, **which))


def require_reachable(repository: str, *, model: str, instead: str) -> None:
    """Refuse, within seconds, a model whose repository is not available; `instead` is the local form of its name."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().model_info(repository, timeout=_SECONDS)
        return
    except OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set"
    except GatedRepoError:
        reason = "its licence must be accepted on the hub first"
    except RepositoryNotFoundError:
        reason = "the hub knows no such model, or it is private"
    except HfHubHTTPError as error:
        reason = f"the hub says: {first_line(error)}"
    except Exception:  # whatever the HTTP library of the day raises without a network
        reason = "the hub cannot be reached"
    raise UnavailableModel(
        f"{model} is not on this machine and could not be fetched ({reason}); give a local {instead}, "
        "or try --model embedded (it knows clothing only)"
    )
