"""Exports as arrays, in an npz or a safetensors file: the prototypes, and the released rule of PTA as one matrix."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load
from torch import Tensor

from pta.door.files import pack_tensors
from pta.errors import StateMismatch
from pta.methods import Adapter
from pta.methods.classes import class_prototypes
from pta.methods.pta import PTA
from pta.run.export.frozen_head import require_agreement, require_exportable, samples_near

ENDINGS = (".npz", ".safetensors")


def prototypes_file(adapter: Adapter, ending: str) -> bytes:
    """The prototypes at unit length and the text features."""
    classifier = adapter.classifier
    tensors = {"prototypes": class_prototypes(adapter), "text_features": classifier.anchors}
    return _packed(ending, "prototypes", tensors, adapter, {"scale": classifier.scale, "bias": classifier.bias})


def linear_file(adapter: Adapter, ending: str) -> bytes:
    """The matrix of T + R per row, with which logits are scale·matrix·f + bias for a feature f of unit length."""
    require_linear(adapter)
    assert isinstance(adapter, PTA)
    classifier = adapter.classifier
    matrix = (classifier.anchors.double() + adapter.anchored.double()).float()
    numbers = {"scale": classifier.scale, "bias": 2 * classifier.bias, "logit_factor": adapter.logit_factor}
    content, features = _packed(ending, "linear", {"matrix": matrix}, adapter, numbers), samples_near(adapter)
    read = load(content) if ending == ".safetensors" else np.load(io.BytesIO(content))
    logits = numbers["scale"] * features.numpy() @ read["matrix"].T + np.float32(numbers["bias"])
    require_agreement(adapter, features, torch.from_numpy(logits))
    return content


def require_linear(adapter: Adapter) -> None:
    """Refuse a state whose frozen answer is not one matrix, with the reason."""
    require_exportable(adapter)
    wrong, around = None, {name: adapter.parameters[name] for name in ("gate", "calibration")}
    if not isinstance(adapter, PTA):
        wrong = f"{adapter.name} divides by the length of each sample in its metric"
    elif adapter.fusion != "logits":
        wrong = f'with fusion="{adapter.fusion}", the printed rule, it averages probabilities'
    elif around != {"gate": "none", "calibration": "fixed"}:
        wrong = " and ".join(f'{name}="{value}"' for name, value in around.items()) + " are behind the rule"
    if wrong:
        raise StateMismatch(f"the state is not one matrix: {wrong}; use --to onnx-head")


def _packed(
    ending: str, kind: str, tensors: Mapping[str, Tensor], adapter: Adapter, numbers: Mapping[str, float]
) -> bytes:
    about: dict[str, Any] = {"kind": kind, "method": adapter.name, **numbers}
    names = adapter.classifier.class_names
    if ending == ".safetensors":
        return pack_tensors(tensors, about | {"class_names": names})
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    arrays |= {"classnames": np.array(names), **about}
    np.savez(content := io.BytesIO(), **arrays)
    return content.getvalue()
