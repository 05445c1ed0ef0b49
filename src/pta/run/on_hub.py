"""What `pta.Classifier` offers of the Hugging Face Hub. The hub's client is imported when one of these is called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pta.errors import MissingPackage, how_to_install


class OnHub:
    """The methods of huggingface_hub's `ModelHubMixin`, which `pta.run.hub` has behind them.

    The mixin itself is no base class here, because `pta.Classifier` must exist without huggingface_hub, and because it
    would hand every entry of a stranger's config.json to the constructor.
    """

    origin: str | None = None
    """The repository and the revision of the state that `from_pretrained` loaded: OWNER/NAME@COMMIT."""

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        model: Any = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        **options: Any,
    ) -> Self:
        """A classifier from a repository of the hub, OWNER/NAME, or from a folder of `save_pretrained`.

        Only `config.json` and `state.safetensors` are read, and no code is run. `model` takes the place of the model
        that the repository names; it must give the same features. The options are those of `pta.Classifier`.
        """
        where = {"revision": revision, "token": token, "cache_dir": cache_dir}
        where |= {"local_files_only": local_files_only, "force_download": force_download}
        return _hub_model().from_pretrained(name, kind=cls, model=model, options=options, **where).classifier

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what `push_to_hub` would send: `config.json`, `state.safetensors` and `README.md`."""
        _hub_model()(self).save_pretrained(folder)

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool = True,
        token: str | None = None,
        dry_run: bool = False,
        commit_message: str = "Update the state",
        branch: str | None = None,
        create_pr: bool | None = None,
        show: Callable[[str], object] = print,
    ) -> str | None:
        """Show what will be sent, and send it to a repository of the hub, which is made if there is none.

        Sent are the state, names and texts of the classes, method, parameters, the name of the model, and a card. Not
        sent are samples, their names, paths, sources and labels, thumbnails, the record of the stream and the monitor.
        With `dry_run` nothing is sent. Returns the address of the commit.
        """
        how = {"private": private, "token": token, "branch": branch, "create_pr": create_pr}
        return _hub_model()(self, repository).send(dry_run=dry_run, show=show, commit_message=commit_message, **how)


def _hub_model() -> Any:
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise MissingPackage(f"the hub needs huggingface_hub; {how_to_install('hf')}") from None
    from pta.run.hub import HubModel

    return HubModel
