"""The input of an infer request: features or pictures, in JSON or as raw bytes behind it, checked before any work."""

import base64
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.core.samples import LARGEST_NORM, SMALLEST_NORM
from pta.errors import shown
from pta.serve.requests import Refused, split_elements
from pta.serve.streams.served_model import Shape

_FLOATS: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "FP16": np.dtype("<f2")}
_ADDRESS = re.compile(rb"\s*(https?|file|ftp|data):", re.IGNORECASE)


def require_type(kind: type, name: str, given: Any) -> Any:
    """The value, if it is an object or a list of JSON as it should be."""
    if type(given) is not kind:
        raise Refused(422, f"{name} must be {'an object' if kind is dict else 'a list'}, got {shown(given)}")
    return given


def read_input(
    tensor: Mapping[str, Any], rest: memoryview, shape: Shape
) -> tuple[NDArray[np.float32] | None, tuple[bytes, ...] | None]:
    """Features B×d or pictures, one of the two; `rest` is what follows the JSON."""
    name, parameters = tensor.get("name"), require_type(dict, "inputs[0].parameters", tensor.get("parameters", {}))
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
    given: Any = tensor.get("shape")
    expected = "×".join(("B", *map(str, trailing)))
    is_whole = isinstance(given, list) and {*map(type, given)} == {int}
    if not is_whole or len(given) != 1 + len(trailing) or given[1:] != [*trailing]:
        raise Refused(422, f"{name} must have the shape {expected}, got {shown(given)}")
    if not 1 <= given[0] <= most:
        raise Refused(422, f"{name}: a request has 1 to {most} samples, got {given[0]}")
    return int(given[0])


def _features(tensor: Mapping[str, Any], raw: memoryview | None, shape: Shape) -> NDArray[np.float32]:
    rows, datatype = _rows(tensor, "features", (shape.dim,), shape.batch), tensor.get("datatype")
    if not isinstance(datatype, str) or datatype not in (_FLOATS if raw is not None else ("FP32",)):
        raise Refused(422, f"features must be FP32, or FP16 as a binary input, got {shown(datatype)}")
    if raw is None:
        features = _numbers(tensor.get("data"), rows, shape.dim)
    else:
        stored = _FLOATS[datatype]
        needed = rows * shape.dim * stored.itemsize
        if len(raw) != needed:
            raise Refused(422, f"features of {rows}×{shape.dim} {datatype} have {needed:,} bytes, got {len(raw):,}")
        features = np.ndarray((rows, shape.dim), stored, raw).astype(np.float32, copy=False)
    for row, square in enumerate(np.einsum("ij,ij->i", features, features).tolist()):
        if not SMALLEST_NORM**2 <= square <= LARGEST_NORM**2:  # which is not true of NaN
            what = "has no length" if square < SMALLEST_NORM**2 else "has NaN, Inf or too large numbers"
            raise Refused(422, f"features[{row}] {what}")
    return features


def _numbers(data: object, rows: int, dim: int) -> NDArray[np.float32]:
    """The numbers of a tensor in JSON, flat or as a list of rows."""
    flat = data
    if isinstance(data, list) and data and isinstance(data[0], list):
        if any(type(row) is not list or len(row) != dim for row in data):
            raise Refused(422, f"features: every row must be a list of {dim} numbers")
        flat = [number for row in data for number in row]
    if not isinstance(flat, list) or len(flat) != rows * dim:
        raise Refused(422, f"features: data must be a list of {rows}×{dim} numbers")
    if not {*map(type, flat)} <= {int, float}:
        raise Refused(422, "features: data must hold nothing but numbers")
    return np.ndarray((rows, dim), np.float32, array("f", flat))


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
    for number, text in enumerate(require_type(list, "image: data", data)):
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
