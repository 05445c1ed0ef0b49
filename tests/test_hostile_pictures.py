"""What a picture costs is known from its header: whatever would cost too much is refused before it is decoded."""

import io
import logging
import math
import struct
import tarfile
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from photos import chunk, decode_image, encoded, noise, png
from PIL import Image, ImageFile, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

import pta
from pta.core.limits import USUAL_LIMITS, Limits
from pta.door.images.bare import bare_image
from pta.door.images.reading import Room
from pta.errors import InvalidParameter, UnreadableSample
from pta.models import EmbeddedEncoder
from pta.run.reading import Reading


def jpeg_with(segments, image=None, **how):
    """A JPEG file with more segments behind its start."""
    content = encoded(image or noise(16, 16), **how)
    return content[:2] + segments + content[2:]


def segment(marker, data=b""):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


def many_scans(scans, side):
    content = encoded(Image.new("RGB", (side, side), "grey"), progressive=True)
    last = content.rfind(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + content[-2:]


def run_length_bitmap(width, height):
    data = b"\x01\x00\x00\x00" * height
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(data), 0, 0, 1078) + head + bytes(1024) + data


def large_webp(side):
    """A small file whose header says that it has side×side pixels."""
    content = bytearray(encoded(noise(8, 8), "WEBP", lossless=True))
    content[21:25] = struct.pack("<I", (side - 1) | (side - 1) << 14)
    return bytes(content)


def tiff(*tags, data=bytes(64), order="<"):
    """A grey TIFF file of one directory, in which some tags are replaced: (tag, kind, count, value)."""
    usual = {256: 8, 257: 8, 258: 8, 259: 1, 262: 1, 277: 1, 278: 8, 279: len(data), 273: None}
    entries = {tag: (4, 1, value) for tag, value in usual.items()} | {tag: rest for tag, *rest in tags}
    begin = 8 + 2 + 12 * len(entries) + 4
    entries[273] = (4, 1, begin) if entries[273][2] is None else entries[273]
    rows = [struct.pack(f"{order}HHII", tag, *entries[tag]) for tag in sorted(entries)]
    mark = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return mark + struct.pack(f"{order}H", len(rows)) + b"".join(rows) + bytes(4) + data


def forbid_decoding(monkeypatch):
    for kind in (Image.Image, ImageFile.ImageFile, TiffImagePlugin.TiffImageFile, WebPImagePlugin.WebPImageFile):
        monkeypatch.setattr(kind, "load", lambda image: pytest.fail("it was decoded"))


TOO_COSTLY = {
    "a row per pixel": (lambda: png(1, 89_000_000), "1×89000000 pixels are too many.*a row counts as at least 64"),
    "a few too many": (lambda: png(*[math.isqrt(USUAL_LIMITS.max_pixels) + 1] * 2), "pixels are too many"),
    "a gigantic square": (lambda: png(60_000, 60_000), "pixels"),  # which Pillow itself refuses
    "a square of pixels": (lambda: png(10_000, 10_000), "10000×10000 pixels are too many; at most 89,478,485"),
    "interlaced": (lambda: png(10_000, 10_000, interlaced=True), "pixels are too many"),
    "of 16 bits": (lambda: png(10_000, 10_000, bits=16, colour=2), "pixels are too many"),
    "3,000 scans": (lambda: many_scans(3000, 1000), r"3,009 passes over 1000×1000 pixels are too slow"),
    "scans of one block": (lambda: many_scans(40_000, 8), "40,009 passes over 8×8 pixels are too slow"),
    "runs in a bitmap": (lambda: run_length_bitmap(80_000, 1000), "256 passes over 80000×1000 pixels are too slow"),
    "text": (lambda: b"P3 2 2 255\n" + b"#\n" * 9 + b"0 " * 12, "written as text"),
    "endless comment": (lambda: b"P6\n#" + b"a" * 5000 + b"\n1 1 255\nabc", "damaged, or has more than 4,096"),
    "comment in a number": (lambda: b"P6 1#\n1 #" + b"a" * 5000 + b"\n1 255\nabc", "header is damaged"),
    "odd range": (lambda: b"P6 4000 4000 254\n", "256 passes over 4000×4000"),
    "segments": (lambda: jpeg_with(segment(0xE1) * 70_000), "more than 65,536 parts"),
    "chunks": (lambda: png(8, 8, before=chunk(b"IDAT") * 70_000), "more than 65,536 parts"),
    "blocks": (lambda: b"GIF89a" + bytes(7) + b"!\xfe" + b"\1x" * 70_000 + b"\0,", "more than 65,536 parts"),
    "strips": (lambda: tiff((273, 4, 70_000, 8)), "more than 65,536 parts"),
    "tiles": (lambda: tiff((322, 4, 1, 60_000), (323, 4, 1, 60_000)), "8×8 pixels are too many"),
    "gigabytes for a dictionary": (lambda: tiff((259, 4, 1, 34925)), "TIFF compression 34925 is not read"),
    "WebP": (lambda: large_webp(10_000), "10000×10000 pixels are too many"),
}


