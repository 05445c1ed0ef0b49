"""GradientMethod: what methods that follow a gradient have in common."""

import torch
from torch import Tensor

from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter
from pta.methods.state import full


class GradientMethod(Adapter):
    """A method that follows a gradient for every sample.

    A sample whose gradient is not finite gets its zero-shot answer, teaches nothing, and is counted.
    """

    def _declare_state(self) -> None:
        # how many samples that was
        self.without_gradient = self.add_state("without_gradient", full(0, dtype=torch.int64), per_class=False)

    def remarks(self) -> list[str]:
        """What a user should know of the samples so far."""
        lost = int(self.without_gradient)
        said = f"{self.name}: {lost:,} sample(s) had no finite gradient and got their zero-shot prediction"
        return [said] if lost else []

    def _or_zero_shot(self, samples: Samples, logits: Tensor, *, count: bool) -> Tensor:
        """The logits (B×C), and zero-shot's for a sample where some are not finite; such samples are counted."""
        finite = torch.isfinite(logits).all(dim=1)
        if is_host_readable(finite) and finite.all():
            return logits
        if count:
            self.without_gradient += (~finite).sum()
        return torch.where(finite[:, None], logits, self.zero_shot(samples).logits)


def require_views(name: str, samples: Samples, views: int) -> None:
    """Refuse samples with fewer views than a method is told to look at."""
    if samples.views is not None and samples.views.shape[1] < views:
        raise InvalidSamples(
            f"{name} needs {views} views, but the samples have {samples.views.shape[1]}; "
            f"make more with --views {views}, or choose fewer: --set {name}.first_views=…"
        )
