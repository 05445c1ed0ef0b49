"""Modules as ONNX graphs, and ONNX Runtime to run them. Graphs that others made are never read."""

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pta.door.foreign import failure_of
from pta.errors import InvalidParameter, MachineFailure, MissingPackage, first_line, how_to_install

OPSET = 18
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_LARGEST = 2**31 - 2**24  # bytes of weights: one file of this format has less than 2 GiB


def require_onnx() -> None:
    """Refuse a machine without the packages that make, read and run graphs."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"ONNX needs {', '.join(missing)}; {how_to_install('onnx')}")


def graph_of(
    module: nn.Module, example: Tensor, input_name: str, outputs: Sequence[str], *, any_count: bool = False
) -> Any:
    """The graph of a module of one input; with `any_count` for any number of rows."""
    rows = ({0: torch.export.Dim("samples", min=2)},) if any_count else None  # min: for torch 2.8; one row works, too
    made: list[Any] = []

    def export() -> None:
        program: Any
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[input_name],
                output_names=list(outputs),
                dynamic_shapes=rows,
            )
        made.append(program.model_proto)

    for name in ("torch.onnx", "onnxscript"):  # which name operations that nobody uses here
        logging.getLogger(name).setLevel(logging.ERROR)
    failure = failure_of(export)
    if failure is not None:
        raise MachineFailure(f"torch {torch.__version__} cannot export this model: {first_line(failure)}")
    model = made[0]
    size = sum(len(weight.raw_data) for weight in model.graph.initializer)
    if size > _LARGEST:
        raise InvalidParameter(
            f"{size / 2**30:.1f} GiB of weights do not fit into one ONNX file, which has less than 2"
        )
    for part in (model, model.graph, *model.graph.node):
        del part.metadata_props[:]  # the files and lines that made it
    return model


def with_labels(model: Any, class_names: Sequence[str], about: Mapping[str, Any]) -> bytes:
    """The file of a graph with an output `index`, with the names as an output `label`, and a description."""
    from onnx import StringStringEntryProto, TensorProto, helper

    graph = model.graph
    index = next(one for one in graph.output if one.name == "index")
    names = [name.encode() for name in class_names]
    graph.initializer.append(helper.make_tensor("class_names", TensorProto.STRING, [len(names)], names))
    graph.node.append(helper.make_node("Gather", ["class_names", "index"], ["label"]))
    label = graph.output.add()
    label.CopyFrom(index)
    label.name, label.type.tensor_type.elem_type = "label", TensorProto.STRING
    described = {"class_names": list(class_names), **about}
    for name, value in described.items():
        model.metadata_props.append(StringStringEntryProto(key=name, value=json.dumps(value)))
    content: bytes = model.SerializeToString()
    return content


class GraphSession:
    """A graph of ours in ONNX Runtime."""

    def __init__(self, content: bytes, threads: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def run(self, given: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, map(np.asarray, self._session.run(names, {self._input: given})), strict=True))
