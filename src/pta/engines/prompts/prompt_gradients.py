"""Class features as a function of the prompt's context, and their gradient, within a given memory.

Autograd keeps about 0.3 MB per token of CLIP's text tower. So the gradient of ⟨T, G⟩ is taken one part of the classes
at a time, and parts are added up: the features T depend on the context class by class. What a class costs is measured
once, on the longest and the shortest prompt.

Where every sample starts from the same context, T and its Jacobian there are constants: the first gradient is
a linear map of G (`JacobianMap`), which needs no backward pass.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pta.core.towers import PromptTower

PartGradient = Callable[[Tensor, Tensor], Tensor]

_WARM_UP = 2  # calls before the recording, in which libraries choose their kernels and take their memory
_BACKWARD = 1.6  # the gradients that are alive beside what autograd kept, as a factor; measured: 1.4


class PromptGradients:
    """Reads contexts B×n×width, and gives gradients by them, with at most `max_bytes` of a graph at a time."""

    def __init__(self, tower: PromptTower, max_bytes: float) -> None:
        self.tower, self.graph_bytes = tower, max_bytes / _BACKWARD
        self.shared_cost, self.own_costs = _kept_bytes_by_class(tower)
        self.classes = _parts(self.own_costs, self.graph_bytes - self.shared_cost)
        # Recorded on a GPU, where thousands of small kernels would otherwise cost more to launch than to run.
        self.is_recorded = tower.recordable and tower.context.is_cuda
        self._recorded: dict[torch.dtype, list[PartGradient]] = {}
        fitting = int(self.graph_bytes / (float(self.own_costs.sum()) + self.shared_cost))
        self.contexts_at_once = 1 if self.is_recorded else max(1, fitting)

    @torch.no_grad()
    def read(self, contexts: Tensor) -> Tensor:
        """Class features B×C×d of contexts."""
        return self.tower.read(contexts)

    def pull_back(self, contexts: Tensor, weights: Tensor) -> Tensor:
        """The gradient of Σ weights·features by the contexts: B×C×d to B×n×width.

        It is linear in the weights. Those that go through the tower are at most 1, so that a tower in half precision
        does not lose small ones.
        """
        largest = weights.abs().amax(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        pairs = zip(*(torch.split(one, self.contexts_at_once) for one in (contexts, weights / largest)), strict=True)
        found = []
        for some, own in pairs:
            parts = (
                gradient(some.detach(), own[:, classes])
                for gradient, classes in zip(self._part_gradients(contexts.dtype), self.classes, strict=True)
            )
            found.append(sum(parts, torch.zeros_like(some)))
        return torch.cat(found) * largest

    def map_at(self, context: Tensor) -> "JacobianMap":
        """∂T/∂context at one context."""
        matrix = context.new_empty(self.tower.classes, self.tower.dim, context.numel())
        for classes in _parts(self.own_costs + self.shared_cost, self.graph_bytes):
            matrix[classes] = _jacobians(self.tower.part(classes), context)
        return JacobianMap(matrix.flatten(0, 1), context.shape)

    def _part_gradients(self, dtype: torch.dtype) -> list[PartGradient]:
        """For each part of the classes, the gradient of Σ weights·features by contexts of this precision."""
        if not self.is_recorded:
            return self._plain_gradients
        if dtype not in self._recorded:
            pool = torch.cuda.graph_pool_handle()  # they run one after the other, so they can share memory
            like = self.tower.context.to(dtype)[None]
            self._recorded[dtype] = [
                _recorded(gradient, like.clone(), like.new_zeros(1, len(classes), self.tower.dim), pool=pool)
                for gradient, classes in zip(self._plain_gradients, self.classes, strict=True)
            ]
        return self._recorded[dtype]

    @cached_property
    def _plain_gradients(self) -> list[PartGradient]:
        return [partial(_gradient, self.tower.part(classes)) for classes in self.classes]


class JacobianMap(NamedTuple):
    """∂T/∂context at one context: d backward passes once, a matrix product for every sample after."""

    matrix: Tensor  # C·d×n·width
    shape: torch.Size  # of the context, n×width

    def __call__(self, weights: Tensor) -> Tensor:
        """The gradient of Σ weights·features by the context: B×C×d to B×n×width."""
        return (weights.flatten(1) @ self.matrix).reshape(-1, *self.shape)

    @staticmethod
    def bytes(tower: PromptTower, context: Tensor) -> int:
        """The memory that the map of a tower takes."""
        return tower.classes * tower.dim * context.numel() * context.element_size()


@torch.enable_grad()
def _jacobians(tower: PromptTower, context: Tensor) -> Tensor:
    """C×d×n·width: every class has a context of its own, so a backward pass gives a row of all."""
    leaf = context.detach().repeat(tower.classes, 1, 1).requires_grad_()
    columns = tower.read_each(leaf).sum(dim=0)
    rows = [torch.autograd.grad(column, leaf, retain_graph=True)[0].flatten(1) for column in columns]
    return torch.stack(rows, dim=1)


@torch.enable_grad()
def _gradient(tower: PromptTower, contexts: Tensor, weights: Tensor) -> Tensor:
    contexts.requires_grad_()
    return torch.autograd.grad(tower.read(contexts), contexts, weights)[0]


def _parts(costs: Tensor, max_batch: float) -> tuple[Tensor, ...]:
    """The numbers of the classes, the costly ones first, in parts that cost no more than that together, or of one."""
    order = costs.argsort(descending=True, stable=True)
    starts, taken = [0], 0.0
    for number, cost in enumerate(costs[order].tolist()):
        if taken and taken + cost > max_batch:
            starts.append(number)
            taken = 0.0
        taken += cost
    return order.tensor_split(starts[1:])


def _kept_bytes_by_class(tower: PromptTower) -> tuple[float, Tensor]:
    """What autograd keeps of a context for what all classes share, and for each of them, C: a line in their length."""
    longest, shortest = int(tower.lengths.argmax()), int(tower.lengths.argmin())

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


def _recorded(function: Callable[..., Tensor], *like: Tensor, pool: Any = None) -> Callable[..., Tensor]:
    """The function recorded as a CUDA graph, for tensors like these, which are overwritten; all its work is on the GPU.

    Recordings that share a pool must not run at the same time.
    """
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_WARM_UP):
            function(*like)
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        answer = function(*like)

    def replay(*given: Tensor) -> Tensor:
        with torch.no_grad():
            for place, one in zip(like, given, strict=True):
                place.copy_(one)
        graph.replay()
        return answer.clone()

    return replay
