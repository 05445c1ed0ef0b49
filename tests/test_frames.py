"""Pictures in a pipe are cut apart exactly, whatever is inside them."""

import io
import os
import threading

import numpy as np
import pytest
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import encoded, noise

from pta.door.images.frames import _Incoming, split_frames
from pta.errors import UnreadableSample


def frame(seed, format, **how):
    width, height = np.random.default_rng(seed).integers(1, 60, 2)
    return encoded(noise(width, height, seed=seed), format, **how)


def thumbnail_exif():
    """Exif data that hold a whole JPEG file, end marker and all, as cameras write them."""
    return b"Exif\0\0" + frame(9, "JPEG")


KINDS = [
    ("PNG", {}),
    ("JPEG", {}),
    ("JPEG", {"progressive": True, "quality": 95}),
    ("JPEG", {"restart_marker_blocks": 2}),
    ("JPEG", {"exif": thumbnail_exif(), "optimize": True}),
]


@settings(max_examples=repeated(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(KINDS)), max_size=6))
def test_frames_come_out_as_they_went_in(kinds):
    sent = [frame(seed, format, **how) for seed, (format, how) in kinds]
    assert list(split_frames(io.BufferedReader(io.BytesIO(b"".join(sent))))) == sent


def test_padding_between_frames_is_passed_over():
    sent = [frame(1, "JPEG"), frame(2, "PNG")]
    piped = b"\0\0" + sent[0] + b"\r\n\0" + sent[1] + b"\n"
    assert list(split_frames(io.BufferedReader(io.BytesIO(piped)))) == sent


def test_a_frame_is_given_before_the_next_one_arrives():
    out, into = os.pipe()
    with os.fdopen(out, "rb") as pipe, os.fdopen(into, "wb", buffering=0) as camera:
        frames = split_frames(pipe)
        for seed in range(3):
            sent = frame(seed, "JPEG")
            writing = threading.Thread(target=camera.write, args=[sent])
            writing.start()
            assert next(frames) == sent  # would wait for ever if it looked ahead
            writing.join()


class CountedPipe(io.RawIOBase):
    """Gives at most so many bytes at a time, and counts how often it is asked."""

    def __init__(self, content, at_once):
        self.content, self.at_once, self.asked, self.given = content, at_once, 0, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        part = self.content[self.given : self.given + min(self.at_once, len(buffer))]
        buffer[: len(part)] = part
        self.asked, self.given = self.asked + 1, self.given + len(part)
        return len(part)


FILLED = {
    "padding between frames": lambda one: one + bytes(2**21) + one,
    "fill bytes in a header": lambda one: one[:2] + b"\xff" * 2**21 + one[2:] + one,
    "escaped bytes in a scan": lambda one: one[:-2] + b"\xff\0" * 2**20 + one[-2:] + one,
}


@pytest.mark.parametrize("where", FILLED)
def test_bytes_without_meaning_are_read_in_blocks(where, monkeypatch):
    content = FILLED[where](frame(1, "JPEG"))
    pipe, steps = CountedPipe(content, 2**20), []
    taken = _Incoming.take
    monkeypatch.setattr(_Incoming, "take", lambda *given: steps.append(1) or taken(*given))
    frames = list(split_frames(io.BufferedReader(pipe)))
    assert len(frames) == 2
    assert pipe.asked < 600  # 2 MiB by the buffer of a BufferedReader
    assert len(steps) < 200


@pytest.mark.parametrize("at_once", [1, 7])
def test_frames_come_out_whole_however_small_the_pieces_are_in_which_they_arrive(at_once):
    sent = [frame(seed, format, **how) for seed, (format, how) in enumerate(KINDS)]
    pipe = CountedPipe(b"\n".join(sent), at_once)
    for expected, got in zip(sent, split_frames(io.BufferedReader(pipe)), strict=True):
        assert got == expected
        assert pipe.content[: pipe.given].endswith(expected) or at_once > 1  # not one byte further


def test_a_frame_of_too_many_bytes_or_parts_is_refused():
    with pytest.raises(UnreadableSample, match="more than 99 bytes"):
        list(split_frames(io.BufferedReader(io.BytesIO(frame(1, "JPEG"))), 99))
    endless = b"\xff\xd8\xff\xda\0\2" + bytes(5000)
    with pytest.raises(UnreadableSample, match="more than 999 bytes"):
        list(split_frames(io.BufferedReader(io.BytesIO(endless)), 999))
    with pytest.raises(UnreadableSample, match="too many parts"):
        list(split_frames(io.BufferedReader(io.BytesIO(b"\xff\xd8" + b"\xff\xfe\0\2" * 2**17))))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"GIF89a......", "neither JPEG nor PNG"),
        (b"\x89Pnothing", "neither JPEG nor PNG"),
        (frame(1, "JPEG")[:-1], "ended in the middle"),
        (frame(1, "PNG")[:-1], "ended in the middle"),
        (b"\xff\xd8\x00\x00", "damaged"),
        (b"\xff\xd8\xff\xe0\x00\x01" + b"x" * 9, "damaged"),
        (b"\x89PNG\r\n\x1a\n\xff\xff\xff\xffIDAT", "more than 268,435,456 bytes"),
    ],
)
def test_what_is_no_stream_of_frames_is_refused(content, complaint):
    with pytest.raises(UnreadableSample, match=complaint):
        list(split_frames(io.BufferedReader(io.BytesIO(content))))
