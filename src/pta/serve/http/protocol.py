"""Open Inference Protocol v2 with its extension `binary_tensor_data`: the bytes of an infer request in, an answer out.

A body is JSON, or JSON followed by the raw bytes of its input; the header `Inference-Header-Content-Length` says where
the JSON ends. Everything that can be known without the model and the state is checked here, before any work.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pta.errors import first_line, nearest, shown
from pta.serve.http.input_tensor import read_input, require_type
from pta.serve.operations import StreamOperation
from pta.serve.requests import Learn, Refused, Reply, Request, join_elements
from pta.serve.streams.served_model import Shape

VERSION = "1"
DEFAULT_STREAM = "default"
JSON_LENGTH = b"inference-header-content-length"

_LONGEST_TEXT = 128  # bytes of an id or a source
_MOST_BESIDE = 4096  # values in JSON besides features, with the commas in texts
_USUAL_TOP = 5
_LEARN: dict[Any, Learn] = {True: "true", False: "false", "true": "true", "false": "false", "try": "try"}
_KEYS = ("id", "inputs", "outputs", "parameters")
_PARAMETERS = ("stream", "learn", "source", "top", "binary_data_output")
_STORED: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "INT64": np.dtype("<i8")}
_USUAL_OUTPUTS = {
    "label": "BYTES",
    "zero_shot_label": "BYTES",
    "probability": "FP32",
    "zero_shot_probability": "FP32",
    "entropy": "FP32",
    "sequence": "INT64",
}
_TOP_OUTPUTS = {"top_label": "BYTES", "top_probability": "FP32"}
OUTPUTS = {**_USUAL_OUTPUTS, **_TOP_OUTPUTS, "logits": "FP32"}
"""The datatype of every output, by its name."""
Wanted = Mapping[str, bool]
"""Which outputs an answer has, and whether each is binary."""
_COLUMNS = {
    **{name: f"{name}s" for name in ("label", "zero_shot_label", "sequence", "top_label")},
    "probability": "probabilities",
    "zero_shot_probability": "zero_shot_probabilities",
    "entropy": "entropies",
    "top_probability": "top_probabilities",
    "logits": "logits",
}
"""Where a reply has it."""


def metadata(shape: Shape) -> dict[str, Any]:
    """What the protocol tells of a model."""
    columns = {"top_label": -1, "top_probability": -1, "logits": shape.classes}
    inputs = [{"name": "features", "datatype": "FP32", "shape": [-1, shape.dim]}]
    if shape.takes_pictures:
        inputs.append({"name": "image", "datatype": "BYTES", "shape": [-1]})
    outputs = [
        {"name": one, "datatype": datatype, "shape": [-1, columns[one]] if one in columns else [-1]}
        for one, datatype in OUTPUTS.items()
    ]
    return {"name": shape.name, "versions": [VERSION], "platform": "pta", "inputs": inputs, "outputs": outputs}


def read_request(body: bytes, json_length: bytes | None, shape: Shape) -> tuple[Request, Wanted]:
    """What an infer request asks for; `json_length` is the header that a request with a binary input has."""
    end = _json_end(json_length, len(body))
    most = _MOST_BESIDE + shape.batch * shape.dim
    if body.count(b",", 0, end) > most:  # parsing would keep all others waiting
        raise Refused(422, f"the JSON of the body has more values than a request needs, at most {most:,}")
    head = read_object(memoryview(body)[:end])
    _require_known("the body", head, _KEYS)
    parameters = require_type(dict, "parameters", head.get("parameters", {}))
    _require_known("parameters", parameters, _PARAMETERS)
    inputs = head.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise Refused(422, "inputs must be a list of one tensor, features or image")
    tensor = require_type(dict, "inputs[0]", inputs[0])
    features, pictures = read_input(tensor, memoryview(body)[end:], shape)
    top, wanted = _read_outputs(head.get("outputs"), parameters, shape.classes)
    learn, source = _learn(parameters.get("learn", "try")), _text("source", parameters.get("source"))
    request = Request(
        stream=_text("stream", parameters.get("stream")) or DEFAULT_STREAM,
        id=_id(head.get("id")),
        digest=_digest(features, pictures, learn, source),
        learn=learn,
        source=source,
        top=top,
        logits="logits" in wanted,
        features=features,
        pictures=pictures,
    )
    return request, wanted


def read_object(body: bytes | memoryview) -> dict[str, Any]:
    """The JSON object that a body is."""
    try:
        return require_type(dict, "the body", orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise Refused(422, f"the body is not JSON: {first_line(error)}") from None


def read_arguments(operation: StreamOperation, body: bytes) -> dict[str, Any]:
    """What a request tells an operation; null is nothing."""
    if operation.takes_file:
        return {operation.arguments[0].name: body}
    if not operation.arguments or (not operation.needs_body and body in (b"", b"null")):
        return {}
    given = {name: value for name, value in read_object(body).items() if value is not None}
    _require_known("the body", given, [argument.name for argument in operation.arguments])
    for argument in operation.arguments:
        if argument.required and argument.name not in given:
            raise Refused(422, f"{argument.name} is required: {argument.help}")
        if argument.name in given and not argument.accepts(given[argument.name]):
            bounds = "".join(f", {name} {bound:,}" for name, bound in argument.bounds.items())
            kind = getattr(argument.kind, "__name__", "list")
            raise Refused(422, f"{argument.name} must be of type {kind}{bounds}, got {shown(given[argument.name])}")
    if operation.exactly_one and len(given) != 1:
        raise Refused(422, f"give either {' or '.join(argument.name for argument in operation.arguments)}")
    return given


def write_reply(reply: Reply, wanted: Wanted, model: str) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON if binary outputs follow."""
    outputs: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for name, binary in wanted.items():
        data = getattr(reply, _COLUMNS[name])
        if data is None:  # a repeated answer has no top_… and no logits
            continue
        output: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name], "shape": _shape(data)}
        if binary:
            raw.append(_as_bytes(data, OUTPUTS[name]))
            output["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            output["data"] = _flat(data, OUTPUTS[name])
        outputs.append(output)
    parameters: dict[str, Any] = {"stream": reply.stream, "learned": reply.learned, "repeated": reply.repeated}
    if reply.reason is not None:
        parameters["reason"] = reply.reason
    answer: dict[str, Any] = {"model_name": model, "model_version": VERSION, "id": reply.id}
    answer |= {"parameters": parameters, "outputs": outputs}
    text = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((text, *raw)), len(text)) if raw else (text, None)


