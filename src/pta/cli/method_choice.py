"""Feature files, and which methods to run on them with which parameters: `--method`, `--set` and `--preset`."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pta.cli.messages import say
from pta.cli.options import parse_setting
from pta.core.towers import Model
from pta.data.features import FeatureFile, is_feature_folder, load_features
from pta.errors import InvalidParameter, PtaError, UnreadableFile
from pta.measure.evaluate import require_same_model
from pta.methods import adapter_class, create_adapter, list_adapters, needs_model
from pta.methods.registry import depends_on_dataset, load_preset, require_preset
from pta.models import check_model, find_device, load_encoder

Methods = dict[str, dict[str, Any]]  # name → parameters
ALL = "all"


@dataclass
class MethodChoice:
    """The methods and parameters that the user chose."""

    asked: Sequence[str]  # names of methods, or `all` for those whose inputs a file has
    settings: Sequence[str] = ()  # METHOD.NAME=VALUE, each for one of these methods
    preset: str | None = None  # NAME, or NAME/DATASET for the values of another dataset
    model: str | None = None  # loaded only if a method needs one of its towers
    device: str = "cpu"  # of the model
    of_all: Mapping[str, Any] = field(default_factory=dict)  # parameters of every method
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        every = [name for one in self.asked for name in (list_adapters() if one == ALL else [one])]
        self.names = [adapter_class(name).name for name in dict.fromkeys(every)]
        for setting in self.settings:
            owner, name, value = parse_setting(setting)
            if adapter_class(owner).name not in self.names:
                raise InvalidParameter(f"--set {setting}: {owner} is not among the methods {', '.join(self.names)}")
            adapter_class(owner).require_parameters({name: value})
        for name in self.asked:
            if name != ALL:
                adapter_class(name).require_parameters(self.of_all)
        if self.model is not None and any(needs_model(name, self._own(name)) for name in self.names):
            check_model(self.model, device=self.device)
        if self.preset is not None:
            require_preset(*self.preset.split("/", 1))

    def model_for(self, methods: Methods) -> Model | None:
        """The model, if one was named and a method needs one of its towers."""
        return self._model if any(needs_model(*one) for one in methods.items()) else None

    @cached_property
    def _model(self) -> Model | None:
        return None if self.model is None else load_encoder(self.model, device=self.device)

    def for_file(self, data: FeatureFile) -> Methods:
        """The methods with their parameters. Each is created once for the file, so that mistakes are found early."""
        preset = self._preset_values(data)
        chosen = {}
        for name in self.names:
            own = self._own(name)
            parameters = {**preset.get(name, {}), **self.of_all, **own}
            try:
                model = self.model_for({name: parameters})
                create_adapter(name, data.classifier, model=model, source=data.samples, **parameters)
                if model is not None:
                    require_same_model(model, data)
            except PtaError as error:
                if name in self.asked or own:
                    raise type(error)(f"{data.name}: {error}") from None
                say(f"{data.name}: skipping {name}: {error}")
                continue
            chosen[name] = parameters
        return chosen

    def _own(self, name: str) -> dict[str, Any]:
        """The parameters of a method that `--set` gives."""
        return {key: value for owner, key, value in map(parse_setting, self.settings) if owner == name}

    def _preset_values(self, data: FeatureFile) -> Mapping[str, Mapping[str, Any]]:
        if self.preset is None:
            return {}
        preset, _, other = self.preset.partition("/")
        found = {
            name: load_preset(name, preset, other or data.dataset) for name in self.names if depends_on_dataset(name)
        }
        missing = [name for name, values in found.items() if values is None]
        if missing:
            hint = "" if other else f" (--preset {preset}/DATASET takes the values of another)"
            say(f"no preset {preset!r} for {other or data.dataset} and {', '.join(missing)}: defaults are used{hint}")
        return {name: values for name, values in found.items() if values is not None}


_SUFFIXES = (".npz", ".safetensors")


def open_features(places: Sequence[Path], device: str) -> list[FeatureFile]:
    """Load feature files, also those in folders, onto a device; names must be unique."""
    on = find_device(device)
    files = [replace(data, classifier=data.classifier.to(device=on)) for data in map(load_features, _files(places))]
    for name, count in Counter(data.name for data in files).items():
        if count > 1:
            raise InvalidParameter(f"two feature files are called {name}; names must be unique")
    return files


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if is_feature_folder(place):
            yield place
            continue
        inside = sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES) if place.is_dir() else [place]
        if not inside:
            todo = f"make one with pta extract {shlex.quote(str(place))} --out FILE.safetensors"
            raise UnreadableFile(f"no feature files ({', '.join(_SUFFIXES)}) in {place}; {todo}")
        yield from inside
