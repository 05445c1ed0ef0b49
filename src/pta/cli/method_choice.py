"""Which methods to run on a feature file, and with which parameters: `--method`, `--set` and `--preset`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pta.cli.messages import say
from pta.core.towers import Model
from pta.data.features import FeatureFile
from pta.errors import InvalidParameter, PtaError
from pta.measure.evaluate import require_same_model
from pta.methods import adapter_class, create_adapter, list_adapters, needs_model
from pta.methods.registry import depends_on_dataset, load_preset, require_preset
from pta.models import check_model, load_encoder

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


def around(prior: str | None, calibration: str | None) -> dict[str, str]:
    """The parameters of `--prior` and `--calibration`, if they were given."""
    given = {"prior": prior, "calibration": calibration}
    return {name: value for name, value in given.items() if value is not None}


def parameters_of(method: str, settings: Sequence[str], prior: str | None, calibration: str | None) -> dict[str, Any]:
    """The parameters of the only method of a command, from `--set`, `--prior` and `--calibration`; checked."""
    parameters: dict[str, Any] = around(prior, calibration)
    for owner, name, value in map(parse_setting, settings):
        if owner != method:
            raise InvalidParameter(f"--set {owner}.{name}: the method is {method}")
        parameters[name] = value
    adapter_class(method).require_parameters(parameters)
    return parameters


def parse_setting(setting: str) -> tuple[str, str, Any]:
    """METHOD.NAME=VALUE in its parts; values are JSON, or strings where they are not."""
    target, equals, value = setting.partition("=")
    owner, dot, name = target.partition(".")
    if not (equals and dot and owner and name and value):
        raise InvalidParameter(f"--set {setting}: expected METHOD.NAME=VALUE, for example pta.h=50")
    try:
        return owner, name, json.loads(value.lower() if value in ("True", "False") else value)
    except (ValueError, RecursionError):
        return owner, name, value
