"""TPT: Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models (NeurIPS 2022).

https://arxiv.org/abs/2209.07511

Keeps nothing from sample to sample: the words that all prompts begin with become vectors that are tuned for one sample.

For each sample with V views, the plain image first:
1. Start: the vectors of "a photo of a", as the text tower embeds them, and the class features T that they give.
2. Select the int(keep·V) views of lowest entropy, at least one, by their logits with T.
3. `steps` times:
   (a) L = entropy of the mean of the selected views' probabilities, with the present T;
       C-TPT (ICLR 2024, https://arxiv.org/abs/2403.14119): less ctpt·mean_c ‖T_c − mean of T‖.
   (b) One step of AdamW on the vectors, and T anew.
4. Score the plain image: scale·T·f.

Every sample starts from the same vectors, so T at the start is computed once. So is its Jacobian, after d samples and
if it fits into `max_gib`: from then on the first gradient is a matrix product. To make it costs as much as d samples.

The released program multiplies by CLIP's scale, 100; here it is the classifier's. The entropy's gradient grows with the
scale, but AdamW's first step hardly depends on the size of a gradient. At least one view is selected, which is our
choice. A sample whose gradient is not finite gets its zero-shot answer.
PTA on top of it (`combined`) learns from the plain image.
"""

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import choice, count, number, parameter, require_text
from pta.core.samples import Samples
from pta.engines.prompts.prompt_gradients import JacobianMap, PromptGradients
from pta.engines.prompts.view_entropy import by_entropy, entropy_of_mean, number_kept
from pta.engines.zero_shot import samples_at_once
from pta.errors import InvalidParameter
from pta.methods.gradient_method import PromptMethod

FirstGradient = Literal["auto", "map", "backward"]

_ARRAYS, _GRAPH = 1 / 8, 7 / 8  # shares of the memory: B×C×d numbers; the map and what autograd keeps
_ARRAYS_AT_ONCE = 6  # B×C×d numbers that a step holds


class TPT(PromptMethod):
    """Prompts tuned for each sample, so that its most confident views agree.

    The loop: `pta.reference.tpt.tpt_loop`.

    The gradient by T is a formula; only the text tower is differentiated by backward passes.
    """

    name = "tpt"
    keep: float = number(0.1, 0.0, 1.0, "share of the views that are selected")
    steps: int = count(1, 0, 100, "steps of AdamW")
    lr: float = number(5e-3, 0.0, 1.0, "learning rate")
    weight_decay: float = number(0.01, 0.0, 1.0, "weight decay of AdamW")
    ctpt: float = number(0.0, 0.0, 1e4, "λ, weight of C-TPT's dispersion of the class features (its authors: 50 or 20)")
    start: str = parameter("a photo of a", require_text, "a text", "the words that all prompts begin with")
    first_gradient: FirstGradient = choice(
        "auto", FirstGradient, "auto: by a map computed after d samples, if it fits; map: from the first sample on"
    )
    max_gib: float = number(1.0, 0.01, 1024.0, "memory for a step and the map, in GiB")

    def _declare_state(self) -> None:
        super()._declare_state()
        memory = self.max_gib * 2**30
        fitting = int(_ARRAYS * memory / (_ARRAYS_AT_ONCE * self.classifier.anchors.nbytes))
        self.max_batch = max(1, min(samples_at_once(self.classifier, views=64), fitting))
        map_bytes = JacobianMap.bytes(self.tower, self._words)
        least = 1.1 * map_bytes / _GRAPH  # a graph is needed beside the map, to make it and for later steps
        if self.first_gradient == "map" and least > memory:
            gib = least / 2**30
            raise InvalidParameter(f"the map of {self.name} needs max_gib={gib:.3g} or more, not {self.max_gib:g}")
        self._map_after = {"map": 0, "auto": self.classifier.dim, "backward": None}[self.first_gradient]
        if least > memory:
            self._map_after = None
        beside = 0 if self._map_after is None else map_bytes
        self._prompts = PromptGradients(self.tower, _GRAPH * memory - beside)

    def _logits(self, samples: Samples) -> Tensor:
        """Steps 1 to 4."""
        T = self._initial.expand(len(samples), -1, -1)
        views = self._views(samples)
        selected = self._selected(views, self._scores(views.double(), T.double()))
        contexts = self._words.expand(len(samples), -1, -1).clone()
        optimiser = torch.optim.AdamW([contexts], lr=self.lr, weight_decay=self.weight_decay)
        for done in range(self.steps):
            by_features = self._gradient_by_features(selected, T)
            if done == 0 and self._map_after is not None and self.position >= self._map_after:
                contexts.grad = self._map(by_features)
            else:
                contexts.grad = self._prompts.pull_back(contexts, by_features)
            optimiser.step()
            T = self._prompts.read(contexts)
        return self._scores(views[:, :1], T)[:, 0]

    def _views(self, samples: Samples) -> Tensor:
        """The views that take part, B×V×d, the plain image first."""
        return samples.tensors()["views"]

    def _selected(self, views: Tensor, z: Tensor) -> Tensor:
        """Step 2: the selected of the views, B×n×d, by their logits in float64."""
        return views.take_along_dim(by_entropy(z)[:, : number_kept(views.shape[1], self.keep), None], dim=1)

    def _gradient_by_features(self, selected: Tensor, T: Tensor) -> Tensor:
        """∂L/∂T of step 3a, B×C×d.

        Of the entropy in float64: AdamW turns small gradients into steps of full size, and those of a confident sample
        are differences of nearly equal numbers.
        """
        _, by_logits = entropy_of_mean(self._scores(selected.double(), T.double()))
        gradient = self.classifier.scale * (by_logits.mT @ selected.double()).to(T.dtype)
        if self.ctpt:
            away = normalize(T - T.mean(dim=1, keepdim=True), dim=2)
            gradient -= self.ctpt / T.shape[1] * (away - away.mean(dim=1, keepdim=True))
        return gradient

    @cached_property
    def _initial(self) -> Tensor:
        """T of the words themselves, C×d."""
        return self._prompts.read(self._words[None])[0]

    @cached_property
    def _map(self) -> JacobianMap:
        return self._prompts.map_at(self._words)
