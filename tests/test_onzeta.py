"""OnZeta: the first sample worked by hand, and the length it must know."""

import pytest
import torch
from streams import toy_stream

from pta import Samples, create_adapter
from pta.errors import InvalidParameter
from pta.methods.onzeta import OnZeta


def test_the_first_answer_and_the_first_steps_by_hand():
    toy = toy_stream()
    adapter = OnZeta(toy.classifier, length=4)
    logits = adapter.step(toy.features[:1])[0]
    p = torch.tensor([0.530602, 0.467490, 0.001908], dtype=torch.float64)  # the zero-shot probabilities
    v = (toy.features[0] @ toy.anchors.T / 0.04).softmax(dim=0)
    close = {"atol": 2e-5, "rtol": 0}
    torch.testing.assert_close(logits.exp(), 0.4 * v + 0.6 * p, **close)
    torch.testing.assert_close(adapter.rho, torch.tensor([0.0, 0.0, 20 * (1 / 3 - 0.001908)]).double(), **close)
    w = toy.anchors - 12.5 * torch.outer(v - p, toy.features[0])
    torch.testing.assert_close(adapter.proxies, w / w.norm(dim=1, keepdim=True), **close)


def test_without_a_length_it_is_refused_with_how_to_give_one():
    with pytest.raises(InvalidParameter, match=r"how many samples will come; give length=1000 .*source="):
        OnZeta(toy_stream().classifier)


def test_the_length_is_that_of_the_source_unless_given():
    toy = toy_stream()
    source = Samples.of(toy.features)
    assert create_adapter("onzeta", toy.classifier, source=source).parameters["length"] == 3
    assert create_adapter("onzeta", toy.classifier, source=source, length=7).parameters["length"] == 7
