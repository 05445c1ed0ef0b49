"""HisTPT: Historical Test-time Prompt Tuning for Vision Foundation Models (NeurIPS 2024).

https://arxiv.org/abs/2410.20346

Keeps the context, which is tuned on and on, and three memories of the class features T that it has given: the last
`slots` of them with the entropy of their sample (local), `slots` means of the most uncertain of these (hard), and a
running mean (global).

For each sample with V views, the plain image first:
1. T of the present context. z: the logits of the int(keep·V) views of lowest entropy, at least one.
2. Local: T and the entropy of the mean probabilities of z enter, the oldest leaves.
3. Hard: the mean of the `uncertain` local entries of highest entropy enters, the oldest leaves.
4. Global ← momentum·global + (1 − momentum)·½(oldest of local + oldest of hard).
5. Three answers for the plain image, with the mean of local, the mean of hard, and global. Weigh them by the softmax of
   their negative entropies: the sum is the fused answer.
6. L: cross-entropy of z with the most probable class of the fused answer, mean over the views.
7. One step of AdamW on the context. Its moments go on from sample to sample.
8. Score the plain image with the T of the new context; with `answer="fused"`, give the fused answer.

At the first sample that is learned, every memory holds T, and every entropy is that of the sample.

The authors released a program for segmentation only. From it come the memories and their sizes, momentum and loss; it
computes entropies of raw logits, which is not imitated. For classification no constant was published: to take these
sizes and this momentum, one context for all classes, the views and `keep`, AdamW with TPT's learning rate and weight
decay, and the answer of step 8 are our choices.
PTA on top of it (`combined`) learns from the plain image.
"""

from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pta.core.parameters import choice, count, number, parameter, require_text
from pta.core.samples import Samples
from pta.engines.prompts.prompt_gradients import PromptGradients
from pta.engines.prompts.view_entropy import by_entropy, entropy_of_mean, number_kept
from pta.engines.zero_shot import entropy_of
from pta.errors import InvalidParameter
from pta.methods.gradient_method import PromptMethod
from pta.methods.state import UNIT_BALL, UNIT_ROWS, between, doubles, entropies

Answer = Literal["tuned", "fused"]
Memories = tuple[Tensor, Tensor, Tensor, Tensor]
"""Local, its entropies, hard and global."""

_LARGEST = 1e6  # of the context's entries and of gradients; those of CLIP are below 1


