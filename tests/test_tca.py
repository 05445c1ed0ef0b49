"""TCA equals the loop that the released program is, and condenses tokens as it does."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_checkpoints import _add_vit, _Weights, random_state
from streams import cuts
from torch.nn.functional import normalize

from pta import ZeroShotClassifier
from pta.core.samples import Samples
from pta.core.towers import ImageTower, TokenBlock
from pta.engines.prompts.condensation import Cut, condense, cuts_of, merge
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods import create_adapter
from pta.methods.tca import TCA
from pta.models import EmbeddedEncoder
from pta.models.clip.encoder import ClipEncoder
from pta.reference.tca import NumpyViT, merged, tca_loop

WIDTH, DEPTH, HEADS, SIZE, DIM = 32, 4, 2, 16, 32
RATE = 0.1  # 65 tokens become 50, 41, 32
VALUES = {
    "rate": [0.0, 0.02, 0.1, 0.2],
    "blocks": [[1, 2, 3], [2], [1, 3], []],
    "slots": [1, 2, 3],
    "layer_temperature": [0.01, 1.0, 5.0],
    "alpha": [0.0, 3.0, 8.0],
    "beta": [1.0, 7.0],
    "seed": [0, 1, 2, 3],
    "order": ["update-first", "predict-first"],
}


@cache
def weights():
    """A ViT for 16-pixel images in 2-pixel patches, beside the text tower of another."""
    vit = _Weights(torch.Generator().manual_seed(5))
    _add_vit(vit, WIDTH, DEPTH, patch=2, grid=SIZE // 2, dim=DIM)
    text = {name: value for name, value in random_state("ViT").items() if not name.startswith("visual.")}
    return {**text, **vit.state}


@cache
def encoder(dtype=torch.float32):
    return ClipEncoder(weights(), quick_gelu=True, image_head_width=WIDTH // HEADS).to(dtype)


@dataclass(frozen=True)
class Model:
    """A model that has nothing but an image tower."""

    tower: ImageTower

    @property
    def dim(self):
        return self.tower.dim

    def image_tower(self):
        return self.tower


@cache
def stream(seed, classes, count):
    """Images of noise in a few classes, and anchors under which every class occurs."""
    rng = np.random.default_rng(seed)
    kinds = rng.standard_normal((classes, 3, SIZE, SIZE))
    labels = rng.integers(classes, size=count)
    images = torch.from_numpy(kinds[labels] + 0.7 * rng.standard_normal((count, 3, SIZE, SIZE)))
    features = features_of(torch.from_numpy(kinds))
    anchors = normalize(features - features.mean(dim=0), dim=1)
    names = [str(label) for label in range(classes)]
    return ZeroShotClassifier(anchors, names, scale=10.0), images


@torch.no_grad()
def features_of(images):
    vit = encoder(torch.float64).image_tower()
    x = vit.embed(images)
    for block in vit.blocks:
        x = block(x)
    return vit.project(x[:, 0])


def samples_of(images):
    return Samples.of(torch.ones(len(images), DIM, dtype=torch.float64), raw=images)


def run(adapter, images, parts=(slice(None),)):
    return torch.cat([adapter.step(samples_of(images[part])) for part in parts])


def tca(classifier, **parameters):
    return TCA(classifier, model=encoder(classifier.anchors.dtype), **{"rate": RATE, **parameters})


def expected(classifier, images, **parameters):
    tower = NumpyViT({name: value.numpy().astype(np.float64) for name, value in weights().items()}, HEADS)
    how = {"rate": RATE, "blocks": (1, 2, 3), "scale": classifier.scale, **parameters}
    return torch.from_numpy(tca_loop(classifier.anchors.numpy(), images.numpy(), tower, **how))


# -- against the loop --------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_cut_into_batches_equals_the_loop(data):
    classifier, images = stream(data.draw(st.integers(0, 5)), data.draw(st.integers(2, 4)), 14)
    parameters = {name: data.draw(st.sampled_from(values), label=name) for name, values in VALUES.items()}
    logits = run(tca(classifier, **parameters), images, data.draw(cuts(len(images))))
    torch.testing.assert_close(logits, expected(classifier, images, **parameters), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("rate", [RATE, 0.035])
def test_a_batch_in_which_the_anchors_come_on_equals_the_loop(rate):
    classifier, images = stream(1, 2, 20)
    adapter = tca(classifier, rate=rate)
    logits = run(adapter, images)
    assert adapter._domain_anchors() is not None
    torch.testing.assert_close(logits, expected(classifier, images, rate=rate), atol=1e-8, rtol=1e-8)


def test_a_reset_adapter_is_where_its_classifier_was_moved_to():
    adapter = tca(stream(1, 2, 2)[0])
    adapter.classifier = adapter.classifier.to(dtype=torch.float32)  # as for a device
    adapter.reset()
    assert adapter.records.dtype == torch.float32


# -- the condensing encoder --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "counts"), [(0.035, [182, 167, 155]), (0.1, [143, 104, 77])])
def test_a_vit_b_16_goes_on_with_as_many_tokens_as_published(rate, counts):
    assert [cut.tokens for cut in cuts_of(197, rate, [3, 6, 9]).values()] == counts


def test_all_patches_may_be_condensed_but_no_more():
    assert cuts_of(12, 0.3, [1]) == {1: Cut(kept=0, merged=8, pooled=3)}
    with pytest.raises(InvalidParameter, match="block 1 gets 11 tokens, of which 11 would be condensed"):
        cuts_of(11, 0.35, [1])


def test_tokens_really_become_fewer():
    vit, classifier = encoder().image_tower(), stream(1, 2, 2)[0].to(dtype=torch.float32)
    lengths = []

    def watched(block):
        def mlp(x):
            lengths.append(x.shape[1])
            return block.mlp(x)

        return TokenBlock(block.whole, block.attend, mlp)

    adapter = TCA(classifier, model=Model(replace(vit, blocks=[watched(block) for block in vit.blocks])), rate=RATE)
    run(adapter, stream(1, 2, 2)[1])
    assert lengths == [50, 41, 32]


@pytest.mark.parametrize("blocks", [None, [1, 2, 3, 4]])
def test_without_condensation_features_are_those_of_the_encoder(blocks):
    embedded = EmbeddedEncoder.load().ready()
    pixels = torch.randint(0, 256, (9, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    plain = embedded.encode(pixels)
    classifier = ZeroShotClassifier(torch.eye(128)[:4], list("abcd"))
    adapter = TCA(classifier, model=embedded, rate=0.0, blocks=blocks)
    torch.testing.assert_close(adapter.refined(Samples.of(plain, raw=pixels)), plain, atol=1e-6, rtol=0)
    condensing = TCA(classifier, model=embedded, rate=0.035)
    assert not torch.allclose(condensing.refined(Samples.of(plain, raw=pixels)), plain, atol=1e-4)


def test_the_default_blocks_are_at_the_quarters_of_the_depth():
    embedded = EmbeddedEncoder.load()
    classifier = ZeroShotClassifier(torch.eye(128)[:4], list("abcd"))
    assert TCA(classifier, model=embedded).parameters["blocks"] == [1, 2, 3]
    vit = embedded.image_tower()
    deep = replace(vit, blocks=([*vit.blocks] * 3)[:12], tokens=197)
    assert TCA(classifier, model=Model(deep)).parameters["blocks"] == [3, 6, 9]


def hand_made_block(p):
    """A block that attends to nothing, says whom it attends to, and has no MLP."""
    return TokenBlock(lambda x: x, lambda x: (torch.zeros_like(x), p(x)), torch.zeros_like)


def test_what_is_kept_stands_by_attention_and_the_rest_is_a_weighted_sum():
    x = torch.arange(12.0, dtype=torch.float64)[None, :, None] ** 2  # the class token is 0
    a = torch.tensor([0.0, 0.3, 0.05, 0.2, 0.01, 0.02, 0.15, 0.1, 0.03, 0.04, 0.06, 0.04], dtype=torch.float64)
    block = hand_made_block(lambda x: a.expand(1, 2, 12, 12))
    y = condense(block, x, Cut(kept=3, merged=4, pooled=4), torch.tensor([0]), None)[0, :, 0]
    assert y[:4].tolist() == [0.0, 1.0, 9.0, 36.0]  # class token, then the patches 1, 3 and 6
    assert sorted(y[4:8].tolist()) == [4.0, 49.0, 81.0, 100.0]  # four patches are their own centres
    assert float(y[8]) == pytest.approx(0.04 * 121 + 0.03 * 64 + 0.02 * 25 + 0.01 * 16)


def test_merging_weighs_by_the_inverse_distance_to_the_centre():
    tokens = torch.tensor([[0.0], [2.0], [4.0], [100.0], [200.0], [300.0]], dtype=torch.float64)
    y = merge(tokens[None], torch.tensor([0]))[0, :, 0]
    near = (1 * 0 + 1 / 2 * 2 + 1 / 4 * 4) / (1 + 1 / 2 + 1 / 4)
    assert y.tolist() == pytest.approx([near, 300.0, 100.0, 200.0])


@settings(max_examples=repeated(30), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 24), st.integers(0, 23))
def test_merging_equals_the_loop(seed, count, first):
    tokens = np.random.default_rng(seed).standard_normal((count, 5))
    y = merge(torch.from_numpy(tokens)[None], torch.tensor([first % count]))[0]
    torch.testing.assert_close(y, torch.from_numpy(np.stack(merged(tokens, first % count))), atol=1e-12, rtol=0)


def test_equal_tokens_merge_to_themselves():
    y = merge(torch.full((1, 6, 3), 7.0), torch.tensor([2]))
    torch.testing.assert_close(y, torch.full((1, 4, 3), 7.0))


def test_the_nearest_domain_anchor_stands_in_front_and_goes_again():
    seen = []

    def p(x):
        seen.append(x)
        return torch.ones(len(x), 1, x.shape[1], x.shape[1]) / x.shape[1]

    x = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(1))
    anchors = torch.stack([-x[0, 0], 5 * x[1, 0], 2 * x[0, 0]])
    y = condense(hand_made_block(p), x, Cut(3, 4, 4), torch.tensor([0, 0]), anchors)
    assert y.shape == (2, 9, 3)
    assert torch.equal(seen[0][:, 0], anchors[[2, 1]])
    assert torch.equal(seen[0][:, 1:], x)
    pooled = x[:, -4:].sum(dim=1) / 13  # the anchor's share of attention is not given to others
    torch.testing.assert_close(y[:, -1], pooled)


# -- the reservoir -----------------------------------------------------------------------------------------------------


def test_anchors_come_on_when_every_class_has_two_images_and_change_features():
    classifier, images = stream(1, 3, 30)
    adapter, probe = tca(classifier), samples_of(images[:4])
    plain = adapter.refined(probe)
    run(adapter, images)
    assert (adapter.counts >= 2).all()
    adapter.seen.zero_()  # the same first centres
    assert not torch.allclose(adapter.refined(probe), plain)
    adapter.counts[0] = 1
    torch.testing.assert_close(adapter.refined(probe), plain)


def test_the_image_that_is_unsure_and_like_the_others_leaves():
    classifier, _ = stream(1, 2, 2)
    adapter = tca(classifier)
    records = torch.zeros(4, DEPTH, WIDTH, dtype=torch.float64)
    for number, axis in enumerate([0, 0, 1, 2]):
        records[number, :, axis] = 1.0
    for record, entropy in zip(records, [0.5, 0.4, 0.8, 0.1], strict=True):
        adapter._insert(0, record, torch.tensor(entropy, dtype=torch.float64))
    # scores: 0.5 + 1/3, 0.4 + 1/3, 0.8, 0.1
    assert adapter.entropies[0].tolist() == [0.1, 0.4, 0.8]
    assert torch.equal(adapter.records[0], records[[3, 1, 2]])


def test_of_equal_scores_the_first_leaves():
    classifier, _ = stream(1, 2, 2)
    adapter = tca(classifier, slots=1)
    for value in (1.0, 2.0):
        adapter._insert(1, torch.full((DEPTH, WIDTH), value, dtype=torch.float64), torch.tensor(0.3).double())
    assert float(adapter.records[1, 0, 0, 0]) == 2.0


def test_alone_in_the_reservoir_a_sample_adds_alpha_to_its_class():
    classifier, images = stream(1, 3, 4)
    after, before = (run(tca(classifier, order=order), images[:1])[0] for order in ("update-first", "predict-first"))
    added = after - before
    assert added.max().item() == pytest.approx(3.0)
    assert int(added.argmax()) == int(before.argmax())
    assert added.sum().item() == pytest.approx(3.0)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"rate": 0.5}, "rate=0.5 is too much: block 1 gets 65 tokens"),
        ({"blocks": [0]}, "block 0 cannot condense; .* blocks 1…3"),
        ({"blocks": [9]}, "block 9 cannot condense"),
        ({"blocks": "1,2"}, "list of block numbers"),
    ],
)
def test_a_bad_parameter_is_refused_in_one_line(parameters, complaint):
    with pytest.raises(InvalidParameter, match=complaint):
        tca(stream(1, 2, 2)[0], **parameters)


def test_no_model_and_another_model_are_refused():
    classifier = ZeroShotClassifier(torch.eye(8), list("abcdefgh"))
    with pytest.raises(InvalidParameter, match="features have 32 dimensions but the classifier's anchors have 8"):
        TCA(classifier, model=encoder())
    with pytest.raises(InvalidParameter, match="tca needs the image tower of a model"):
        create_adapter("tca", classifier)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda images: images[:, :, :8], "takes pixels of N×3×16×16, not N×3×8×16"),
        (lambda images: images * float("nan"), "NaN or Inf"),
    ],
)
def test_images_that_do_not_fit_are_refused(spoil, complaint):
    classifier, images = stream(1, 2, 6)
    adapter = tca(classifier)
    for use in (adapter.require, adapter.step, adapter.predict):
        with pytest.raises(InvalidSamples, match=complaint):
            use(samples_of(spoil(images)))
    assert adapter.position == 0
