"""Pictures of different sizes, resized together: every byte is the one Pillow makes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

pytest.importorskip("triton")

from kernel_margins import Watched
from triton.runtime import interpreter

from pta.door.images import Preprocessing, device, ragged_kernel
from pta.door.images.device import resize_by_kernel, resize_ragged
from pta.door.images.preprocessing import FILTERS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=3)


@pytest.fixture(scope="module", autouse=True)
def large_programs():
    """Few large programs, for the interpreter's sake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_LINES", 64)
        yield


def noise(height, width, channels=3):
    rng = np.random.default_rng(height * 10_000 + width)
    return rng.integers(0, 256, (height, width, channels), np.uint8)


def by_pillow(arrays, preprocess):
    pictures = [Image.fromarray(one[..., 0] if one.shape[2] == 1 else one) for one in arrays]
    return torch.from_numpy(np.stack([preprocess.pixels(picture) for picture in pictures]))


def interleaved(array):
    return torch.from_numpy(array).to(DEVICE).permute(2, 0, 1)


def planar(array):
    return interleaved(array).contiguous()


@settings(max_examples=12, deadline=None)
@given(SIDES, st.integers(1, 24), st.sampled_from(list(FILTERS)), st.sampled_from(["shortest", "square"]))
def test_every_byte_is_pillows(sides, size, resample, resize):
    preprocess = Preprocessing(size, resize, resample)
    arrays = [noise(*both) for both in sides]
    expected = by_pillow(arrays, preprocess)
    assert torch.equal(resize_by_kernel([planar(one) for one in arrays], preprocess).cpu(), expected)


def test_order_of_the_passes_is_each_pictures_own():
    arrays, preprocess = [noise(70, 20), noise(20, 70), noise(50, 50), noise(90, 9)], Preprocessing(16)
    assert torch.equal(
        resize_by_kernel([planar(one) for one in arrays], preprocess).cpu(), by_pillow(arrays, preprocess)
    )


def test_pictures_may_lie_in_one_buffer_and_in_any_layout():
    arrays, preprocess = [noise(30, 41), noise(52, 23), noise(17, 17)], Preprocessing(16)
    buffer = torch.cat([planar(one).flatten() for one in arrays])
    parts = buffer.split([one.size for one in arrays])
    pictures = [part.view(3, *one.shape[:2]) for part, one in zip(parts, arrays, strict=True)]
    mixed = [interleaved(arrays[0]), pictures[1], planar(arrays[2].transpose(1, 0, 2)).transpose(1, 2)]
    expected = by_pillow(arrays, preprocess)
    assert torch.equal(resize_by_kernel(pictures, preprocess).cpu(), expected)
    assert torch.equal(resize_by_kernel(mixed, preprocess).cpu(), expected)


def test_without_triton_or_without_a_gpu_the_bytes_are_the_same(monkeypatch):
    monkeypatch.setattr(device, "kernel_runs_on", lambda device: False)
    arrays, preprocess = [noise(30, 41, 1), noise(52, 23, 1)], Preprocessing(16, mean=(0.5,), std=(0.5,))
    assert torch.equal(resize_ragged([planar(one) for one in arrays], preprocess).cpu(), by_pillow(arrays, preprocess))


@pytest.mark.skipif(DEVICE == "cuda", reason="the interpreter checks addresses")
@pytest.mark.parametrize("resample", ["bicubic", "nearest"])
def test_no_byte_outside_of_the_pictures_is_read(monkeypatch, resample):
    """The kernel is given addresses alone, so that nothing but their arithmetic keeps it inside."""
    pictures, made, empty = [planar(noise(61, 17)), planar(noise(20, 33))], [], torch.empty

    class Launch:
        def __getitem__(self, grid):
            return lambda *given, **constants: self.launch(grid, given, constants)

        def launch(self, grid, given, constants):
            tensors = [*pictures, *made, *(one for one in given if isinstance(one, torch.Tensor))]
            monkeypatch.setattr(interpreter, "_interpreter", Watched(tensors))
            kernel[grid](*given, **constants)

    kernel = ragged_kernel.resize_lines
    monkeypatch.setattr(ragged_kernel, "resize_lines", Launch())
    monkeypatch.setattr(torch, "empty", lambda *shape, **how: made.append(empty(*shape, **how)) or made[-1])
    assert resize_by_kernel(pictures, Preprocessing(12, resample=resample)).shape == (2, 3, 12, 12)
    assert len(made) >= 2


def test_a_kernel_that_cannot_be_compiled_is_done_without(monkeypatch):
    def compile(*given):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(device, "resize_by_kernel", compile)
    monkeypatch.setattr(device, "keep_code_private", lambda: None)
    with pytest.warns(UserWarning, match="pictures are resized one by one: "):
        assert not device.kernel_runs_on.__wrapped__(torch.device("cuda"))
    assert not device.kernel_runs_on(torch.device("cpu"))
