"""Methods that look at a sample's first views, as many as they are told, or at its feature alone."""

from typing import Any, ClassVar

from pta.core.parameters import count
from pta.core.samples import Samples
from pta.errors import InvalidSamples
from pta.methods.adapter import Adapter


def views_if_several() -> Any:
    """Declare how many views a method looks at; views are needed only if there are several."""
    return count(1, 1, 2**16, "V, number of stored views that are used, from the first on; 1: only the feature")


class OfFirstViews(Adapter):
    """A method with the parameter `first_views`."""

    needs = frozenset({"features", "views"})
    needed_unless: ClassVar[tuple[tuple[str, str, object], ...]] = (("views", "first_views", 1),)
    first_views: int

    def require(self, samples: Samples) -> None:
        """Refuse samples with too few views."""
        super().require(samples)
        if samples.views is not None and samples.views.shape[1] < self.first_views:
            raise InvalidSamples(
                f"{self.name} needs {self.first_views} views, but the samples have {samples.views.shape[1]}; "
                f"make more with --views {self.first_views}, or choose fewer: --set {self.name}.first_views=…"
            )