class HisTPT(PromptMethod):
    """A prompt tuned along the stream, with pseudo-labels from three memories.

    The loop: `pta.reference.histpt.histpt_loop`.
    """

    name = "histpt"
    fixed_classes = "it tunes one prompt for all classes"
    keep: float = number(0.1, 0.0, 1.0, "share of the views that are selected (our choice)")
    lr: float = number(5e-3, 0.0, 1.0, "learning rate of AdamW (our choice)")
    weight_decay: float = number(0.01, 0.0, 1.0, "weight decay of AdamW (our choice)")
    slots: int = count(32, 1, 1024, "entries of the local and of the hard memory (as for segmentation; our choice)")
    uncertain: int = count(
        16, 1, 1024, "number of local entries that form one entry of the hard memory (as for segmentation; our choice)"
    )
    momentum: float = number(
        0.99, 0.0, 1.0, "share of the global memory that is kept at each sample (as for segmentation; our choice)"
    )
    answer: Answer = choice("tuned", Answer, "by the tuned prompt, or by fusing the three memories (our choice)")
    start: str = parameter(
        "a photo of a", require_text, "a text", "the words that all prompts begin with (TPT's; our choice)"
    )
    max_gib: float = number(1.0, 0.01, 1024.0, "memory for a backward pass, in GiB")

    def _declare_state(self) -> None:
        super()._declare_state()
        if self.uncertain > self.slots:
            raise InvalidParameter(f"uncertain={self.uncertain} entries cannot be among slots={self.slots}")
        self._read: Tensor | None = None
        self.prompts = PromptGradients(self.tower, self.max_gib * 2**30)
        initial = self.prompts.read(self._words[None])[0]
        shared, numbers = partial(self.add_state, per_class=False), between(-_LARGEST, _LARGEST)
        self.context = shared("context", lambda _: self._words.clone(), numbers)
        # AdamW's moments: the means of the gradients and of their squares, and how many there were
        self.mean = shared("mean", lambda _: 0 * self._words, numbers)
        self.square = shared("square", lambda _: 0 * self._words, between(0, _LARGEST**2))
        self.updates = self.add_counter("updates")
        # the memories, C×slots×d with the newest first, the entropies of the local one, and the global one, C×d
        self.local = self.add_state("local", lambda _: initial[:, None].repeat(1, self.slots, 1), UNIT_ROWS)
        self.hard = self.add_state("hard", self.pieces["local"].initial, UNIT_BALL)
        self.overall = self.add_state("overall", lambda _: initial.clone(), UNIT_BALL)
        self.entropies = shared("entropies", doubles(0.0, self.slots), entropies(self.classifier.classes))

    def _step(self, samples: Samples) -> Tensor:
        views, T = samples.tensors()["views"][0], self._features
        z = self._scores(views.double(), T.double())
        selected = by_entropy(z)[: number_kept(len(views), self.keep)]
        memories = self._with_entry(T, entropy_of_mean(z[selected])[0])
        fused = self._fused(views[:1], memories)
        by_logits = z[selected].softmax(dim=1) - one_hot(fused.argmax(dim=1), self.classifier.classes)
        by_features = self.classifier.scale / len(selected) * by_logits.T @ views[selected].double()
        gradient = self.prompts.pull_back(self.context[None], by_features.to(T)[None])[0]
        if not bool((gradient.abs() <= _LARGEST).all()):  # nor where it is NaN
            return self._or_zero_shot(samples, torch.full_like(fused, torch.nan), count=True)
        for memory, now in zip((self.local, self.entropies, self.hard, self.overall), memories, strict=True):
            memory.copy_(now)
        self._tune(gradient)
        return fused if self.answer == "fused" else self._scores(views[:1], self._features)

    def _predict(self, samples: Samples) -> Tensor:
        plain = samples.tensors()["views"][:, 0]
        if self.answer == "tuned":
            return self._scores(plain, self._features)
        return self._fused(plain, (self.local, self.entropies, self.hard, self.overall))

    def _with_entry(self, T: Tensor, entropy: Tensor) -> Memories:
        """Steps 2 to 4; the newest entry is the first."""
        uncertainty = torch.cat([entropy[None], self.entropies[:-1]]) if self.updates else entropy.expand(self.slots)
        local = torch.cat([T[:, None], self.local[:, :-1]], dim=1)
        most_uncertain = uncertainty.argsort(descending=True, stable=True)[: self.uncertain]
        hard = torch.cat([local[:, most_uncertain].mean(dim=1, keepdim=True), self.hard[:, :-1]], dim=1)
        return local, uncertainty, hard, self.overall.lerp((local[:, -1] + hard[:, -1]) / 2, 1 - self.momentum)

    def _fused(self, plain: Tensor, memories: Memories) -> Tensor:
        """Step 5, B×C."""
        local, _, hard, overall = memories
        rows = torch.stack([local.mean(dim=1), hard.mean(dim=1), overall])
        z = self.classifier.scores(plain.double() @ rows.double().mT)  # 3×B×C
        weights = (-entropy_of(z.softmax(dim=2))).softmax(dim=0)
        return (weights[:, :, None] * z).sum(dim=0).to(plain.dtype)

    def _tune(self, gradient: Tensor) -> None:
        """Step 7."""
        self.updates += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.lerp_(gradient**2, 0.001)
        updates = self.updates.double()  # powers of whole numbers would be float32
        mean, square = self.mean / (1 - 0.9**updates), self.square / (1 - 0.999**updates)
        self.context.mul_(1 - self.lr * self.weight_decay).sub_(self.lr * mean / (square.sqrt() + 1e-8))
        self.context.clamp_(-_LARGEST, _LARGEST)
        self._state_replaced()

    def _state_replaced(self) -> None:
        self._read = None

    @property
    def _features(self) -> Tensor:
        """T of the present context, C×d, read once."""
        if self._read is None:
            self._read = self.prompts.read(self.context[None])[0].to(self.classifier.anchors)
        return self._read
