"""Commands whose options are declared elsewhere: in a table, or in dataclasses that group them."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., None]
Parameters = dict[str, tuple[Any, Any]]
"""For each parameter its annotation and its default, which is `...` where there is none."""


def with_parameters(function: Command, parameters: Parameters) -> Command:
    """The function, which is called with names, as typer is to see it."""
    declared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is ... else default, annotation=kind)
        for name, (kind, default) in parameters.items()
    ]
    function.__signature__ = Signature(declared)  # type: ignore[attr-defined]
    return function


def with_groups(function: Command) -> Command:
    """A command whose parameters are options, or dataclasses whose fields are options."""
    kinds = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    parameters: Parameters = {}
    for name, parameter in signature(function).parameters.items():
        if name not in groups:
            parameters[name] = kinds[name], ... if parameter.default is Parameter.empty else parameter.default
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        for one in fields(groups[name]):
            parameters[one.name] = hints[one.name], ... if one.default is MISSING else one.default

    @wraps(function)
    def call(**given: Any) -> None:
        filled = {
            name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()
        }
        function(**given, **filled)

    return with_parameters(call, parameters)
