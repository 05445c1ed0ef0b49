"""The answer to an infer request, as a client reads it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.serve.bytes_tensor import split_elements

_DTYPES = {"FP32": "<f4", "INT64": "<i8"}


@dataclass(frozen=True)
class Result:
    """The answers to B samples."""

    id: str
    stream: str
    learned: bool
    repeated: bool
    reason: str | None
    outputs: Mapping[str, NDArray[Any]]  # label, probability, entropy, sequence, …; with B rows

    @property
    def labels(self) -> list[str]:
        """The class of every sample."""
        return self.outputs["label"].tolist()


def read_result(content: bytes, length: int | None) -> Result:
    """The answer in a body whose first `length` bytes are JSON; all of them with None."""
    answer, outputs, at = json.loads(content[:length]), {}, length or 0
    for output in answer["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        data = output.get("data") if size is None else content[at : at + size]
        outputs[output["name"]] = _array(data, output["datatype"]).reshape(output["shape"])
        at += size or 0
    told = answer["parameters"]
    return Result(answer["id"], told["stream"], told["learned"], told["repeated"], told.get("reason"), outputs)


def _array(data: Any, datatype: str) -> NDArray[Any]:
    if datatype != "BYTES":
        return np.frombuffer(data, _DTYPES[datatype]) if isinstance(data, bytes) else np.array(data, _DTYPES[datatype])
    return np.array([one.decode() for one in split_elements(data)] if isinstance(data, bytes) else data, dtype=object)
