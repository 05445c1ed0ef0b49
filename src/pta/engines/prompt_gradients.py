"""Class features as a function of the prompt's context, and their gradient, within a given memory.

Autograd keeps about 0.3 MB per token of CLIP's text tower. So the gradient of ⟨T, G⟩ is taken one part of the classes
at a time, and parts are added up: the features T depend on the context class by class. What a class costs is measured
once, on the longest and the shortest prompt.

Where every sample starts from the same context, T and its Jacobian there are constants: the first gradient is
a linear map of G (`JacobianMap`), which needs no backward pass.
"""

from functools import cached_property

import torch
from torch import Tensor

from pta.towers import PromptTower

_BACKWARD = 1.6  # the gradients that are alive beside what autograd kept, as a factor; measured: 1.4


class PromptGradients:
    """Reads contexts B×n×width, and gives gradients by them, with at most `max_bytes` of a graph at a time."""

    def __init__(self, tower: PromptTower, max_bytes: float) -> None:
        self.tower = tower
        order = tower.lengths.argsort(descending=True, stable=True)
        shared, own = _kept_bytes_by_class(tower, int(order[0]), int(order[-1]))
        at_once = max_bytes / _BACKWARD - shared
        costs = own[order].tolist()
        starts, taken = [0], 0.0
        for number, cost in enumerate(costs):
            if taken and taken + cost > at_once:
                starts.append(number)
                taken = 0.0
            taken += cost
        self.classes = order.tensor_split(starts[1:])
        self.contexts_at_once = max(1, int((at_once + shared) / (sum(costs) + shared)))

    @torch.no_grad()
    def read(self, contexts: Tensor) -> Tensor:
        """Class features B×C×d of contexts."""
        return self.tower.read(contexts)

    @torch.enable_grad()
    def pull_back(self, contexts: Tensor, weights: Tensor) -> Tensor:
        """The gradient of Σ weights·features by the contexts: B×C×d to B×n×width.

        It is linear in the weights. Those that go through the tower are at most 1, so that a tower in half precision
        does not lose small ones.
        """
        largest = weights.abs().amax(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        pairs = zip(*(torch.split(one, self.contexts_at_once) for one in (contexts, weights / largest)), strict=True)
        found = []
        for some, own in pairs:
            leaf = some.detach().requires_grad_()
            parts = (
                torch.autograd.grad(part.read(leaf), leaf, own[:, classes])[0]
                for part, classes in zip(self._parts, self.classes, strict=True)
            )
            found.append(sum(parts, torch.zeros_like(some)))
        return torch.cat(found) * largest

    @cached_property
    def _parts(self) -> list[PromptTower]:
        return [self.tower.part(classes) for classes in self.classes]


class JacobianMap:
    """∂T/∂context at one context, C·d×n·width: d backward passes once, a matrix product for every sample after."""

    def __init__(self, tower: PromptTower, context: Tensor) -> None:
        self.matrix, self.shape = context.new_empty(tower.classes * tower.dim, context.numel()), context.shape
        for number, rows in enumerate(torch.split(self.matrix, tower.dim)):
            rows.copy_(_jacobian(tower.part(torch.tensor([number], device=context.device)), context))

    def __call__(self, weights: Tensor) -> Tensor:
        """The gradient of Σ weights·features by the context: B×C×d to B×n×width."""
        return (weights.flatten(1) @ self.matrix).reshape(-1, *self.shape)

    @staticmethod
    def bytes(tower: PromptTower, context: Tensor) -> int:
        """The memory that the map of a tower takes."""
        return tower.classes * tower.dim * context.numel() * context.element_size()


@torch.enable_grad()
def _jacobian(tower: PromptTower, context: Tensor) -> Tensor:
    """Of a tower with one class, d×n·width."""
    leaf = context.detach().requires_grad_()
    feature = tower.read(leaf[None])[0, 0]
    every = torch.eye(len(feature), dtype=feature.dtype, device=feature.device)
    return torch.autograd.grad(feature, leaf, every, is_grads_batched=True)[0].flatten(1)


def _kept_bytes_by_class(tower: PromptTower, longest: int, shortest: int) -> tuple[float, Tensor]:
    """What autograd keeps of a context for what all classes share, and for each of them, C: a line in their length."""

    def kept(contexts: int, *classes: int) -> int:
        part = tower.part(torch.tensor(classes, device=tower.lengths.device))
        return _kept_bytes(part, tower.context.expand(contexts, -1, -1))

    most, least = (kept(1, number, number) - kept(1, number) for number in (longest, shortest))
    shared = kept(2, longest) - kept(1, longest) - most
    lengths = tower.lengths.double()
    slope = (most - least) / max(1.0, float(lengths[longest] - lengths[shortest]))
    return shared, (least + slope * (lengths - lengths[shortest])).clamp_min(1.0)


@torch.enable_grad()
def _kept_bytes(tower: PromptTower, contexts: Tensor) -> int:
    """The size of all tensors that the graph of reading contexts keeps, the tower's own weights included."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = tower.read(contexts.detach().clone().requires_grad_())
    del features  # lives until here, so that no two tensors had one address
    return sum(sizes.values())
