"""`pta.PTAClassifier`: a method on features, as scikit-learn's tools use a classifier."""

import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

import pta
from pta.data.features import load_features
from pta.errors import InvalidParameter, InvalidSamples, MissingPackage

EXPECTED_FAILURES = {
    "check_estimators_dtypes": "its integer data has rows of zeros, which have no direction and are refused",
}


@parametrize_with_checks(
    [pta.PTAClassifier(), pta.PTAClassifier(method="pta")], expected_failed_checks=lambda _: EXPECTED_FAILURES
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def animals(pets):
    """Features, anchors, names and labels of four classes."""
    data = load_features(pets)
    names = np.array(data.classifier.class_names)
    return data.samples.features.numpy(), data.classifier.anchors.numpy(), names, names[data.labels]


@pytest.fixture
def estimator(animals):
    return pta.PTAClassifier(animals[1], animals[2], parameters={"ridge": 10.0})


def test_fit_learns_what_the_adapter_learns_and_needs_no_labels(animals, estimator):
    X, anchors, names, _ = animals
    adapter = pta.create_adapter("wpta", pta.ZeroShotClassifier(anchors, list(names)), ridge=10.0)
    adapter.step(X[:200])
    logits = adapter.predict(X[200:])
    assert estimator.fit(X[:200]).adapter_.position == 200
    np.testing.assert_allclose(estimator.decision_function(X[200:]), logits.numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(estimator.predict_proba(X[200:]), adapter.probabilities(logits).numpy(), atol=1e-4)
    assert list(estimator.predict(X[200:])) == [names[best] for best in logits.argmax(dim=1).tolist()]


def test_fit_starts_over_partial_fit_goes_on_and_answers_teach_nothing(animals, estimator):
    X, _, _, y = animals
    whole = estimator.fit(X).decision_function(X)
    parts = clone(estimator).partial_fit(X[:100]).partial_fit(X[100:], y[::-1][100:])
    assert parts.adapter_.position == estimator.fit(X, y[::-1]).adapter_.position == 300
    for one in (parts, estimator):
        np.testing.assert_allclose(one.decision_function(X), whole, rtol=1e-4, atol=1e-3)
        one.predict(X), one.predict_proba(X)
        assert one.adapter_.position == 300


def test_classes_are_sorted_whatever_the_order_of_the_anchors(animals):
    X, anchors, names, y = animals
    mixed = [2, 0, 3, 1]
    one, other = pta.PTAClassifier(anchors, names).fit(X), pta.PTAClassifier(anchors[mixed], names[mixed]).fit(X)
    assert list(one.classes_) == list(other.classes_) == sorted(names)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)
    assert one.score(X, y) > 0.3
    assert list(pta.PTAClassifier(anchors).fit(X).classes_) == [0, 1, 2, 3]


def test_a_copy_a_pickle_and_a_pipeline_answer_the_same(animals, estimator):
    X, _, _, y = animals
    expected = estimator.fit(X).predict(X)
    assert not hasattr(clone(estimator), "adapter_")
    assert (pickle.loads(pickle.dumps(estimator)).predict(X) == expected).all()
    assert (make_pipeline(Normalizer(), clone(estimator)).fit(X, y).predict(X) == expected).all()


def test_a_grid_search_finds_parameters_and_the_method(animals, estimator):
    X, _, _, y = animals
    found = GridSearchCV(estimator, {"parameters": [{"ridge": ridge} for ridge in (0.5, 4.0, 50.0)]}, cv=2).fit(X, y)
    assert found.best_estimator_.adapter_.ridge == found.best_params_["parameters"]["ridge"]
    methods = GridSearchCV(pta.PTAClassifier(), {"method": ["clip", "tda", "pta", "wpta"]}, cv=2).fit(X, y)
    assert methods.best_score_ > 0.3


def test_without_anchors_the_means_of_labelled_rows_are_the_anchors(animals):
    X, _, _, y = animals
    fitted = pta.PTAClassifier(method="clip").fit(X, y)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([unit[y == name].mean(axis=0) for name in fitted.classes_])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.decision_function(X), 100 * unit @ means.T, rtol=1e-4, atol=1e-3)


def test_the_document_names_what_is_expected_to_fail():
    page = (Path(__file__).parents[1] / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(check_estimators_\w+)`", page)) == set(EXPECTED_FAILURES)


def test_without_scikit_learn_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "pta.run.estimator")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingPackage, match=r"needs scikit-learn .*; run pip install 'pta-vlm\[sklearn\]'"):
        pta.PTAClassifier  # noqa: B018 (importing it is what is tried)


def test_mistakes_are_named(animals, estimator):
    X, anchors, names, y = animals
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    with pytest.raises(InvalidParameter, match="must be 4 different labels, one per anchor; got 3"):
        pta.PTAClassifier(anchors, names[:3]).fit(X)
    with pytest.raises(InvalidParameter, match="got 1 different ones"):
        pta.PTAClassifier(anchors, ["cat"] * 4).fit(X)
    with pytest.raises(InvalidParameter, match="all text or all numbers"):
        pta.PTAClassifier(anchors, [1, "cat", None, 3]).fit(X)
    with pytest.raises(InvalidParameter, match="labels of anchors, which are missing"):
        pta.PTAClassifier(class_names=names).fit(X, y)
    with pytest.raises(InvalidParameter, match="parameters must be a dict of names and values, got list"):
        pta.PTAClassifier(anchors, parameters=["h"]).fit(X)
    with pytest.raises(InvalidSamples, match="row 0 of the features is zero"):
        estimator.fit(0 * X)
    with pytest.raises(InvalidParameter, match="tda has no parameter 'ridge'"):
        estimator.set_params(method="tda").fit(X)
    with pytest.raises(InvalidParameter, match="did you mean 'pta'"):
        pta.PTAClassifier(anchors, method="ptaa").fit(X)
    with pytest.raises(InvalidParameter, match="class newt has no row in the first call"):
        pta.PTAClassifier().partial_fit(X[y != "newt"], y[y != "newt"], classes=names)
