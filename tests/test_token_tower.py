"""An image tower run block by block is the encoder itself."""

import pytest
import torch

from pta.errors import InvalidParameter, InvalidSamples


@pytest.fixture(params=["clip", "clip of transformers", "embedded"])
def encoder(request, encoders):
    return encoders[request.param]


def bytes_for(tower, count):
    return torch.randint(0, 256, (count, *tower.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def through(tower, pixels):
    x = tower.embed(tower.ready(pixels))
    assert x.shape == (len(pixels), tower.tokens, tower.width)
    for block in tower.blocks:
        x = block(x)
    return tower.project(x[:, 0])


@pytest.mark.parametrize("count", [1, 5, 32])
def test_all_blocks_together_give_the_features(encoder, count):
    tower = encoder.image_tower()
    pixels = bytes_for(tower, count)
    features = through(tower, pixels)
    assert features.shape == (count, tower.dim)
    with torch.no_grad():
        expected = encoder.features(encoder.preprocess.normalise(pixels))
    torch.testing.assert_close(features, expected, atol=1e-6, rtol=0)  # which may leave out what the last block wastes


def test_normalised_pixels_and_bytes_are_the_same(encoder):
    tower = encoder.image_tower()
    pixels = bytes_for(tower, 2)
    normalised = encoder.preprocess.normalise(pixels)
    torch.testing.assert_close(through(tower, pixels), through(tower, normalised), atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_halves_of_a_block_make_the_block(encoder):
    tower = encoder.image_tower()
    x = tower.embed(tower.ready(bytes_for(tower, 3)))
    for block in tower.blocks:
        attended, probabilities = block.attend(x)
        between = x + attended
        torch.testing.assert_close(between + block.mlp(between), block(x), atol=1e-5, rtol=1e-5)
        assert probabilities.shape[2:] == (tower.tokens, tower.tokens)
        torch.testing.assert_close(probabilities.sum(dim=3), torch.ones(probabilities.shape[:3]))
        x = block(x)


@torch.no_grad()
def test_blocks_take_any_number_of_tokens(encoder):
    tower = encoder.image_tower()
    x = tower.embed(tower.ready(bytes_for(tower, 2)))
    assert tower.blocks[0](x[:, :5]).shape == (2, 5, tower.width)


def test_pixels_of_another_model_are_refused(encoder):
    tower = encoder.image_tower()
    with pytest.raises(InvalidSamples, match=r"image tower takes pixels of N×.*, not N×3×7×7"):
        tower.features(torch.zeros(1, 3, 7, 7))


@pytest.mark.parametrize("kind", ["clip resnet", "siglip"])
def test_other_towers_say_that_they_have_no_blocks(encoders, kind):
    with pytest.raises(InvalidParameter, match="cannot be run block by block"):
        encoders[kind].image_tower()