def _json_end(given: bytes | None, length: int) -> int:
    if given is None:
        return length
    if not (given.isdigit() and len(given) < 20 and int(given) <= length):
        raise Refused(
            422, f"{JSON_LENGTH.decode()} is {shown(given.decode('latin-1'))}, but the body has {length:,} bytes"
        )
    return int(given)


def _require_known(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise Refused(422, f"{where}: {shown(name)} is not known; {nearest(name, known)}")


def _text(name: str, given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.isprintable() or not 0 < len(given.encode()) <= _LONGEST_TEXT:
        raise Refused(422, f"{name} must be a text of 1 to {_LONGEST_TEXT} printable bytes, got {shown(given)}")
    return given


def _id(given: object) -> str | None:
    """Any text; an empty one is what some clients send for none."""
    if given is None or given == "":
        return None
    if not isinstance(given, str) or len(given.encode()) > _LONGEST_TEXT:
        raise Refused(422, f"id must be a text of at most {_LONGEST_TEXT} bytes, got {shown(given)}")
    return given


def _learn(given: object) -> Learn:
    if not isinstance(given, bool | str) or given not in _LEARN:
        raise Refused(422, f'learn must be true, false or "try", got {shown(given)}')
    return _LEARN[given]


def _read_outputs(given: Any, parameters: Mapping[str, Any], classes: int) -> tuple[int, Wanted]:
    """How many classes are to be listed per sample, and the outputs."""
    usually_binary = _switch("binary_data_output", parameters.get("binary_data_output", False))
    top = parameters.get("top")
    if top is not None and (type(top) is not int or not 1 <= top <= classes):
        raise Refused(422, f"top must be a whole number from 1 to {classes}, the number of classes, got {shown(top)}")
    if given is None or given == []:
        names = [*_USUAL_OUTPUTS, *(_TOP_OUTPUTS if top else ())]
        return top or 0, dict.fromkeys(names, usually_binary)
    binary = {}
    for number, output in enumerate(require_type(list, "outputs", given)):
        where = f"outputs[{number}]"
        name = require_type(dict, where, output).get("name")
        if not isinstance(name, str) or name not in OUTPUTS:
            raise Refused(422, f"{where}: no output is called {shown(name)}; {nearest(name, OUTPUTS)}")
        own = require_type(dict, f"{where}.parameters", output.get("parameters", {}))
        binary[name] = _switch("binary_data", own.get("binary_data", usually_binary))
    needs_top = not _TOP_OUTPUTS.keys().isdisjoint(binary)
    return (top or min(_USUAL_TOP, classes)) if needs_top else 0, binary


def _switch(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise Refused(422, f"{name} must be true or false, got {shown(given)}")
    return given


def _digest(
    features: NDArray[np.float32] | None, pictures: tuple[bytes, ...] | None, learn: Learn, source: str | None
) -> bytes:
    """What tells two bodies under one id apart."""
    sizes = features.shape if features is not None else tuple(map(len, pictures or ()))
    digest = blake2b(repr((features is None, sizes, learn, source)).encode(), digest_size=16)
    for part in (features.data,) if features is not None else pictures or ():
        digest.update(part)
    return digest.digest()


def _as_bytes(data: Any, datatype: str) -> bytes:
    flat = _flat(data, datatype)
    return join_elements([text.encode() for text in flat]) if datatype == "BYTES" else flat.tobytes()


def _shape(data: Any) -> tuple[int, ...]:
    if isinstance(data, list):
        return (len(data), *_shape(data[0])) if isinstance(data[0], list) else (len(data),)
    return data.shape


def _flat(data: Any, datatype: str) -> Any:
    """All numbers of an output in one row, or all texts."""
    if datatype != "BYTES":
        return np.ascontiguousarray(data, _STORED[datatype]).ravel()
    return [*chain(*data)] if isinstance(data[0], list) else data
