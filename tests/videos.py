"""Videos made on the spot: of colours, of packaged pictures, with changing rates, and damaged."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from pta.data.fashion import load_fashion_test

SIZE = (64, 48)


def grey(number, size=SIZE):
    """A frame whose brightness says which it is."""
    return np.full((size[1], size[0], 3), 8 + 8 * (number % 30), np.uint8)


def number_of(image):
    """Which frame it is."""
    return round((float(image.mean()) - 8) / 8)


def write_video(path, frames, *, times=None, rate=10, codec="libx264", format=None, options=None):
    """Write frames; `times` are in milliseconds, else they come at a rate."""
    with av.open(str(path), "w", format=format) as out:
        stream = out.add_stream(codec, rate=rate, options=options or {})
        stream.thread_count = 1  # with several, the bytes depend on the load of the machine
        stream.pix_fmt = "yuv420p" if codec != "mjpeg" else "yuvj420p"
        if times is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for number, picture in enumerate(frames):
            if not number:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def fashion_frames(names, count, size=(320, 240)):
    """Frames with a packaged picture of a class in the left half and one of another in the right half, in turns."""
    fashion = load_fashion_test()
    first = [next(n for n, label in enumerate(fashion.labels) if fashion.class_names[label] == name) for name in names]
    pictures = [np.kron(fashion.images[n], np.ones((4, 4), np.uint8)) for n in first]
    for number in range(count):
        frame = np.zeros((size[1], size[0], 3), np.uint8)
        frame[20:132, 20:132] = pictures[number // 5 % 2][..., None]
        frame[20:132, 180:292] = pictures[1 - number // 5 % 2][..., None]
        yield frame


def command_line(process):
    """The command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def children_of(process):
    """The processes that a process has started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_running(process):
    """Whether a process has not ended."""
    return bool(command_line(process))
