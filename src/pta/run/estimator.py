"""PTAClassifier: a method on features, in the shape of a scikit-learn classifier."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import plain_tensor
from pta.core.samples import Samples
from pta.errors import InvalidParameter, MissingPackage, how_to_install
from pta.methods import DEFAULT_METHOD, create_adapter
from pta.methods.frozen import warn_if_frozen_early

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingPackage(f"PTAClassifier needs scikit-learn 1.6 or later; {how_to_install('sklearn')}") from None


class PTAClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Test-time adaptation as a scikit-learn classifier on features, N×d.

    `fit` and `partial_fit` learn from rows without labels. `predict`, `predict_proba` and `decision_function` learn
    nothing. Only the direction of a row counts: rows are scaled to unit length, and a zero row is refused.

    Args:
        anchors: text features, C×d, of the model that made the rows. Without them `fit` needs labels, and takes the
            unit mean of each class's unit rows as its anchor.
        class_names: the label of each anchor, text or number; 0…C−1 if they are not given. With `anchors` alone.
        method: the adaptation method; `fit` refuses one that needs more than features.
        scale: the factor on the cosine (CLIP: 100).
        bias: added to every logit (SigLIP has one).
        parameters: the method's parameters, by name.

    Attributes:
        classes_: the labels, sorted, in the order of the columns of `predict_proba`.
        adapter_: the `pta.Adapter` that has learned.

    >>> X = [[0.9, 0.1], [0.2, 0.8], [0.7, 0.4]]
    >>> PTAClassifier(anchors=[[1.0, 0.0], [0.0, 1.0]], class_names=["cat", "dog"]).fit(X).predict(X)
    array(['cat', 'dog', 'cat'], dtype='<U3')
    """

    def __init__(
        self,
        anchors: Any = None,
        class_names: Any = None,
        method: str = DEFAULT_METHOD,
        *,
        scale: float = 100.0,
        bias: float = 0.0,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.anchors = anchors
        self.class_names = class_names
        self.method = method
        self.scale = scale
        self.bias = bias
        self.parameters = parameters

    def fit(self, X: Any, y: Any = None) -> Self:
        """Start over and learn the rows of X in order; y is used only where there are no `anchors`."""
        if self.anchors is None:
            if self.class_names is not None:
                raise InvalidParameter(
                    "class_names are the labels of anchors, which are missing; without them y has the labels"
                )
            X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
            check_classification_targets(y)
            classes, anchors = _class_means(X, y)
        else:
            X = validate_data(self, X, dtype=(np.float64, np.float32))
            classes, anchors = _sorted_anchors(self.anchors, self.class_names)
        classifier = ZeroShotClassifier(anchors, [str(name) for name in classes], self.scale, self.bias)
        if not isinstance(self.parameters, Mapping | None):
            raise InvalidParameter(
                f"parameters must be a dict of names and values, got {type(self.parameters).__name__}"
            )
        adapter = create_adapter(self.method, classifier, source=len(X), **(self.parameters or {}))
        adapter.step(X)
        self.classes_, self.adapter_ = classes, adapter
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Learn more rows; y is ignored, except by the first call without `anchors`, which is `fit`."""
        if hasattr(self, "adapter_"):
            self.adapter_.step(self._rows(X))
            return self
        if self.anchors is None and y is not None and classes is not None:
            for missing in np.setdiff1d(classes, y):
                todo = "give anchors, or rows of all classes first"
                raise InvalidParameter(f"class {missing} has no row in the first call of partial_fit; {todo}")
        return self.fit(X, y)

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each row."""
        best = self._logits(X).argmax(dim=1)
        return self.classes_[best.numpy()]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, N×C (see `Adapter.probabilities`)."""
        logits = self._logits(X)
        return self.adapter_.probabilities_unchecked(logits).numpy()

    def decision_function(self, X: Any) -> NDArray[Any]:
        """The logits, N×C; of two classes the second's minus the first's, N."""
        logits = self._logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.anchors is None
        return tags

    def _logits(self, X: Any) -> Tensor:
        rows = self._rows(X)
        warn_if_frozen_early(self.adapter_, stacklevel=3)
        return self.adapter_.predict(rows)

    def _rows(self, X: Any) -> Samples:
        check_is_fitted(self)
        return Samples.of(validate_data(self, X, reset=False, dtype=(np.float64, np.float32)))


def _class_means(X: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The labels, sorted, and the mean of each one's unit rows."""
    classes, number = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InvalidParameter("a classifier needs rows of at least two classes, got 1 class")
    unit = Samples.of(X).features.numpy()
    return classes, np.stack([unit[number == one].mean(axis=0) for one in range(len(classes))])


def _sorted_anchors(anchors: Any, names: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels and anchors, sorted by label as scikit-learn's metrics expect it."""
    given = plain_tensor("anchors", anchors, InvalidParameter).numpy(force=True)
    labels = np.arange(given.shape[0] if given.ndim else 0) if names is None else np.asarray(names)
    if labels.dtype == object and len({type(label) for label in labels.flat}) > 1:
        raise InvalidParameter("class_names must be all text or all numbers, because they are sorted")
    classes, rows = np.unique(labels, return_index=True)
    if labels.shape != given.shape[:1] or len(classes) != len(labels):
        got = f"got {len(classes)} different ones in shape {labels.shape}"
        raise InvalidParameter(f"class_names must be {len(given)} different labels, one per anchor; {got}")
    return classes, given[rows]
