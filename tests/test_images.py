"""Pictures to pixels: the pipeline of CLIP, bit for bit, and files that are not what they seem."""

from pathlib import Path

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import decode_image, encoded, smooth
from PIL import Image

from pta.door.files import read_sample
from pta.door.images import CLIP_PREPROCESSING, Preprocessing
from pta.errors import InvalidParameter, InvalidSamples, UnreadableSample, UnreadSample
from pta.models import EmbeddedEncoder


def reference(image, size=224):
    """Resize (shorter side, bicubic), CenterCrop, ToTensor, Normalize as CLIP's own program does them, in numpy.

    Colours come first: the loaders of TDA and PTA convert to RGB before anything else.
    """
    image = image.convert("RGB")
    width, height = image.size
    short, long = min(width, height), max(width, height)
    other = int(size * long / short)
    image = image.resize((size, other) if width <= height else (other, size), Image.Resampling.BICUBIC)
    left, top = int(round((image.width - size) / 2.0)), int(round((image.height - size) / 2.0))  # noqa: RUF046
    array = np.asarray(image)[top : top + size, left : left + size].astype(np.float32) / np.float32(255)
    mean = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
    std = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
    return ((array - mean) / std).transpose(2, 0, 1)


@settings(max_examples=repeated(30), deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.sampled_from(["RGB", "L", "P", "RGBA", "CMYK", "1"]))
def test_pixels_equal_clips_own_pipeline_bit_for_bit(width, height, mode):
    image = smooth(width, height, mode)
    assert np.array_equal(CLIP_PREPROCESSING(image)[0].numpy(), reference(image))


def test_a_square_resize_squeezes_both_sides():
    image = smooth(300, 100)
    square = Preprocessing(64, resize="square", resample="bilinear", mean=(0.5,) * 3, std=(0.5,) * 3)
    expected = np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR)).astype(np.float32) / 255 * 2 - 1
    np.testing.assert_allclose(square(image)[0].permute(1, 2, 0).numpy(), expected, atol=1e-6)


def test_several_pictures_make_one_batch_and_none_an_empty_one():
    images = [smooth(40, 50), smooth(60, 30, "L")]
    assert torch.equal(CLIP_PREPROCESSING(images), torch.cat([CLIP_PREPROCESSING(image) for image in images]))
    assert CLIP_PREPROCESSING([]).shape == (0, 3, 224, 224)


def test_wrong_settings_and_wrong_pixels_are_refused():
    with pytest.raises(InvalidParameter, match="cannot preprocess"):
        Preprocessing(resample="magic")
    with pytest.raises(InvalidParameter, match="one or three numbers"):
        Preprocessing(mean=(0.5, 0.5), std=(1.0, 1.0))
    with pytest.raises(InvalidSamples, match="uint8 of shape N×3×224×224"):
        CLIP_PREPROCESSING.normalise(torch.zeros(1, 3, 224, 224))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_usual_formats_are_decoded(format, tmp_path):
    image = smooth(33, 21)
    path = tmp_path / f"a.{format.lower()}"
    image.save(path, format)
    assert decode_image(read_sample(path), str(path)).size == (33, 21)


def test_fast_decoding_shrinks_a_large_jpeg_as_far_as_it_may_and_touches_nothing_else():
    large = encoded(smooth(1000, 700))
    assert decode_image(large, at_least=320).size == (500, 350)
    assert decode_image(large, at_least=351).size == (1000, 700)
    assert decode_image(encoded(smooth(1000, 700), "PNG"), at_least=100).size == (1000, 700)


def test_sixteen_bits_are_scaled_and_thirty_two_refused():
    values = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    grey = Preprocessing(64, mean=(0.5,), std=(0.5,))
    assert np.array_equal(grey.pixels(Image.fromarray(values))[0], values >> 8)
    for mode in ("I", "F"):
        with pytest.raises(UnreadableSample, match="32 bits"):
            grey(Image.new(mode, (9, 9)))
    with pytest.raises(UnreadableSample, match="LAB"):
        grey(Image.new("LAB", (9, 9)))


def test_a_thin_picture_is_refused_before_it_is_blown_up():
    with pytest.raises(UnreadableSample, match="1×600000 pixels are too thin"):
        CLIP_PREPROCESSING(Image.new("RGB", (1, 600_000)))
    assert CLIP_PREPROCESSING.geometry(2, 3000)[0] == (224, 336_000)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"hello", "not an image that pta reads"),
        (b"", "not an image that pta reads"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image that pta reads"),
        (encoded(smooth(90, 90))[:500], "cannot be decoded"),
        (encoded(smooth(90, 90), "PNG")[:-300], "cannot be decoded"),
    ],
)
def test_what_is_no_image_is_refused_in_one_line(content, complaint):
    with pytest.raises(UnreadableSample, match=f"^photos/x.jpg: .*{complaint}"):
        decode_image(content, "photos/x.jpg")


def test_a_missing_or_huge_file_is_refused(tmp_path):
    with pytest.raises(UnreadSample, match="no such file"):
        read_sample(tmp_path / "none.jpg")
    with pytest.raises(UnreadableSample, match="is not a file"):
        read_sample(Path("/dev/zero"))
    with pytest.raises(UnreadableSample, match=r"zero byte .*--frames reads pictures"):
        read_sample(Path("a.jpg\0b.jpg"))
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(UnreadableSample, match="bytes; at most"):
        read_sample(tmp_path / "huge.jpg")


def test_a_picture_may_be_given_as_an_image_a_path_or_a_frame(tmp_path):
    image, encoder = smooth(20, 10), EmbeddedEncoder.load()
    image.save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    for given_as in (image, tmp_path / "a.png", str(tmp_path / "a.png"), content, np.asarray(image)):
        assert np.array_equal(encoder.as_raw(given_as), encoder.prepare(content))
    for wrong in (np.zeros((4, 4), np.float32), np.zeros((4, 4, 4, 3), np.uint8), 7):
        with pytest.raises(UnreadableSample, match="expected a path, bytes, a Pillow image or a uint8 array"):
            encoder.as_raw(wrong)
