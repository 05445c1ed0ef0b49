"""Every registered method has a loop of its name, which gives the same logits for a classifier with a bias."""

from importlib import import_module
from inspect import signature

import numpy as np
import pytest
from streams import clip_like_stream, with_views

import pta
from pta.reference.tda import tda_loop


def loop_of(method):
    """The loop of `a` is `a_loop` in `pta.reference.a`, that of `a-b` is `a_b_loop` there."""
    return getattr(import_module(f"pta.reference.{method.split('-')[0]}"), f"{method.replace('-', '_')}_loop")


@pytest.mark.parametrize("method", [name for name in pta.list_adapters() if name != "tca"])
def test_every_method_gives_the_logits_of_its_loop(method):
    stream = clip_like_stream(3, classes=5, dim=12, count=30, scale=25.0)
    classifier = pta.ZeroShotClassifier(stream.anchors, list("abcde"), scale=stream.scale, bias=-3.0)
    samples = with_views(stream, 12)
    anchors, features = stream.anchors.numpy(), stream.features.numpy()
    parameters = {"length": 30} if method == "onzeta" else {}
    given = {"scale": stream.scale, "bias": -3.0, "views": samples.views.numpy(), **parameters}
    given["base_logits"] = tda_loop(anchors, features, scale=stream.scale, bias=-3.0) if method == "combined" else None
    loop = loop_of(method)
    expected = loop(anchors, features, **{name: given[name] for name in signature(loop).parameters if name in given})
    logits = pta.create_adapter(method, classifier, **parameters).step(samples)
    np.testing.assert_allclose(logits, expected, atol=1e-8, rtol=0)


def test_the_loop_of_tca_takes_images():
    assert list(signature(loop_of("tca")).parameters)[:3] == ["anchors", "images", "tower"]
