"""Open Inference Protocol v2 with its extension `binary_tensor_data`: the bytes of an infer request in, an answer out.

A body is JSON, or JSON followed by the raw bytes of its input; the header `Inference-Header-Content-Length` says where
the JSON ends. Everything that can be known without the model and the state is checked here, before any work.
"""

import base64
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pta.errors import first_line, nearest, shown
from pta.samples import LARGEST_NORM, SMALLEST_NORM
from pta.serve.bytes_tensor import join_elements, split_elements
from pta.serve.refusals import Refused
from pta.serve.requests import Learn, Reply, Request
from pta.serve.served import Shape

VERSION = "1"
DEFAULT_STREAM = "default"
JSON_LENGTH = b"inference-header-content-length"

_LONGEST_TEXT = 128  # bytes of an id or a source
_USUAL_TOP = 5
_LEARN: dict[Any, Learn] = {True: "true", False: "false", "true": "true", "false": "false", "try": "try"}
_KEYS = ("id", "inputs", "outputs", "parameters")
_PARAMETERS = ("stream", "learn", "source", "top", "binary_data_output")
_FLOATS = {"FP32": "<f4", "FP16": "<f2"}
_ADDRESS = re.compile(rb"\s*(https?|file|ftp|data):", re.IGNORECASE)
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


@dataclass(frozen=True)
class Wanted:
    """Which outputs an answer has, and whether each is binary."""

    binary: Mapping[str, bool]


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
    head = _of_type(dict, "the body", _parsed(memoryview(body)[:end]))
    _require_known("the body", head, _KEYS)
    parameters = _of_type(dict, "parameters", head.get("parameters", {}))
    _require_known("parameters", parameters, _PARAMETERS)
    inputs = head.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise Refused(422, "inputs must be a list of one tensor, features or image")
    tensor = _of_type(dict, "inputs[0]", inputs[0])
    features, pictures = _read_input(tensor, memoryview(body)[end:], shape)
    top, wanted = _read_outputs(head.get("outputs"), parameters, shape.classes)
    learn, source = _learn(parameters.get("learn", "try")), _text("source", parameters.get("source"))
    request = Request(
        stream=_text("stream", parameters.get("stream")) or DEFAULT_STREAM,
        id=_text("id", head.get("id") or None),
        digest=_digest(features, pictures, learn, source),
        learn=learn,
        source=source,
        top=top,
        logits="logits" in wanted.binary,
        features=features,
        pictures=pictures,
    )
    return request, wanted


