"""The walk through a JPEG file's markers: what it lets pass is a picture for Pillow too."""

import io

import numpy as np
import pytest
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import decode_image, encoded, smooth
from PIL import Image

from pta.door.images.bare import baseline_jpeg
from pta.errors import UnreadableSample

EXIF = Image.Exif()
EXIF[0x0112] = 6  # turned by a quarter
USUAL = {
    "4:4:4": encoded(smooth(50, 37), subsampling=0),
    "4:2:2": encoded(smooth(50, 37), subsampling=1),
    "4:2:0": encoded(smooth(50, 37), subsampling=2),
    "grey": encoded(smooth(50, 37, "L")),
    "with tables of its own": encoded(smooth(50, 37), optimize=True),
    "with restarts": encoded(smooth(50, 37), restart_marker_blocks=2),
    "turned by EXIF": encoded(smooth(50, 37), exif=EXIF),
    "with a comment": encoded(smooth(50, 37), comment="a comment with \xff\xd9"),
    "by Photoshop": encoded(smooth(50, 37))[:2] + b"\xff\xee\0\x0eAdobe\0d\0\0\0\0\x01" + encoded(smooth(50, 37))[2:],
}
PLAIN = USUAL["4:2:0"]
FRAME = PLAIN.index(b"\xff\xc0")
SCAN = PLAIN.index(b"\xff\xda")
TABLES = PLAIN.index(b"\xff\xc4")
TOO_MANY_CODES = b"\xff\xc4\x01\x14\x13" + bytes(14) + b"\x02\xff" + bytes(257)


def changed(place, by, content=PLAIN):
    return content[:place] + by + content[place + len(by) :]


UNUSUAL = {
    "progressive": encoded(smooth(50, 37), progressive=True),
    "CMYK": encoded(smooth(50, 37, "CMYK")),
    "red, green, blue": encoded(smooth(50, 37), keep_rgb=True),
    "PNG": encoded(smooth(50, 37), "PNG"),
    "WebP": encoded(smooth(50, 37), "WEBP"),
    "empty": b"",
    "12 bits": changed(FRAME + 4, b"\x0c"),
    "arithmetic coding": changed(FRAME + 1, b"\xc9"),
    "a height that comes later": changed(FRAME + 5, b"\0\0"),
    "an odd sampling": changed(FRAME + 11, b"\x31"),
    "two frames": PLAIN[:FRAME] + PLAIN[FRAME : FRAME + 19] + PLAIN[FRAME:],
    "no Huffman tables": PLAIN[:TABLES] + PLAIN[SCAN:],
    "a table that no code has room for": changed(TABLES + 5, b"\x03"),
    "a table of more codes than bytes": PLAIN[:SCAN] + TOO_MANY_CODES + PLAIN[SCAN:],
    "a scan of one component": PLAIN[:SCAN] + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + PLAIN[SCAN + 14 :],
    "part of the coefficients": changed(SCAN + 12, b"\x05"),
    "Adobe's red, green, blue": PLAIN[:2] + b"\xff\xee\0\x0eAdobe\0d\0\0\0\0\0" + PLAIN[2:],
    "bytes between segments": PLAIN[:FRAME] + b"\0" + PLAIN[FRAME:],
    "no end": PLAIN[:-2],
    "an unexpected restart": PLAIN[:-30] + b"\xff\xd1" + PLAIN[-30:],
    "a picture that is too small for its size": changed(FRAME + 5, b"\x7f\0\x7f\0"),
}


@pytest.mark.parametrize("kind", USUAL)
def test_usual_files_pass(kind):
    walked = baseline_jpeg(USUAL[kind])
    assert (walked.width, walked.height) == (50, 37)
    assert decode_image(bytes(walked.content)).tobytes() == decode_image(USUAL[kind]).tobytes()


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_files_do_not_pass(kind):
    assert baseline_jpeg(UNUSUAL[kind]) is None


@pytest.mark.parametrize("after", [b"", b"a film\0", PLAIN])
def test_what_passes_has_no_metadata_and_nothing_after_the_picture(after):
    walked = baseline_jpeg(USUAL["turned by EXIF"] + after)
    assert walked.content == baseline_jpeg(PLAIN).content
    assert not Image.open(io.BytesIO(walked.content)).getexif()


def is_picture(content):
    try:
        return bool(decode_image(content).size)
    except UnreadableSample:
        return False


@pytest.mark.parametrize("kind", ["4:2:0", "with tables of its own", "with restarts", "turned by EXIF"])
@pytest.mark.parametrize("end", [b"", b"\xff\xd9", b"\xff\xd9\0\0"])
def test_of_200_cuts_only_pictures_pass(kind, end):
    content = USUAL[kind]
    cuts = [content[:place] + end for place in np.linspace(0, len(content) - 1, 200).astype(int)]
    passed = [cut for cut in cuts if baseline_jpeg(cut)]
    assert all(map(is_picture, passed))
    assert bool(passed) == bool(end)  # cut inside of its compressed data, and ended


@settings(max_examples=repeated(400), deadline=None)
@given(
    st.sampled_from([content + after for content in USUAL.values() for after in (b"", PLAIN, b"a film")]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
def test_of_damaged_files_only_pictures_pass(content, damages, only_head):
    damaged, end = bytearray(content), content.index(b"\xff\xda") + 14 if only_head else len(content)
    for place, byte in damages:
        damaged[int(place * (end - 1))] = byte
    if baseline_jpeg(bytes(damaged)):
        assert is_picture(bytes(damaged))
