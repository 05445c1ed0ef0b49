"""Methods that look at a sample's first views, as many as they are told, or at its feature alone."""

from collections.abc import Mapping
from typing import Any

from pta.core.parameters import count
from pta.core.samples import Samples
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter


def views_if_several() -> Any:
    """Declare how many views a method looks at; views are needed only if there are several."""
    return count(1, 1, 2**16, "V, number of stored views that are used, from the first on; 1: only the feature")


class OfFirstViews(Adapter):
    """A method with the parameter `first_views`."""

    first_views: int

    @classmethod
    def _needs_with(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        """Views, unless it is told to look at one only."""
        several = parameters.get("first_views", cls.declared["first_views"].default) != 1
        return cls.needs | {"views"} if several else cls.needs

    def require(self, samples: Samples) -> None:
        """Refuse samples with too few views."""
        super().require(samples)
        if samples.views is not None and samples.views.shape[1] < self.first_views:
            raise InvalidSamples(
                f"{self.name} needs {self.first_views} views, but the samples have {samples.views.shape[1]}; "
                f"make more with --views {self.first_views}, or choose fewer: --set {self.name}.first_views=…"
            )
