"""GradientMethod: what methods that follow a gradient have in common."""

import torch
from torch import Tensor

from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.methods.adapter import Adapter


class GradientMethod(Adapter):
    """A method that follows a gradient for every sample.

    A sample whose gradient is not finite gets its zero-shot answer, teaches nothing, and is counted.
    """

    def _declare_state(self) -> None:
        # how many samples that was
        self.without_gradient = self.add_counter("without_gradient")

    def remarks(self) -> list[str]:
        """What a user should know of the samples so far."""
        if not (lost := int(self.without_gradient)):
            return []
        return [f"{self.name}: {lost:,} sample(s) had no finite gradient and got their zero-shot prediction"]

    def _logits(self, samples: Samples) -> Tensor:
        """The logits of a method that learns nothing from one sample for the next, B×C; not finite without gradient."""
        raise NotImplementedError

    def _step(self, samples: Samples) -> Tensor:
        return self._or_zero_shot(samples, self._logits(samples), count=True)

    def _predict(self, samples: Samples) -> Tensor:
        return self._or_zero_shot(samples, self._logits(samples), count=False)

    def _or_zero_shot(self, samples: Samples, logits: Tensor, *, count: bool) -> Tensor:
        """The logits (B×C), and zero-shot's for a sample where some are not finite; such samples are counted."""
        finite = torch.isfinite(logits).all(dim=1)
        if is_host_readable(finite) and finite.all():
            return logits
        if count:
            self.without_gradient += (~finite).sum()
        return torch.where(finite[:, None], logits, self.zero_shot(samples).logits)


class PromptMethod(GradientMethod):
    """A method that tunes the words that the prompts of all classes begin with."""

    needs = frozenset({"features", "views", "prompt tower"})
    may_fail = False
    start: str

    def _declare_state(self) -> None:
        super()._declare_state()
        assert self.model is not None  # checked by `needs`
        self.tower = self.model.prompt_tower(self.classifier.class_names, self.start)

    @property
    def _words(self) -> Tensor:
        """The vectors of the words themselves, in the precision of the answers."""
        return self.tower.context.to(self.classifier.anchors)

    def _scores(self, features: Tensor, T: Tensor) -> Tensor:
        """Logits …×V×C of features …×V×d with class features …×C×d."""
        return self.classifier.scores(features @ T.mT)
