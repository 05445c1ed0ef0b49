"""Checks within seconds whether the model hub can be reached, before anything is downloaded."""

from pta.errors import UnavailableModel, first_line

_SECONDS = 10  # the hub's own client asks six times, over half a minute and aloud, when there is no network


def require_reachable(repository: str, *, model: str, instead: str) -> None:
    """Refuse a model whose hub repository is not available; `instead` is the local form of its name."""
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
