"""What comes in is checked at the door, once: not again on its way, and not when our own code copies or composes it."""

import re
from collections import Counter
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from streams import clip_like_stream

from pta import PTA, Samples, Segment, compose, create_adapter, list_adapters
from pta.engines.pta import rule
from pta.engines.pta.rule import Prototypes
from pta.engines.segments import segment
from pta.engines.zero_shot import ZeroShot
from pta.methods.registry import adapter_class
from pta.run.reading import Reading


@pytest.fixture
def counted(monkeypatch):
    """How often a `Reading` is made, each of PTA's parameters is checked, and prototypes are made for a new state."""
    calls = Counter()

    def counting(name, function):
        def counts(*given, **options):
            calls[name] += 1
            return function(*given, **options)

        return counts

    monkeypatch.setattr(Reading, "__post_init__", counting("Reading", Reading.__post_init__))
    monkeypatch.setattr(Prototypes, "fresh", counting("fresh", Prototypes.fresh))
    monkeypatch.setattr(segment, "require_whole", counting("segment", segment.require_whole))
    parameters = {name: replace(one, check=counting(name, one.check)) for name, one in PTA.declared.items()}
    monkeypatch.setattr(PTA, "declared", parameters)
    for name in rule.PARAMETERS:
        monkeypatch.setitem(rule.PARAMETERS, name, parameters[name])
    return calls


@pytest.fixture
def stream():
    return clip_like_stream(3, classes=6, dim=16, count=3000).to(torch.float32)


def test_one_picture_through_predict_is_checked_once(pta, counted, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 255, (40, 40), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.jpg")
    out = tmp_path / "rows.csv"
    asked = "--classes", "bag,coat,sandal", "--model", "embedded", "--method", "pta", "--out", out
    assert pta("predict", tmp_path / "picture.jpg", *asked).returncode == 0
    assert len(out.read_text().splitlines()) == 2
    assert counted.pop("Reading") == 1
    assert counted.pop("fresh", 0) <= 1
    assert counted == dict.fromkeys(PTA.declared, 1)


@pytest.mark.parametrize("make", [PTA, lambda classifier: create_adapter("pta", classifier)], ids=["class", "name"])
def test_parameters_are_checked_once_and_not_by_steps_copies_and_restored_states(counted, stream, make):
    adapter = make(stream.classifier)
    assert counted.pop("fresh", 0) <= 1
    assert counted == dict.fromkeys(PTA.declared, 1)
    adapter.step(stream.features[:1])
    adapter.step(stream.features[1:4])
    adapter.clone().restore(adapter.snapshot())
    assert counted == dict.fromkeys(PTA.declared, 1)


def test_samples_are_checked_once_by_a_step_and_not_when_they_are_cut(monkeypatch, stream):
    checks, adapter = [], PTA(stream.classifier)
    norms = import_module("pta.core.samples")._checked_norms
    monkeypatch.setattr(
        "pta.core.samples._checked_norms", lambda *given, **how: checks.append(1) or norms(*given, **how)
    )
    adapter.step(stream.features.tolist())
    assert checks == [1]
    adapter.step(Samples(stream.features)[:2000])
    assert checks == [1, 1]


def test_segments_of_our_own_are_not_checked_and_those_of_a_file_are(counted, stream, tmp_path):
    adapter = PTA(stream.classifier)
    counted.clear()
    first, then = adapter.summarise(stream.features[:2500]), adapter.summarise(stream.features[2500:])
    both = compose(first, then)
    assert adapter.apply(both)
    assert not counted
    both.save(tmp_path / "segment")
    assert Segment.load(tmp_path / "segment").count == 3000
    assert counted["segment"] == 1


@pytest.mark.parametrize("prior", [None, -1.0])
def test_what_a_method_writes_into_zero_shot_logits_changes_no_other_answer(stream, prior):
    log_prior = None if prior is None else torch.full((5, 6), prior, dtype=torch.float64)
    zero_shot = ZeroShot(stream.classifier, Samples(stream.features[:5]), log_prior)
    expected = zero_shot.logits.clone()
    zero_shot.logits.zero_()
    assert torch.equal(zero_shot.logits, expected)
    torch.testing.assert_close(zero_shot.exact_logits.float(), expected)


@pytest.mark.parametrize("name", list_adapters())
def test_the_docstring_of_a_method_names_its_loop(name):
    (module, loop) = re.search(r"The loop: `(pta\.reference\.\w+)\.(\w+)`", adapter_class(name).__doc__).groups()
    assert callable(getattr(import_module(module), loop))
