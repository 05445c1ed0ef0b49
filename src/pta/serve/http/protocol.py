"""Open Inference Protocol v2 with its extension `binary_tensor_data`: the bytes of an infer request in, an answer out.

A body is JSON, or JSON followed by the raw bytes of its input; the header `Inference-Header-Content-Length` says where
the JSON ends. Everything that can be known without the model and the state is checked here, before any work.
"""

import base64
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pta.core.samples import LARGEST_NORM, SMALLEST_NORM
from pta.errors import first_line, nearest, shown
from pta.serve.http.labels import read_labels
from pta.serve.operations import StreamOperation
from pta.serve.requests import (
    DTYPES,
    LONGEST_TEXT,
    OUTPUTS,
    TOP_OUTPUTS,
    USUAL_OUTPUTS,
    Learn,
    Refused,
    Request,
    Result,
    split_elements,
    write_tensor,
)
from pta.serve.streams.served_model import Shape

VERSION = "1"
DEFAULT_STREAM = "default"
JSON_LENGTH = b"inference-header-content-length"

_ADDRESS = re.compile(rb"\s*(https?|file|ftp|data):", re.IGNORECASE)
_MOST_BESIDE = 4096  # values in JSON besides features, with the commas in texts
_USUAL_TOP = 5
_LEARN: dict[Any, Learn] = {True: "true", False: "false", "true": "true", "false": "false", "try": "try"}
_KEYS = ("id", "inputs", "outputs", "parameters")
_PARAMETERS = ("stream", "learn", "source", "top", "binary_data_output")
_IGNORED = ("priority", "timeout")  # parameters of NVIDIA's clients that change no answer
_KNOWN = frozenset((*_PARAMETERS, *_IGNORED))
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
Wanted = Mapping[str, bool]
"""Which outputs an answer has, and whether each is binary."""

# The interpreter lock is given up for more than this, and then waited for while others hold it.
_ADDED_AT_ONCE = 500  # numbers, by numpy
_HASHED_AT_ONCE = 2047  # bytes, by hashlib
_MANY_NUMBERS, _FEW_BYTES = 2**12, 2**14


def metadata(shape: Shape) -> dict[str, Any]:
    """What the protocol tells of a model."""
    columns = {"top_label": -1, "top_probability": -1, "logits": shape.classes}
    inputs = [{"name": "features", "datatype": "FP32", "shape": [-1, shape.dim]}]
    if shape.takes_pictures:
        inputs.append({"name": "image", "datatype": "BYTES", "shape": [-1]})
    outputs = [
        {"name": one, "datatype": datatype, "shape": [-1, columns[one]] if one in columns else [-1]}
        for one, datatype in OUTPUTS.items()
        if one != "rejected" or shape.rejects
    ]
    return {"name": shape.name, "versions": [VERSION], "platform": "pta", "inputs": inputs, "outputs": outputs}


