"""What the service is asked about samples, what it answers, what it refuses, and the bytes that carry it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pta.errors import MachineFailure, UserMistake

_REST = "[A-Za-z0-9._-]"
NAME = rf"(?:[A-Za-z0-9_-]{_REST}{{0,63}}|\.[A-Za-z0-9_-]{_REST}{{0,62}}|\.\.{_REST}{{1,62}})"
ITS_LETTERS = "1 to 64 letters, digits, dots, hyphens and underscores, and is not . or .."
"""What streams and models can be called: no part of an address that clients and proxies take out of it."""

LONGEST_TEXT = 128
"""Bytes of an id or a source."""

Learn = Literal["true", "false", "try"]
"""Learned or an error; not learned; learned if possible, else answered with the reason why not."""


def id_hash(id: str) -> bytes:
    """What the journal keeps of an id."""
    return blake2b(id.encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Request:
    """B samples of a stream, as features or as pictures.

    They are learned together or not at all, but for those that --reject-holds or the reaction cap leaves out.
    """

    stream: str
    id: str | None  # of the client, up to 128 bytes; None if the service is to make one
    digest: bytes  # 16 bytes, BLAKE2b over dtype, shape and bytes of the inputs, learn and source
    learn: Learn
    source: str | None
    top: int  # how many classes per sample, best first; 0 for none
    logits: bool  # whether to give them, too
    features: NDArray[np.float32] | None = None  # B×d, finite, no zero row
    pictures: tuple[bytes, ...] | None = None

    def __len__(self) -> int:
        return len(self.pictures if self.features is None else self.features)  # type: ignore[arg-type]


class SampleLabel(NamedTuple):
    """What a person says of a learned sample, which is named by its sequence number or by id and place."""

    label: str | None  # the name of a class; None for none of the classes
    sequence: int | None = None
    id: str | None = None  # of its request
    place: int = 0  # in its request


class Refused(UserMistake):
    """The request changed nothing; the message says what to do. A status of 500 or above is a failure of the service.

    >>> refused = Refused("the queue is full", 429, retry_after=1)
    >>> refused.status, str(refused), refused.retry_after
    (429, 'the queue is full', 1)
    """

    def __init__(self, message: str, status: int = 422, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.exit_code = (UserMistake if status < 500 else MachineFailure).exit_code


DTYPES = {"FP32": "<f4", "FP16": "<f2", "INT64": "<i8", "BOOL": "?"}
USUAL_OUTPUTS = {
    "label": "BYTES",
    "zero_shot_label": "BYTES",
    "adapted_label": "BYTES",
    "probability": "FP32",
    "zero_shot_probability": "FP32",
    "entropy": "FP32",
    "sequence": "INT64",
    "rejected": "BOOL",  # with --reject-below
}
TOP_OUTPUTS = {"top_label": "BYTES", "top_probability": "FP32"}
OUTPUTS = {**USUAL_OUTPUTS, **TOP_OUTPUTS, "logits": "FP32"}
"""The datatype of every output, by its name."""


@dataclass(frozen=True)
class Result:
    """The answers to B samples, on both sides of a connection."""

    id: str
    stream: str
    learned: bool  # all samples, or those whose sequence is not -1
    repeated: bool  # the answer that this id was given first; nothing was learned again
    reason: str | None  # why nothing was learned, or why some samples were not
    outputs: Mapping[str, NDArray[Any]]  # label, probability, entropy, sequence, …; with B rows

    @property
    def labels(self) -> list[str]:
        """The class of every sample."""
        return self.outputs["label"].tolist()


def write_tensor(name: str, datatype: str, data: NDArray[Any], *, binary: bool) -> tuple[dict[str, Any], bytes]:
    """What JSON says of a tensor, and its bytes if these follow the JSON. Texts are an array of objects."""
    tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": data.shape}
    if not binary:
        texts = datatype == "BYTES"
        tensor["data"] = data.ravel().tolist() if texts else np.ascontiguousarray(data, DTYPES[datatype]).ravel()
        return tensor, b""
    raw = join_elements(data.ravel().tolist()) if datatype == "BYTES" else np.asarray(data, DTYPES[datatype]).tobytes()
    tensor["parameters"] = {"binary_data_size": len(raw)}
    return tensor, raw


def read_result(content: bytes, length: int | None) -> Result:
    """The answer in a body whose first `length` bytes are JSON; all of them with None."""
    answer = json.loads(content[:length])
    outputs = {}
    at = length or 0
    for output in answer["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        kind = output["datatype"]
        data = output.get("data") if size is None else content[at : at + size]
        if kind == "BYTES":
            texts = data if size is None else [one.decode() for one in split_elements(data)]
            column = np.array(texts, dtype=object)
        else:
            column = np.array(data, DTYPES[kind]) if size is None else np.frombuffer(data, DTYPES[kind])
        outputs[output["name"]] = column.reshape(output["shape"])
        at += size or 0
    told = answer["parameters"]
    return Result(answer["id"], told["stream"], told["learned"], told["repeated"], told.get("reason"), outputs)


def join_elements(elements: Iterable[bytes | str]) -> bytes:
    """The raw tensor of bytes or texts.

    >>> join_elements(["cat", b""])
    b'\\x03\\x00\\x00\\x00cat\\x00\\x00\\x00\\x00'
    """
    contents = [one.encode() if isinstance(one, str) else one for one in elements]
    return b"".join(part for one in contents for part in (len(one).to_bytes(4, "little"), one))


def split_elements(raw: bytes | memoryview) -> list[bytes]:
    """Its elements; ValueError where the last one is cut off.

    >>> split_elements(join_elements([b"cat", b""]))
    [b'cat', b'']
    """
    elements: list[bytes] = []
    at = 0
    while at < len(raw):
        start = at + 4
        at = start + int.from_bytes(raw[at:start], "little")
        if at > len(raw):
            raise ValueError(f"element {len(elements)} is longer than what is left")
        elements.append(bytes(raw[start:at]))
    return elements
