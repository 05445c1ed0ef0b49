"""The frozen answer of `pta` and `wpta`: what `Adapter.predict` gives, as operations on tensors that do not change.

A frozen answer takes no order-aware prior. The balance gate and the temperature are those of the state. An export is
run before it is written, and refused if it does not answer as the library.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pta.engines.calibration import temperatures
from pta.engines.whitened.within_class import SHORTEST
from pta.errors import MachineFailure, StateMismatch
from pta.methods import Adapter
from pta.methods.classes import class_prototypes
from pta.methods.pta import PTA
from pta.methods.wpta import WPTA

LARGEST_DIFFERENCE = 1e-3
"""Of a logit of an export from the library's; logits of CLIP differ by units between classes."""
_COUNT = 256


class FrozenHead(nn.Module):
    """Features N×d of any length to the class with the largest logit, probabilities and logits."""

    anchors: Tensor

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        require_exportable(adapter)
        self.classifier, self.factor = adapter.classifier, adapter.logit_factor
        self.softmax_factor, state = adapter.softmax_factor, adapter.state()
        self.register_buffer("anchors", self.classifier.anchors)
        self.rule = _Anchored(adapter) if isinstance(adapter, PTA) else _Whitened(adapter)
        self.open_by = float(state["gate_open"]) if "gate_open" in state else 1.0
        self.temperature = 1.0
        if "calibration_gaps" in state:
            matched = float(temperatures(state["calibration_gaps"], state["calibration_count"]))
            self.temperature = (1 - self.open_by) / self.factor + self.open_by * matched

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The index N, the probabilities N×C and the logits N×C; computed in float64, as what the method decides by."""
        f = (features / torch.linalg.vector_norm(features, dim=1, keepdim=True)).double()
        z = self.classifier.scores(f @ self.anchors.double().T)
        logits = self.rule(f, z)
        if self.open_by < 1:
            zero_shot = z / self.factor + self.classifier.bias * (1 - 1 / self.factor)  # the bias is added once
            logits = zero_shot + self.open_by * (logits - zero_shot)
        logits = logits / self.temperature
        probabilities = (logits * self.softmax_factor).softmax(dim=1)
        return logits.argmax(dim=1), probabilities.float(), logits.float()


class _Anchored(nn.Module):
    """`pta`: the logits of the text anchors and of the anchored prototypes R, added or averaged as probabilities."""

    anchored: Tensor

    def __init__(self, adapter: PTA) -> None:
        super().__init__()
        self.classifier, self.fusion = adapter.classifier, adapter.fusion
        self.register_buffer("anchored", adapter.anchored)

    def forward(self, f: Tensor, z: Tensor) -> Tensor:
        """Logits N×C."""
        scores = self.classifier.scores(f @ self.anchored.double().T)
        if self.fusion == "logits":
            return z + scores
        pair = torch.stack([z.log_softmax(dim=1), scores.log_softmax(dim=1)])
        return pair.logsumexp(dim=0) - torch.tensor(2.0, dtype=torch.float64).log()


class _Whitened(nn.Module):
    """`wpta`: cosines with the prototypes E in the metric P, as if each sample had joined the prototypes."""

    centre: Tensor

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        assert isinstance(adapter, WPTA)
        self.least, self.weight = adapter.least_weight, adapter.image_weight * adapter.classifier.scale
        self.register_buffer("centre", adapter.centre)
        self.layers = nn.ModuleList(map(_Metric, *zip(*adapter.frozen_layers(), strict=True)))

    def forward(self, f: Tensor, z: Tensor) -> Tensor:
        """Logits N×C."""
        y, logits = f - self.centre, z
        for layer in self.layers:
            s = logits.softmax(dim=1)
            logits = z + self.weight * layer(y, torch.where(s > self.least, s, 0.0))
        return logits


class _Metric(nn.Module):
    """One layer: E, P and the squared lengths of E in P."""

    prototypes: Tensor
    metric: Tensor
    squares: Tensor

    def __init__(self, prototypes: Tensor, metric: Tensor, squares: Tensor) -> None:
        super().__init__()
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("metric", metric)
        self.register_buffer("squares", squares)

    def forward(self, y: Tensor, w: Tensor) -> Tensor:
        """The cosines N×C of centred features with the prototypes, to which each has been added by its weights w."""
        turned = y @ self.metric.double()
        own = (turned * y).sum(dim=1, keepdim=True)
        products = turned @ self.prototypes.double().T + own * w
        lengths = (self.squares + (2 * products - own * w) * w).clamp_min(SHORTEST).sqrt()
        return (products / lengths / own.clamp_min(SHORTEST).sqrt()).clamp(-1, 1)


def require_exportable(adapter: Adapter) -> None:
    """Refuse a state whose frozen answer is not computed here, with the reason."""
    if type(adapter) not in (PTA, WPTA):
        raise StateMismatch(
            f"a state of {adapter.name} can only be exported as prototypes, if it has them; those of pta and wpta can "
            "be exported as classifiers"
        )
    if adapter.in_front is not None:
        raise StateMismatch(
            f'offset="{adapter.parameters["offset"]}" shifts features in front of the rule, which no export holds'
        )


def samples_near(adapter: Adapter) -> Tensor:
    """Unit rows between texts, prototypes and noise, the same for equal states."""
    anchors, random = adapter.classifier.anchors.float(), torch.Generator().manual_seed(0)
    classes = torch.randint(len(anchors), (_COUNT,), generator=random)
    texts, images, noise = torch.rand(3, _COUNT, 1, generator=random)
    pure = normalize(torch.randn(_COUNT, anchors.shape[1], generator=random), dim=1)
    rows = texts * anchors[classes] + images * class_prototypes(adapter).float()[classes] + noise * pure
    return normalize(rows, dim=1)


def require_agreement(adapter: Adapter, features: Tensor, logits: Tensor) -> None:
    """Refuse logits that are not those that the library gives the features."""
    expected, difference = adapter.predict(features), float("nan")
    if logits.shape == expected.shape:
        difference = float((logits.double() - expected.double()).abs().max())
    if not difference <= LARGEST_DIFFERENCE:
        raise MachineFailure(
            f"the export answers otherwise than the library: a logit differs by {difference:.2g}, more than "
            f"{LARGEST_DIFFERENCE:g}; nothing was written"
        )
