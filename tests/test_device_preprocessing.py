"""Frames resized on their device: every byte is the one Pillow makes, and no number is read back on the way."""

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode

from pta.door.images import DevicePreprocessing, Preprocessing
from pta.errors import InvalidSamples, UnreadableSample

FILTERS = ["nearest", "bilinear", "bicubic", "lanczos"]


def noise(count, channels, height, width, *, levels=256):
    """Frames of every grey level, or of the first and last alone, which no resizing can take further."""
    values = np.random.default_rng(height * 10_000 + width).integers(0, levels, (count, channels, height, width))
    return torch.from_numpy((values * (255 // (levels - 1))).astype(np.uint8))


def by_pillow(preprocess, frames):
    pictures = [Image.fromarray(frame.permute(1, 2, 0).squeeze(2).numpy()) for frame in frames]
    return torch.from_numpy(np.stack([preprocess.pixels(picture) for picture in pictures]))


@settings(max_examples=repeated(150), deadline=None)
@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(1, 40),
    st.sampled_from(FILTERS),
    st.sampled_from(["shortest", "square"]),
    st.sampled_from([1, 3]),
    st.sampled_from([2, 256]),
)
def test_every_byte_is_pillows(height, width, size, resample, resize, channels, levels):
    preprocess = Preprocessing(size, resize, resample, mean=(0.5,) * channels, std=(0.5,) * channels)
    frames = noise(2, channels, height, width, levels=levels)
    assert torch.equal(DevicePreprocessing(preprocess, height, width)(frames), by_pillow(preprocess, frames))


@pytest.mark.parametrize("resize", ["shortest", "square"])
@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize(("width", "height"), [(640, 480), (480, 640), (1080, 1920), (224, 224), (224, 300)])
def test_so_it_is_at_the_sizes_of_cameras(width, height, resample, resize):
    preprocess = Preprocessing(224, resize, resample)
    frames = noise(1, 3, height, width)
    assert torch.equal(DevicePreprocessing(preprocess, height, width)(frames), by_pillow(preprocess, frames))


@settings(max_examples=repeated(40), deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.sampled_from(FILTERS))
def test_no_sum_leaves_32_bits(height, width, size, resample):
    for part in DevicePreprocessing(Preprocessing(size, "square", resample), height, width).passes:
        assert int(part.weights.long().abs().sum(dim=0).max()) * 255 + 2**21 < 2**31


def test_frames_may_be_none_or_lie_in_memory_as_a_camera_wrote_them():
    preprocess = Preprocessing(20)
    on_device = DevicePreprocessing(preprocess, 30, 50)
    frames = noise(3, 3, 30, 50)
    rows_first = frames.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(on_device(rows_first), on_device(frames))
    assert on_device(frames[:0]).shape == (0, 3, 20, 20)


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize(("height", "width"), [(48, 64), (64, 48)])
def test_it_reads_no_number(height, width, resample):
    mode = FakeTensorMode()
    on_device = DevicePreprocessing(Preprocessing(22, resample=resample), height, width)
    for part in on_device.passes:
        for name, table in list(part.named_buffers()):
            setattr(part, name, mode.from_tensor(table))
    with mode:
        pixels = on_device(torch.empty(2, 3, height, width, dtype=torch.uint8))
    assert (pixels.shape, pixels.dtype) == ((2, 3, 22, 22), torch.uint8)


def test_rows_and_columns_outside_the_crop_are_not_looked_at():
    on_device = DevicePreprocessing(Preprocessing(24, resample="bilinear"), 48, 480)
    assert on_device(torch.zeros(1, 3, 48, 480, dtype=torch.uint8)).shape == (1, 3, 24, 24)
    columns = on_device.needed[3]
    assert 48 <= columns.stop - columns.start <= 52


def test_its_tables_move_with_it():
    on_device = DevicePreprocessing(Preprocessing(24), 48, 64).to("meta")
    assert on_device(torch.empty(5, 3, 48, 64, dtype=torch.uint8, device="meta")).shape == (5, 3, 24, 24)
    assert not on_device.state_dict()


def test_other_frames_are_refused_in_one_line():
    on_device = DevicePreprocessing(Preprocessing(24), 48, 64)
    for wrong in (noise(1, 3, 64, 48), noise(1, 1, 48, 64), noise(1, 3, 48, 64)[0], torch.zeros(1, 3, 48, 64)):
        with pytest.raises(InvalidSamples, match=r"^frames must be uint8 of shape N×3×48×64, not torch\..*$"):
            on_device(wrong)


def test_sizes_that_make_no_picture_are_refused():
    with pytest.raises(UnreadableSample, match="1×600000 pixels are too thin"):
        DevicePreprocessing(Preprocessing(224), 600_000, 1)
    with pytest.raises(UnreadableSample, match="640×0 pixels are not a picture"):
        DevicePreprocessing(Preprocessing(224), 0, 640)
