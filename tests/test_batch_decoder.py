"""Batches of files, with a decoder that stands in for a GPU's: the order, the verdicts and the limits of Pillow."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from photos import decode_image, encoded, noise, smooth
from stand_in_decoder import LenientDecoder

from pta.core.limits import Limits
from pta.door.images import Preprocessing, decoders
from pta.door.images.batch_decoder import BatchDecoder, PrepareFile
from pta.door.images.decoders import available_decoder
from pta.errors import UnreadableSample

PREPROCESS = Preprocessing(12)
FILES = [
    encoded(smooth(40, 30)),
    encoded(smooth(20, 50), "PNG"),
    encoded(smooth(60, 33), progressive=True),
    encoded(smooth(30, 60, "L")),
    encoded(smooth(25, 25, "CMYK")),
    encoded(smooth(64, 64), quality=95),
]


def batch_decoder(decoder=None, preprocess=PREPROCESS, **how):
    return BatchDecoder(decoder or LenientDecoder(), PrepareFile(preprocess, **how), torch.device("cpu"))


def by_pillow(files, preprocess=PREPROCESS):
    return torch.from_numpy(np.stack([preprocess.pixels(decode_image(file)) for file in files]))


def decode(decoder, files):
    return decoder.decode([decoder.prepare(file) for file in files])


def verdict(read, content):
    try:
        read(content)
    except UnreadableSample as error:
        return str(error).removeprefix("the image: ")
    return "a picture"


def test_pictures_of_all_kinds_come_in_order():
    decoder = batch_decoder()
    decoded = decode(decoder, FILES)
    assert torch.equal(decoded.pixels, by_pillow(FILES))
    assert decoded.errors == [None] * 6
    assert decoder.counts == {"gpu": 3, "pillow": 3}
    assert decoder.decoder.batches == [3]


def test_a_batch_with_a_refused_file_is_decoded_one_by_one_and_pillow_decides():
    decoder = batch_decoder(LenientDecoder(refuses=lambda content: len(content) > 2000))
    decoded = decode(decoder, FILES)
    assert torch.equal(decoded.pixels, by_pillow(FILES))
    assert decoder.decoder.batches == [3, 1, 1, 1]
    assert decoder.counts == {"gpu": 2, "pillow": 4}


def test_what_pillow_refuses_too_is_an_error_of_its_own_place():
    decoder = batch_decoder(LenientDecoder(refuses=lambda content: len(content) > 2000))
    prepared = [decoder.prepare(file) for file in FILES]
    prepared[5] = prepared[5]._replace(content=prepared[5].content[:-1000])
    decoded = decoder.decode(prepared)
    assert decoded.errors[:5] == [None] * 5
    with pytest.raises(UnreadableSample, match="cannot be decoded"):
        raise decoded.errors[5]
    assert not decoded.pixels[5].any()
    assert torch.equal(decoded.pixels[:5], by_pillow(FILES[:5]))


def test_a_picture_of_another_size_than_its_header_says_is_left_to_pillow():
    class Turning(LenientDecoder):
        def __call__(self, contents):
            return [picture.transpose(1, 2) for picture in super().__call__(contents)]

    decoder = batch_decoder(Turning())
    assert torch.equal(decode(decoder, FILES[:1]).pixels, by_pillow(FILES[:1]))
    assert decoder.counts == {"gpu": 0, "pillow": 1}


@pytest.mark.parametrize(("memory", "batches"), [(3 * 64 * 64, [2, 1]), (3 * 40 * 30, [1]), (1, [])])
def test_no_more_memory_is_taken_than_allowed(memory, batches):
    decoder = batch_decoder(decode_memory=memory)
    assert torch.equal(decode(decoder, FILES).pixels, by_pillow(FILES))
    assert decoder.decoder.batches == batches


@pytest.mark.parametrize("limits", [Limits(max_pixels=1000), Limits(max_pixels=1500)])
def test_limits_are_pillows_and_hold_before_anything_is_decoded(limits):
    decoder = batch_decoder(limits=limits)
    for content in (*FILES, encoded(noise(2, 20)), encoded(noise(63, 24))):
        read = partial(decode_image, limits=limits)
        assert verdict(decoder.prepare, content) == verdict(read, content)
    assert decoder.decoder.batches == []


def test_a_picture_that_is_too_thin_is_refused():
    with pytest.raises(UnreadableSample, match="1×20000 pixels are too thin a picture"):
        batch_decoder(preprocess=Preprocessing(224)).prepare(encoded(noise(1, 20000)))


def test_grey_models_are_left_to_pillow():
    preprocess = Preprocessing(12, mean=(0.5,), std=(0.5,))
    decoder = batch_decoder(preprocess=preprocess)
    assert torch.equal(decode(decoder, FILES).pixels, by_pillow(FILES, preprocess))
    assert decoder.counts == {"gpu": 0, "pillow": 6}


@pytest.mark.parametrize("end", [b"", b"\xff\xd9"])
@pytest.mark.parametrize("how", [{}, {"optimize": True}, {"progressive": True}, {"restart_marker_blocks": 3}], ids=str)
def test_200_cuts_have_pillows_verdict(how, end):
    content = encoded(smooth(50, 40), **how)
    decoder = batch_decoder()
    for place in np.linspace(0, len(content), 200).astype(int):
        cut = content[:place] + end
        assert verdict(decoder.prepare, cut) == verdict(decode_image, cut)


def test_no_decoder_is_available_without_a_gpu():
    assert available_decoder(torch.device("cpu")) is None


@pytest.mark.parametrize("state", ["works", "was built without CUDA", "has no library", "is not installed"])
def test_torchvisions_library_is_used_alone_if_it_decodes(monkeypatch, tmp_path, state):
    def decode(files, mode, device):
        assert mode == 3
        assert all(file.dtype == torch.uint8 for file in files)
        if state != "works":
            raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support")
        return [torch.zeros(3, 16, 16, dtype=torch.uint8) for _ in files]

    if state != "has no library":
        (tmp_path / "image.so").touch()
    package = None if state == "is not installed" else SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    loaded = []
    monkeypatch.setattr(decoders, "find_spec", lambda name: package)
    (tmp_path / "version.py").write_text("__version__ = '0.26.0+cu130'\ngit_version = 'abc'\n")
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torch.ops, "image", SimpleNamespace(decode_jpegs_cuda=decode), raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(decoders, "kernel_runs_on", lambda device: True)
    decoders._opening.cache_clear()
    found = available_decoder(torch.device("cuda"))
    assert available_decoder(torch.device("cuda:0")) is found  # it is opened once
    decoders._opening.cache_clear()
    assert (found is None) == (state != "works")
    if state == "works":
        assert found.name == "torchvision 0.26.0+cu130 nvJPEG"
        assert loaded == [tmp_path / "image.so"]