def read_request(body: bytes, json_length: bytes | None, shape: Shape) -> tuple[Request, Wanted]:
    """What an infer request asks for; `json_length` is the header that a request with a binary input has."""
    end = len(body)
    if json_length is not None:
        if not (json_length.isdigit() and len(json_length) < 20 and int(json_length) <= end):
            given = shown(json_length.decode("latin-1"))
            raise Refused(f"{JSON_LENGTH.decode()} is {given}, but the body has {end:,} bytes")
        end = int(json_length)
    most = _MOST_BESIDE + shape.batch * shape.dim
    if body.count(b",", 0, end) > most:  # parsing would keep all others waiting
        raise Refused(f"the JSON of the body has more values than a request needs, at most {most:,}")
    head = read_object(memoryview(body)[:end])
    _require_known("the body", head, _KEYS)
    parameters = _require_type(dict, "parameters", head.get("parameters", {}))
    _require_parameters(parameters)
    inputs = head.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise Refused("inputs must be a list of one tensor, features or image")
    tensor = _require_type(dict, "inputs[0]", inputs[0])
    features, pictures = _read_input(tensor, memoryview(body)[end:], shape)
    top, wanted = _read_outputs(head.get("outputs"), parameters, shape.classes)
    learn = parameters.get("learn", "try")
    source = _text("source", parameters.get("source"))
    id = head.get("id")
    if not isinstance(learn, bool | str) or learn not in _LEARN:
        raise Refused(f'learn must be true, false or "try", got {shown(learn)}')
    if id is not None and (not isinstance(id, str) or len(id.encode()) > LONGEST_TEXT):
        raise Refused(f"id must be a text of at most {LONGEST_TEXT} bytes, got {shown(id)}")
    request = Request(
        stream=_text("stream", parameters.get("stream")) or DEFAULT_STREAM,
        id=id or None,  # an empty one is what some clients send for none
        digest=_digest(features, pictures, _LEARN[learn], source),
        learn=_LEARN[learn],
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
        return _require_type(dict, "the body", orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {first_line(error)}") from None


def read_arguments(operation: StreamOperation, body: bytes) -> dict[str, Any]:
    """What a request tells an operation; null is nothing."""
    if operation.takes_file:
        return {operation.arguments[0].name: body}
    if not operation.arguments or (not operation.needs_body and body in (b"", b"null")):
        return {}
    whole = read_object(body)
    _require_known("the body", whole, [argument.name for argument in operation.arguments])
    given = {name: value for name, value in whole.items() if value is not None}
    for argument in operation.arguments:
        if argument.required and argument.name not in given:
            raise Refused(f"{argument.name} is required: {argument.help}")
        if argument.name in given and not argument.accepts(given[argument.name]):
            bounds = "".join(f", {name} {bound:,}" for name, bound in argument.bounds.items())
            bounds += f", {' or '.join(argument.choices)}" * bool(argument.choices)
            kind = getattr(argument.kind, "__name__", "list")
            raise Refused(f"{argument.name} must be of type {kind}{bounds}, got {shown(given[argument.name])}")
    if operation.exactly_one and len(given) != 1:
        raise Refused(f"give either {' or '.join(argument.name for argument in operation.arguments)}")
    return given | {"labels": read_labels(given["labels"])} if operation.takes_labels else given


def write_reply(reply: Result, wanted: Wanted, model: str) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON if binary outputs follow."""
    outputs, raw = [], []
    for name, binary in wanted.items():
        if name in reply.outputs:  # a repeated answer has no top_… and no logits, and not all services reject
            tensor, content = write_tensor(name, OUTPUTS[name], reply.outputs[name], binary=binary)
            outputs.append(tensor)
            raw.append(content)
    parameters: dict[str, Any] = {"stream": reply.stream, "learned": reply.learned, "repeated": reply.repeated}
    if reply.reason is not None:
        parameters["reason"] = reply.reason
    answer: dict[str, Any] = {"model_name": model, "model_version": VERSION, "id": reply.id}
    answer |= {"parameters": parameters, "outputs": outputs}
    text = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join((text, *raw)), len(text) if any(raw) else None


def _require_known(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise Refused(f"{where}: {shown(name)} is not known; {nearest(name, known)}")


def _require_parameters(given: Mapping[str, Any]) -> None:
    unknown = given.keys() - _KNOWN
    for name in _SEQUENCE:
        if name in unknown:
            raise Refused(f"parameters: {name} is not supported; name a stream with the parameter stream instead")
    _require_known("parameters", sorted(unknown), _PARAMETERS)


def _text(name: str, given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.isprintable() or not 0 < len(given.encode()) <= LONGEST_TEXT:
        raise Refused(f"{name} must be a text of 1 to {LONGEST_TEXT} printable bytes, got {shown(given)}")
    return given


def _read_outputs(given: Any, parameters: Mapping[str, Any], classes: int) -> tuple[int, Wanted]:
    """How many classes are to be listed per sample, and the outputs."""
    usually_binary = _switch("binary_data_output", parameters.get("binary_data_output", False))
    top = parameters.get("top")
    if top is not None and (type(top) is not int or not 1 <= top <= classes):
        raise Refused(f"top must be a whole number from 1 to {classes}, the number of classes, got {shown(top)}")
    if given is None or given == []:
        names = [*USUAL_OUTPUTS, *(TOP_OUTPUTS if top else ())]
        return top or 0, dict.fromkeys(names, usually_binary)
    binary = {}
    for number, output in enumerate(_require_type(list, "outputs", given)):
        where = f"outputs[{number}]"
        name = _require_type(dict, where, output).get("name")
        if not isinstance(name, str) or name not in OUTPUTS:
            raise Refused(f"{where}: no output is called {shown(name)}; {nearest(name, OUTPUTS)}")
        own = _require_type(dict, f"{where}.parameters", output.get("parameters", {}))
        binary[name] = _switch("binary_data", own.get("binary_data", usually_binary))
    needs_top = not TOP_OUTPUTS.keys().isdisjoint(binary)
    return (top or min(_USUAL_TOP, classes)) if needs_top else 0, binary


def _switch(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise Refused(f"{name} must be true or false, got {shown(given)}")
    return given


def _digest(
    features: NDArray[np.float32] | None, pictures: tuple[bytes, ...] | None, learn: Learn, source: str | None
) -> bytes:
    """What tells two bodies under one id apart."""
    sizes = features.shape if features is not None else tuple(map(len, pictures or ()))
    digest = blake2b(repr((features is None, sizes, learn, source)).encode(), digest_size=16)
    for part in (features.data.cast("B"),) if features is not None else pictures or ():
        step = _HASHED_AT_ONCE if len(part) < _FEW_BYTES else max(1, len(part))
        for start in range(0, len(part), step):
            digest.update(part[start : start + step])
    return digest.digest()


def _require_type(kind: type, name: str, given: Any) -> Any:
    """The value, if it is an object or a list of JSON as it should be."""
    if type(given) is not kind:
        raise Refused(f"{name} must be {'an object' if kind is dict else 'a list'}, got {shown(given)}")
    return given


def _read_input(
    tensor: Mapping[str, Any], rest: memoryview, shape: Shape
) -> tuple[NDArray[np.float32] | None, tuple[bytes, ...] | None]:
    """Features B×d or pictures, one of the two; `rest` is what follows the JSON."""
    name = tensor.get("name")
    parameters = _require_type(dict, "inputs[0].parameters", tensor.get("parameters", {}))
    size = parameters.get("binary_data_size")
    if size is None and len(rest):
        raise Refused(f"{len(rest):,} bytes follow the JSON, but the input has no binary_data_size")
    if size is not None and (type(size) is not int or size != len(rest) or "data" in tensor):
        raise Refused(f"binary_data_size is {shown(size)}, but {len(rest):,} bytes follow the JSON")
    raw = None if size is None else rest
    if name == "features":
        return _features(tensor, raw, shape), None
    if name == "image" and shape.takes_pictures:
        return None, _pictures(tensor, raw, shape)
    known = "features or image" if shape.takes_pictures else "features; this service has no model for pictures"
    raise Refused(f"no input is called {shown(name)}; it takes {known}")


def _rows(tensor: Mapping[str, Any], name: str, trailing: Sequence[int], most: int) -> int:
    given: Any = tensor.get("shape")
    expected = "×".join(("B", *map(str, trailing)))
    is_whole = isinstance(given, list) and {*map(type, given)} == {int}
    if not is_whole or len(given) != 1 + len(trailing) or given[1:] != [*trailing]:
        raise Refused(f"{name} must have the shape {expected}, got {shown(given)}")
    if not 1 <= given[0] <= most:
        raise Refused(f"{name}: a request has 1 to {most} samples, got {given[0]}")
    return int(given[0])


def _features(tensor: Mapping[str, Any], raw: memoryview | None, shape: Shape) -> NDArray[np.float32]:
    rows = _rows(tensor, "features", (shape.dim,), shape.batch)
    datatype = tensor.get("datatype")
    if not isinstance(datatype, str) or datatype not in ("FP32", "FP16")[: 1 if raw is None else 2]:
        raise Refused(f"features must be FP32, or FP16 as a binary input, got {shown(datatype)}")
    if raw is None:
        features = _numbers(tensor.get("data"), rows, shape.dim)
    else:
        stored = np.dtype(DTYPES[datatype])
        needed = rows * shape.dim * stored.itemsize
        if len(raw) != needed:
            raise Refused(f"features of {rows}×{shape.dim} {datatype} have {needed:,} bytes, got {len(raw):,}")
        features = np.ndarray((rows, shape.dim), stored, raw).astype(np.float32, copy=False)
    for row, square in enumerate(_squares(features).tolist()):
        if not SMALLEST_NORM**2 <= square <= LARGEST_NORM**2:  # which is not true of NaN
            what = "has no length" if square < SMALLEST_NORM**2 else "has NaN, Inf or too large numbers"
            raise Refused(f"features[{row}] {what}")
    return features


def _squares(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The squared lengths of rows; few are added up in parts."""
    if features.size > _MANY_NUMBERS:
        return np.einsum("ij,ij->i", features, features)
    step = max(1, _ADDED_AT_ONCE // len(features))
    parts = [features[:, start : start + step] for start in range(0, features.shape[1], step)]
    return sum((np.einsum("ij,ij->i", part, part) for part in parts), np.zeros(len(features), np.float32))


def _numbers(data: object, rows: int, dim: int) -> NDArray[np.float32]:
    """The numbers of a tensor in JSON, flat or as a list of rows."""
    flat = data
    if isinstance(data, list) and data and isinstance(data[0], list):
        if any(type(row) is not list or len(row) != dim for row in data):
            raise Refused(f"features: every row must be a list of {dim} numbers")
        flat = [number for row in data for number in row]
    if not isinstance(flat, list) or len(flat) != rows * dim:
        raise Refused(f"features: data must be a list of {rows}×{dim} numbers")
    if not {*map(type, flat)} <= {int, float}:
        raise Refused("features: data must hold nothing but numbers")
    return np.ndarray((rows, dim), np.float32, array("f", flat))


def _pictures(tensor: Mapping[str, Any], raw: memoryview | None, shape: Shape) -> tuple[bytes, ...]:
    rows = _rows(tensor, "image", (), shape.batch)
    datatype = tensor.get("datatype")
    if datatype != "BYTES":
        raise Refused(f"image must be BYTES, got {shown(datatype)}")
    if raw is None:
        pictures = _from_base64(_require_type(list, "image: data", tensor.get("data")))
    else:
        try:
            pictures = split_elements(raw)
        except ValueError as error:
            raise Refused(f"image: {error}") from None
        for number, picture in enumerate(pictures):
            _require_no_address(number, picture)
    if len(pictures) != rows:
        raise Refused(f"image: the shape says {rows}, but there are {len(pictures)}")
    return tuple(pictures)


def _from_base64(data: list[Any]) -> list[bytes]:
    pictures = []
    for number, text in enumerate(data):
        if not isinstance(text, str):
            raise Refused(f"image[{number}] must be a text in base64, got {shown(text)}")
        _require_no_address(number, text[:16].encode())
        try:
            pictures.append(base64.b64decode(text, validate=True))
        except ValueError:
            raise Refused(f"image[{number}] is not base64") from None
    return pictures


def _require_no_address(number: int, start: bytes) -> None:
    if _ADDRESS.match(start):
        raise Refused(f"image[{number}] is an address; send the picture itself, nothing is fetched")