@pytest.mark.parametrize("kind", TOO_COSTLY)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_would_cost_too_much_is_refused_before_it_is_decoded(kind, monkeypatch):
    make, complaint = TOO_COSTLY[kind]
    content = make()
    forbid_decoding(monkeypatch)
    with pytest.raises(UnreadableSample, match=rf"^x: .*({complaint})"):
        decode_image(content, "x")


def test_a_picture_too_thin_to_be_resized_is_refused_before_it_is_decoded(encoders, monkeypatch):
    forbid_decoding(monkeypatch)
    for width, height in ((30_000_000, 2), (1, 1_000_000)):
        with pytest.raises(UnreadableSample, match=f"^thin.png: {width}×{height} pixels are too thin"):
            encoders["clip"].prepare(png(width, height), "thin.png")


def test_usual_progressive_pictures_are_decoded_and_a_thumbnail_adds_no_scans():
    thumbnail = many_scans(100, 8)
    content = jpeg_with(segment(0xE1, b"Exif\0\0" + thumbnail), noise(64, 48), progressive=True)
    assert content.count(b"\xff\xda") > 100
    assert bare_image(content)[1].passes < 16
    assert decode_image(content).size == (64, 48)
    assert decode_image(many_scans(1000, 8)).size == (8, 8)


def several(format, mode="RGB", **how):
    """A file of two pictures."""
    return encoded(noise(40, 30, mode), format, save_all=True, append_images=[Image.new(mode, (40, 30))], **how)


EXIF = b"Exif\0\0MM\0*\0\0\0\x08" + bytes(300)

# Every kind of file that has metadata, or more pictures than the first.
PICTURES = {
    "jpeg": lambda: encoded(noise(40, 30), exif=EXIF, comment=b"hello", icc_profile=b"p" * 99_999),
    "cmyk": lambda: encoded(noise(40, 30, "CMYK"), exif=EXIF),
    "filled jpeg": lambda: jpeg_with(b"\xff" * 1000 + segment(0xFE, b"hello"), noise(40, 30)),
    "restarts": lambda: encoded(noise(40, 30), restart_marker_blocks=1, comment=b"hello"),
    "palette": lambda: encoded(noise(40, 30).quantize(16), "PNG", transparency=3, icc_profile=b"p" * 999),
    "16 bits": lambda: encoded(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50), "PNG"),
    "transparent": lambda: encoded(noise(40, 30, "RGBA"), "PNG", exif=EXIF),
    "animated png": lambda: several("PNG", default_image=False),
    "gif": lambda: several("GIF", mode="P", comment=b"x" * 999),
    "webp": lambda: several("WEBP", lossless=True),
    "tiff": lambda: several("TIFF", software="x"),
    "turned tiff": lambda: encoded(noise(40, 30), "TIFF", tiffinfo={274: 6, 270: "x" * 999}, compression="tiff_lzw"),
    "palette tiff": lambda: encoded(noise(40, 30).quantize(16), "TIFF"),
    "jpeg tiff": lambda: encoded(noise(40, 30), "TIFF", compression="jpeg"),
    "big-endian tiff": lambda: tiff(order=">", data=bytes(range(64))),
    "bmp": lambda: encoded(noise(40, 30), "BMP"),
    "ppm": lambda: encoded(noise(40, 30), "PPM"),
    "ppm with comments": lambda: b"P6 # a\n#b\n4\t#c\r2\n#\n255\n" + bytes(range(24)),
    "pgm of 16 bits": lambda: b"P5 2 2 65535 " + bytes(range(8)),
    "pbm": lambda: encoded(noise(40, 30, "1"), "PPM"),
    "pfm": lambda: encoded(noise(4, 3, "F"), "PPM"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_metadata_and_further_pictures_change_no_pixel(kind):
    content = PICTURES[kind]()
    ours, pillows = decode_image(content), Image.open(io.BytesIO(content))
    assert ours.mode == pillows.mode
    assert np.array_equal(np.asarray(ours), np.asarray(pillows))
    assert np.array_equal(np.asarray(ours.convert("RGB")), np.asarray(pillows.convert("RGB")))


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow, about tags
def test_a_damaged_file_is_decoded_or_refused(kind):
    content, rng = PICTURES[kind](), np.random.default_rng(2)
    for _ in range(40):
        damaged = bytearray(content[: rng.integers(len(content) + 1)])
        for at in rng.integers(max(1, len(damaged)), size=rng.integers(4)):
            damaged[at : at + 1] = bytes(rng.integers(256, size=rng.integers(3), dtype=np.uint8))
        with suppress(UnreadableSample):
            decode_image(bytes(damaged), "x")


def test_metadata_never_reach_pillow(monkeypatch):
    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "getexif", lambda image: pytest.fail("tags were read"))
    monkeypatch.setattr(PngImagePlugin.PngStream, "chunk_iCCP", lambda *about: pytest.fail("a profile was unpacked"))
    tags = struct.pack(">H", 60_000) + b"".join(struct.pack(">HHII", tag, 2, 10**6, 8) for tag in range(60_000))
    exif = b"MM\0*\0\0\0\x08" + tags
    parts = [segment(0xE1, b"Exif\0\0" + exif[at : at + 60_000]) for at in range(0, len(exif), 60_000)]
    assert decode_image(jpeg_with(b"".join(parts) * 20)).size == (16, 16)
    profile = chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(10**6)))
    assert decode_image(png(8, 8, before=profile * 99, data=zlib.compress(bytes(72)))).size == (8, 8)


