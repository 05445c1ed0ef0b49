"""Profile: which datasets stand for the groups that experiments name; one is the paper's, one is for use offline."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

from pta.core.parameters import require_count
from pta.data.catalogue import is_catalogued
from pta.data.features import FeatureFile
from pta.errors import InvalidParameter, require_known
from pta.measure.reproduce.declaration import MOST_SEEDS


@dataclass(frozen=True)
class Profile:
    """Groups of datasets, and what is known about them."""

    comparable: bool  # whether they are the paper's, so that its numbers may stand beside ours
    groups: Mapping[str, tuple[str, ...]]  # the ids of their datasets; names in braces are filled in by rows
    titles: Mapping[str, str]  # of datasets, and of groups and sections where they are not called as in the paper
    absent: Mapping[str, str] = field(
        default_factory=dict
    )  # why it has no data of a kind, whose rows and columns are left out
    stand_ins: Mapping[str, str] = field(default_factory=dict)  # for datasets of a kind; {} is the rest of the id
    data: Mapping[str, str] = field(default_factory=dict)  # what data of a kind are, for a reader
    model: str = ""  # the model that goes with it, if not the user's
    models: Mapping[str, str] = field(default_factory=dict)  # other ones that go with data of a kind
    own: str = ""  # the group that the user's own feature files join
    most_seeds: int | None = None  # how many seeds of an experiment are run, if not all
    views_of: Sequence[str] | None = None  # the datasets that augmented views are made of, if not all

    def members(self, group: str) -> tuple[str, ...]:
        """The datasets of a group."""
        require_known("group of datasets", group, self.groups)
        if not self.groups[group]:
            raise InvalidParameter(f"the group {group!r} is empty; name feature files with --features")
        return self.groups[group]

    def stand_in(self, dataset: str) -> str:
        """The dataset that is taken for one: itself, if no other is.

        >>> [load_profile(name).stand_in("modelnet_c/rotate/2") for name in ("offline", "paper")]
        ['point_shapes/procedural/rotate/2/520', 'modelnet_c/rotate/2']
        """
        kind = kind_of(dataset)
        return self.stand_ins[kind].format(dataset.removeprefix(f"{kind}/")) if kind in self.stand_ins else dataset

    def title(self, dataset: str) -> str:
        """What a dataset's column is called."""
        return self.titles.get(dataset, dataset)


def kind_of(dataset: str) -> str:
    """The first part of a dataset's id, if it has several; a feature file of the user's has a name of one part.

    >>> kind_of("imagenet_c/fog/5"), kind_of("imagenet_c")
    ('imagenet_c', '')
    """
    return dataset.split("/")[0] if "/" in dataset else ""


@cache
def load_profile(name: str) -> Profile:
    """The profile of that name, read once; whoever asks shares it, so nobody may change it.

    >>> load_profile("paper").title("oxford_flowers"), load_profile("offline").comparable
    ('Flowers', False)
    """
    text = (resources.files("pta") / "assets" / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    groups, titles = content.pop("groups"), content.pop("titles", {})
    for members in groups.values():
        titles |= members if isinstance(members, dict) else {}  # a title for each, or ids alone
    return Profile(groups={group: tuple(members) for group, members in groups.items()}, titles=titles, **content)


def profile_with(own: Sequence[FeatureFile], *, offline: bool, most_seeds: int | None = None) -> Profile:
    """The offline profile joined by the user's feature files, or the paper's, whose datasets they must then be of.

    >>> profile = profile_with([], offline=True, most_seeds=2)
    >>> profile.comparable, profile.most_seeds
    (False, 2)
    """
    profile = load_profile("offline" if offline else "paper")
    names = [one.name if offline else one.dataset for one in own]
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"two feature files are of {name}")
        if not offline and not is_catalogued(name):
            raise InvalidParameter(f"{name} is not one of the paper's datasets; --offline runs the experiments on it")
    joined = {"own": tuple(names), profile.own: (*profile.groups[profile.own], *names)} if offline else {}
    most = profile.most_seeds if most_seeds is None else require_count("most_seeds", most_seeds, 1, MOST_SEEDS)
    return replace(profile, groups={**profile.groups, **joined}, most_seeds=most)
