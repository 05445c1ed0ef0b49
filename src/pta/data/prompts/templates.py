"""Prompt templates: those that ship with the package, by name, and a user's own."""

from collections.abc import Sequence
from pathlib import Path

from pta.core.parameters import require_text, require_texts
from pta.door.files import packaged_json, read_json, read_text, understanding
from pta.errors import InvalidParameter, UnreadableFile, naming, nearest

_ENSEMBLES = ("vanilla", "clip7", "clip80", "ulip64")
_MIXTURES = {"clip": "clip7", "coop": "vanilla", "dpe": "clip7"}  # what each is for classes of no known dataset
_LARGEST = 2**20


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
    if require_text("the name of templates", name) in _ENSEMBLES:
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
    if require_text("the name of a dataset", dataset) in own:
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
