"""What holds for every encoder: small random models of each kind, and the packaged one."""

import copy
import math
import pickle

import pytest
import torch
from photos import noise
from torch import nn
from torch.nn.functional import normalize

from pta.errors import InvalidParameter

TEXTS = ["a photo of a coat.", "bag", "the very small fox that she wanted, seen from above"]
KINDS = ["clip", "clip resnet", "clip of transformers", "siglip", "siglip2", "embedded"]
PRETRAINED = pytest.mark.parametrize("encoder", KINDS[:-1], indirect=True)  # the packaged one can be trained
TOLERANCE = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(params=KINDS)
def encoder(request, encoders):
    return encoders[request.param]


def some_pixels(encoder, count=3):
    return encoder.preprocess([noise(90, 70, seed=seed) for seed in range(count)])


def test_a_batch_equals_one_by_one_in_unit_rows_and_may_be_empty(encoder):
    pixels = some_pixels(encoder)
    one_by_one = torch.cat([encoder.encode(image[None]) for image in pixels])
    texts = torch.cat([encoder.encode_texts([text]) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(pixels), one_by_one, **TOLERANCE)
    torch.testing.assert_close(encoder.encode_texts(TEXTS), texts, **TOLERANCE)  # whatever the padding
    for rows in (one_by_one, texts):
        assert (rows.shape, rows.dtype) == ((3, encoder.dim), torch.float32)
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    assert encoder.encode_texts([]).shape == encoder.encode(encoder.preprocess([])).shape == (0, encoder.dim)


def test_texts_follow_their_embeddings_and_gradients_reach_what_is_read(encoder):
    ids, mask = encoder.tokenize(TEXTS)
    embeddings = encoder.embed_ids(ids).requires_grad_()
    features = encoder.text_from_embeddings(embeddings, mask)
    torch.testing.assert_close(normalize(features.detach(), dim=-1), encoder.encode_texts(TEXTS), **TOLERANCE)
    features[:, 0].sum().backward()
    reached = embeddings.grad.norm(dim=2) > 0
    assert reached[mask].all()
    assert (reached == mask).all() or "SigLIP" in encoder.architecture  # which reads its padding


def test_gradients_reach_the_pixels(encoder):
    pixels = some_pixels(encoder).requires_grad_()
    encoder.features(pixels)[:, 0].sum().backward()
    assert pixels.grad.flatten(1).norm(dim=1).min() > 0


@pytest.mark.parametrize(
    ("kind", "word", "unit"),
    [("clip", "x ", "tokens"), ("clip of transformers", "x ", "tokens"), ("embedded", "x", "bytes")],
)
def test_the_longest_text_is_read_and_one_more_word_is_refused(encoders, kind, word, unit):
    assert encoders[kind].encode_texts([word * 75]).isfinite().all()
    with pytest.raises(InvalidParameter, match=rf"a text has 76 {unit}, .* reads at most 75; shorten '{word * 2}"):
        encoders[kind].encode_texts(["a cat", word * 76])


@pytest.mark.parametrize("kind", ["clip", "clip of transformers", "embedded"])
def test_patch_tokens_come_row_by_row(encoders, kind):
    tower = encoders[kind].image_tower()
    side = math.isqrt(tower.tokens - 1)
    patch = tower.shape[1] // side
    black = torch.zeros(1, *tower.shape)
    lit = black.clone()
    lit[..., patch : 2 * patch, 2 * patch : 3 * patch] = 3  # the patch in the second row and third column
    change = encoders[kind].encode_tokens(lit) - encoders[kind].encode_tokens(black)
    assert change.shape == (1, side * side, encoders[kind].dim)
    assert change[0].norm(dim=1).argmax() == side + 2


@PRETRAINED
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_near_and_keeps_scale_bias_and_fingerprint(encoder, dtype):
    half, pixels = copy.deepcopy(encoder).ready(dtype=dtype), some_pixels(encoder)
    assert half.features(pixels.to(dtype)).dtype == dtype
    for of in (lambda one: one.encode(pixels), lambda one: one.encode_texts(TEXTS)):
        assert (of(encoder) * of(half)).sum(dim=1).min() > 0.99
        assert (of(encoder) - of(half)).abs().max() > 0
    assert (half.scale, half.bias, half.fingerprint) == (encoder.scale, encoder.bias, encoder.fingerprint)


@PRETRAINED
def test_training_mode_changes_nothing(encoder):
    pixels = some_pixels(encoder)
    torch.testing.assert_close(copy.deepcopy(encoder).train().encode(pixels), encoder.encode(pixels), **TOLERANCE)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
def test_every_encoder_pickles_and_copies(encoder, duplicate):
    twin = duplicate(encoder)
    assert twin.fingerprint == encoder.fingerprint
    torch.testing.assert_close(twin.encode_texts(TEXTS), encoder.encode_texts(TEXTS), **TOLERANCE)
    with torch.no_grad():
        next(module for module in twin.modules() if isinstance(module, nn.LayerNorm)).weight.zero_()
    assert twin._hash() != encoder._hash(), "the twin shares the weights"
