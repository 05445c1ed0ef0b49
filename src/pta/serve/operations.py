"""The operations on a stream: routes, client, commands, OpenAPI document and docs/serve.md follow from this table.

What an operation does is a method of `streams.operating.Operating`, and which rows are in force after it is said in
`streams.history`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

LABELS = list[dict[str, Any]]
"""What samples are: each by `sequence`, or by `id` and `place`, with the name of a class or null as its `label`."""
_FEW_LABELS = {"minItems": 1, "maxItems": 4096}  # in one request


@dataclass(frozen=True)
class Argument:
    """What an operation is told."""

    name: str  # in the body of a request and in a call of the client
    kind: Any  # the type; bytes are the whole body of a request, and a file of the command
    help: str
    option: str = ""  # of the command, where it has another name; one without -- is given by its place
    required: bool = False
    choices: tuple[str, ...] = ()  # of a text
    bounds: Mapping[str, float] = field(default_factory=dict)  # as JSON Schema names them

    def accepts(self, value: Any) -> bool:
        """Whether a value of JSON is of its kind and within its bounds."""
        fits = type(value) is self.kind or (self.kind is float and type(value) is int)
        if get_origin(self.kind) is list:
            (kind,) = get_args(self.kind)
            kind = get_origin(kind) or kind
            fits = type(value) is list and all(type(one) is kind for one in value)
        if self.choices:
            return fits and value in self.choices
        size = len(value) if fits and isinstance(value, str | list) else value
        return fits and all(
            size >= bound if name.startswith("min") else size <= bound for name, bound in self.bounds.items()
        )


@dataclass(frozen=True)
class StreamOperation:
    """A change of one stream, which counts the samples concerned before anything else."""

    name: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    exactly_one: bool = False  # of the arguments is given
    confirm: bool = True  # whether the command asks first
    method: str = "POST"

    @property
    def path(self) -> str:
        """Its route."""
        return "/streams/{name}" + (f"/{self.name}" if self.method == "POST" else "")

    @property
    def takes_file(self) -> bool:
        """Whether the body of a request is the content of a file."""
        return any(argument.kind is bytes for argument in self.arguments)

    @property
    def takes_labels(self) -> bool:
        """Whether it is told of many samples; its command has options or a file for them."""
        return any(argument.kind == LABELS for argument in self.arguments)

    @property
    def needs_body(self) -> bool:
        """Whether a request without a body tells too little."""
        return self.exactly_one or any(argument.required for argument in self.arguments)


OPERATIONS = {
    operation.name: operation
    for operation in (
        StreamOperation("freeze", "Learn nothing more until the stream is thawed.", confirm=False),
        StreamOperation("thaw", "Learn again.", confirm=False),
        StreamOperation(
            "reset",
            "Forget what was learned, or what was learned about some classes.",
            (Argument("classes", list[str], "Only this class; may be repeated.", "--class", bounds={"minItems": 1}),),
        ),
        StreamOperation(
            "rewind",
            "Go back to a moment: what was learned after it is no longer in force.",
            (
                Argument("sequence", int, "The last sample that stays.", bounds={"minimum": 0, "maximum": 2**62 - 1}),
                Argument(
                    "time", float, "A moment in seconds since 1970.", "--to", bounds={"minimum": 0, "maximum": 1e11}
                ),
            ),
            exactly_one=True,
        ),
        StreamOperation(
            "unlearn",
            "Remove a source's samples, as if they were never learned; what it sends later is learned.",
            (
                Argument("source", str, "Whose samples.", required=True, bounds={"minLength": 1, "maxLength": 128}),
                Argument("erase", bool, "Also remove them from the files, which cannot be undone."),
            ),
        ),
        StreamOperation(
            "import",
            "Go on from an exported state.",
            (Argument("content", bytes, "A state that was exported, or written by pta predict.", required=True),),
        ),
        StreamOperation(
            "label",
            "Say what learned samples are, as if it had been known when they came.",
            (Argument("labels", LABELS, "Of samples.", required=True, bounds=_FEW_LABELS),),
        ),
        StreamOperation(
            "answers",
            "Answer with what adaptation says, or with what zero-shot says; learning goes on.",
            (Argument("answers", str, "Whose answers.", "answers", required=True, choices=("adapted", "zero-shot")),),
            confirm=False,
        ),
        StreamOperation("undo", "Undo the last reset, rewind, unlearn, label or import; later samples stay learned."),
        StreamOperation("delete", "Erase the stream and its files, which cannot be undone.", method="DELETE"),
    )
}
