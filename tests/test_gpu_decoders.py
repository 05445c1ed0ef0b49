"""The decoder that this GPU has: Pillow's verdicts, and almost its pixels."""

import numpy as np
import pytest
import torch
from photos import decode_image, encoded, smooth
from test_baseline import UNUSUAL, USUAL
from test_batch_decoder import decode, verdict

from pta.door.images import Preprocessing
from pta.door.images.batch_decoder import BatchDecoder, PrepareFile
from pta.door.images.decoders import available_decoder
from pta.models.clip.encoder import ClipEncoder

DEVICE = torch.device("cuda")
DECODER = available_decoder(DEVICE) if torch.cuda.is_available() else None
pytestmark = pytest.mark.skipif(DECODER is None, reason="no GPU, or no package that decodes JPEG files on it")
PREPROCESS = Preprocessing(64)


def batch_decoder(preprocess=PREPROCESS):
    return BatchDecoder(DECODER, PrepareFile(preprocess), DEVICE)


def by_pillow(files, preprocess=PREPROCESS):
    return torch.from_numpy(np.stack([preprocess.pixels(decode_image(file)) for file in files]))


def test_it_is_named_with_its_version():
    assert any(character.isdigit() for character in DECODER.name)


@pytest.mark.parametrize("kind", USUAL)
def test_usual_files_are_decoded_on_the_gpu_to_almost_the_same_pixels(kind):
    decoder = batch_decoder()
    decoded = decode(decoder, [USUAL[kind]])
    assert decoder.counts == {"gpu": 1, "pillow": 0}
    distance = (decoded.pixels.cpu().short() - by_pillow([USUAL[kind]]).short()).abs().float().mean()
    assert distance < (1 if kind in ("grey", "4:4:4") else 8)  # colours of fewer pixels are interpolated in many ways


def test_a_second_picture_in_a_file_changes_nothing():
    alone, followed = decode(batch_decoder(), [USUAL["4:2:0"], USUAL["4:2:0"] + USUAL["grey"]]).pixels
    assert torch.equal(alone, followed)


def test_orientation_is_ignored():
    plain, turned = decode(batch_decoder(), [USUAL["4:2:0"], USUAL["turned by EXIF"]]).pixels
    assert torch.equal(plain, turned)


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_files_have_pillows_verdict_and_pixels(kind):
    decoder = batch_decoder()
    expected = verdict(decode_image, UNUSUAL[kind])
    assert verdict(decoder.prepare, UNUSUAL[kind]) == expected
    if expected == "a picture":
        assert torch.equal(decode(decoder, [UNUSUAL[kind]]).pixels.cpu(), by_pillow([UNUSUAL[kind]]))


@pytest.mark.parametrize("end", [b"", b"\xff\xd9"])
@pytest.mark.parametrize("how", [{}, {"optimize": True}, {"progressive": True}, {"restart_marker_blocks": 3}], ids=str)
def test_200_cuts_have_pillows_verdict(how, end):
    content, decoder = encoded(smooth(90, 70), **how), batch_decoder()

    def read(cut):
        (error,) = decode(decoder, [cut]).errors
        if error:
            raise error

    for place in np.linspace(0, len(content), 200).astype(int):
        cut = content[:place] + end
        assert verdict(read, cut) == verdict(decode_image, cut)


def test_features_are_almost_those_of_pillows_pixels():
    from openai_checkpoints import random_state

    encoder = ClipEncoder(random_state("ViT"), quick_gelu=True).ready()
    files = [encoded(smooth(300 + 17 * seed, 200 + 11 * seed, seed=seed), quality=90) for seed in range(8)]
    pixels = decode(batch_decoder(encoder.preprocess), files).pixels.cpu()
    ours, pillows = encoder.encode(pixels), encoder.encode(by_pillow(files, encoder.preprocess))
    assert (ours * pillows).sum(dim=1).min() > 0.999