def write_reply(reply: Reply, wanted: Wanted, model: str) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON if binary outputs follow."""
    known: dict[str, tuple[Sequence[int], Any]] = {
        "label": ((len(reply.labels),), reply.labels),
        "zero_shot_label": ((len(reply.labels),), reply.zero_shot_labels),
        "probability": (reply.probabilities.shape, reply.probabilities),
        "zero_shot_probability": (reply.zero_shot_probabilities.shape, reply.zero_shot_probabilities),
        "entropy": (reply.entropies.shape, reply.entropies),
        "sequence": (reply.sequences.shape, reply.sequences),
    }
    if reply.top_labels is not None and reply.top_probabilities is not None:
        flat = [label for row in reply.top_labels for label in row]
        known["top_label"] = reply.top_probabilities.shape, flat
        known["top_probability"] = reply.top_probabilities.shape, reply.top_probabilities
    if reply.logits is not None:
        known["logits"] = reply.logits.shape, reply.logits
    outputs: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for name, binary in wanted.binary.items():
        if name not in known:  # a repeated answer has no top_… and no logits
            continue
        shape, data = known[name]
        output: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name], "shape": shape}
        if binary:
            raw.append(_as_bytes(data, OUTPUTS[name]))
            output["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            output["data"] = data if isinstance(data, list) else _contiguous(data, OUTPUTS[name])
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


def _parsed(text: memoryview) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refused(422, f"the body is not JSON: {first_line(error)}") from None


def _of_type(kind: type, name: str, given: Any) -> Any:
    if type(given) is not kind:
        raise Refused(422, f"{name} must be {'an object' if kind is dict else 'a list'}, got {shown(given)}")
    return given


def _require_known(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise Refused(422, f"{where}: {shown(name)} is not known; {nearest(name, known)}")


def _text(name: str, given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.isprintable() or not 0 < len(given.encode()) <= _LONGEST_TEXT:
        raise Refused(422, f"{name} must be a text of 1 to {_LONGEST_TEXT} bytes, got {shown(given)}")
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
        return top or 0, Wanted(dict.fromkeys(names, usually_binary))
    binary = {}
    for number, output in enumerate(_of_type(list, "outputs", given)):
        where = f"outputs[{number}]"
        name = _of_type(dict, where, output).get("name")
        if not isinstance(name, str) or name not in OUTPUTS:
            raise Refused(422, f"{where}: no output is called {shown(name)}; {nearest(name, OUTPUTS)}")
        own = _of_type(dict, f"{where}.parameters", output.get("parameters", {}))
        binary[name] = _switch("binary_data", own.get("binary_data", usually_binary))
    needs_top = not _TOP_OUTPUTS.keys().isdisjoint(binary)
    return (top or min(_USUAL_TOP, classes)) if needs_top else 0, Wanted(binary)


def _switch(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise Refused(422, f"{name} must be true or false, got {shown(given)}")
    return given


def _read_input(
    tensor: Mapping[str, Any], rest: memoryview, shape: Shape
) -> tuple[NDArray[np.float32] | None, tuple[bytes, ...] | None]:
    name, parameters = tensor.get("name"), _of_type(dict, "inputs[0].parameters", tensor.get("parameters", {}))
    size = parameters.get("binary_data_size")
    if size is None and len(rest):
        raise Refused(422, f"{len(rest):,} bytes follow the JSON, but the input has no binary_data_size")
    if size is not None and (type(size) is not int or size != len(rest) or "data" in tensor):
        raise Refused(422, f"binary_data_size is {shown(size)}, but {len(rest):,} bytes follow the JSON")
    raw = None if size is None else rest
    if name == "features":
        return _features(tensor, raw, shape), None
    if name == "image" and shape.takes_pictures:
        return None, _pictures(tensor, raw, shape)
    known = "features or image" if shape.takes_pictures else "features; this service has no model for pictures"
    raise Refused(422, f"no input is called {shown(name)}; it takes {known}")


def _rows(tensor: Mapping[str, Any], name: str, trailing: Sequence[int], most: int) -> int:
    given = tensor.get("shape")
    expected = "×".join(("B", *map(str, trailing)))
    if (
        not isinstance(given, list)
        or len(given) != 1 + len(trailing)
        or any(type(one) is not int for one in given)
        or given[1:] != [*trailing]
    ):
        raise Refused(422, f"{name} must have the shape {expected}, got {shown(given)}")
    if not 1 <= given[0] <= most:
        raise Refused(422, f"{name}: a request has 1 to {most} samples, got {given[0]}")
    return int(given[0])


def _features(tensor: Mapping[str, Any], raw: memoryview | None, shape: Shape) -> NDArray[np.float32]:
    rows, datatype = _rows(tensor, "features", (shape.dim,), shape.batch), tensor.get("datatype")
    if not isinstance(datatype, str) or datatype not in (_FLOATS if raw is not None else ("FP32",)):
        raise Refused(422, f"features must be FP32, or FP16 as a binary input, got {shown(datatype)}")
    if raw is None:
        flat = _numbers(tensor.get("data"), rows, shape.dim)
    else:
        stored = np.dtype(_FLOATS[datatype])
        if len(raw) != rows * shape.dim * stored.itemsize:
            needed = rows * shape.dim * stored.itemsize
            raise Refused(422, f"features of {rows}×{shape.dim} {datatype} have {needed:,} bytes, got {len(raw):,}")
        flat = np.frombuffer(raw, stored)
    features = flat.astype(np.float32, copy=False).reshape(rows, shape.dim)
    squares = np.einsum("ij,ij->i", features, features)
    usable = (squares >= SMALLEST_NORM**2) & (squares <= LARGEST_NORM**2)  # neither is true of NaN
    if not usable.all():
        row = int(np.argmin(usable))
        what = "has no length" if squares[row] < SMALLEST_NORM**2 else "has NaN, Inf or too large numbers"
        raise Refused(422, f"features[{row}] {what}")
    return features


def _numbers(data: object, rows: int, dim: int) -> NDArray[np.float32]:
    """The numbers of a tensor in JSON, flat or as a list of rows; an `array` takes nothing but numbers."""
    flat = data
    if isinstance(data, list) and data and isinstance(data[0], list):
        if any(type(row) is not list or len(row) != dim for row in data):
            raise Refused(422, f"features: every row must be a list of {dim} numbers")
        flat = [number for row in data for number in row]
    if not isinstance(flat, list) or len(flat) != rows * dim:
        raise Refused(422, f"features: data must be a list of {rows}×{dim} numbers")
    try:
        return np.frombuffer(array("f", flat), np.float32)
    except TypeError:
        raise Refused(422, "features: data must hold nothing but numbers") from None


def _pictures(tensor: Mapping[str, Any], raw: memoryview | None, shape: Shape) -> tuple[bytes, ...]:
    rows, datatype = _rows(tensor, "image", (), shape.batch), tensor.get("datatype")
    if datatype != "BYTES":
        raise Refused(422, f"image must be BYTES, got {shown(datatype)}")
    pictures = _from_base64(tensor.get("data")) if raw is None else _from_binary(raw)
    if len(pictures) != rows:
        raise Refused(422, f"image: the shape says {rows}, but there are {len(pictures)}")
    return pictures


def _from_binary(raw: memoryview) -> tuple[bytes, ...]:
    try:
        pictures = tuple(split_elements(raw))
    except ValueError as error:
        raise Refused(422, f"image: {error}") from None
    for number, picture in enumerate(pictures):
        _require_no_address(number, picture)
    return pictures


def _from_base64(data: object) -> tuple[bytes, ...]:
    pictures = []
    for number, text in enumerate(_of_type(list, "image: data", data)):
        if not isinstance(text, str):
            raise Refused(422, f"image[{number}] must be a text in base64, got {shown(text)}")
        _require_no_address(number, text[:16].encode())
        try:
            pictures.append(base64.b64decode(text, validate=True))
        except ValueError:
            raise Refused(422, f"image[{number}] is not base64") from None
    return tuple(pictures)


def _require_no_address(number: int, start: bytes) -> None:
    if _ADDRESS.match(start):
        raise Refused(422, f"image[{number}] is an address; send the picture itself, nothing is fetched")


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
    if datatype == "BYTES":
        return join_elements(text.encode() for text in data)
    return _contiguous(data, datatype).tobytes()


def _contiguous(data: NDArray[Any], datatype: str) -> NDArray[Any]:
    return np.ascontiguousarray(data, "<i8" if datatype == "INT64" else "<f4").ravel()