def test_the_limits_are_the_users_choice(tmp_path):
    (tmp_path / "a.png").write_bytes(content := encoded(noise(100, 80), "PNG"))

    def classifier(**limits):
        return pta.Classifier("embedded", ["shirt", "coat"], cache=None, limits=Limits(**limits))

    for given in (content, tmp_path / "a.png", str(tmp_path / "a.png")):
        assert classifier(max_pixels=8_000, max_bytes=len(content))(given)
        with pytest.raises(UnreadableSample, match="100×80 pixels are too many; at most 7,999"):
            classifier(max_pixels=7_999)(given)
        with pytest.raises(UnreadableSample, match=f"{len(content):,} bytes; at most {len(content) - 1:,} are read"):
            classifier(max_bytes=len(content) - 1)(given)


def test_what_pillow_logs_is_not_said(pta, tmp_path, monkeypatch):
    (tmp_path / "a.tif").write_bytes(tiff((277, 3, 1, 65_535)))
    for name in (None, "PIL"):  # as in a process without pytest
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
    answer = pta("predict", "a.tif", "--classes", "shirt,coat", "--model", "embedded")
    assert answer.returncode == 2
    assert all(line.startswith("pta: ") for line in answer.stderr.splitlines())


@pytest.mark.parametrize(("option", "most"), [("--max-pixels", 7_999), ("--max-bytes", 999)])
def test_the_limits_hold_wherever_pictures_are_read(pta, tmp_path, option, most):
    content = encoded(noise(100, 80), "PNG")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(content)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "photos" / "a.png", "a.png")
    fixed = ("--classes", "shirt,coat", "--model", "embedded", option, most)
    complaint = "too many; at most 7,999" if option == "--max-pixels" else "999"
    for given in (
        pta("predict", "photos", *fixed),
        pta("predict", "-", "--frames", *fixed, stdin=content),
        pta("extract", "photos", "--out", "a.safetensors", *fixed),
        pta("extract", "a.tar", "--out", "b.safetensors", *fixed),
    ):
        assert given.returncode == 2
        assert complaint in given.stderr
        assert given.stderr.count("\n") <= 2
    assert pta("extract", "photos", "--out", "a.safetensors", *fixed[:-2]).returncode == 0  # the same work goes on


@pytest.mark.parametrize("wrong", [{"max_pixels": 0}, {"max_pixels": 2e6}, {"max_bytes": True}, {"max_pixels": 10**12}])
def test_limits_are_whole_numbers(wrong):
    with pytest.raises(InvalidParameter, match="must be a whole number from 1"):
        Reading(limits=Limits(**wrong))


def test_pictures_in_work_share_one_room():
    room, inside, most, lock = Room(100), 0, 0, threading.Lock()

    def work(pixels):
        nonlocal inside, most
        with room.of(pixels):
            taken = min(pixels, 100)
            with lock:
                inside += taken
                most = max(most, inside)
            with lock:
                inside -= taken

    with ThreadPoolExecutor(100) as pool:
        list(pool.map(work, [40, 60, 70, 1000, 5] * 20))
    assert most <= 100
    assert room.free == 100


def test_a_picture_that_cannot_be_decoded_gives_its_room_back():
    from pta.door.images.reading import ROOM

    broken = encoded(noise(300, 300))[:2000]
    with pytest.raises(UnreadableSample, match="cannot be decoded"):
        EmbeddedEncoder.load().prepare(broken)
    assert ROOM.free == ROOM.pixels
