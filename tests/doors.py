"""Videos in which a region shows one of two pictures that the packaged model tells apart, in changing light."""

from fractions import Fraction

import av
import numpy as np
from photos import FASHION
from PIL import Image

CLASSES = "ankle boot,shirt"


def pictures_of(name, count):
    """Packaged pictures of a class."""
    number = FASHION.class_names.index(name)
    return FASHION.images[: len(FASHION.labels)][np.asarray(FASHION.labels) == number][:count]


def frame(picture, *, light=1.0, size=(320, 180), box=(100, 20, 120, 120), noise=0):
    """A grey frame with a picture in a box, as bright as the light."""
    width, height = size
    x, y, w, h = box
    pixels = np.full((height, width), 90, np.float64)
    pixels[y : y + h, x : x + w] = np.asarray(Image.fromarray(picture).resize((w, h)))
    pixels = pixels * light + noise
    return np.repeat(np.clip(pixels, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)


def write_video(path, frames, fps=10):
    """A file of frames."""
    with av.open(str(path), "w") as out:
        stream = None
        for number, pixels in enumerate(frames):
            if stream is None:
                stream = out.add_stream("mpeg4", rate=fps)
                stream.height, stream.width = pixels.shape[:2]
                stream.pix_fmt, stream.bit_rate = "yuv420p", 4_000_000
                stream.codec_context.time_base = Fraction(1, fps)
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            picture.pts = number
            out.mux(stream.encode(picture))
        out.mux(stream.encode())
    return path


def door(changes, hold=20, seed=1):
    """Frames of a region that shows a boot, then a shirt and so on, so many changes after the first, with moving light.

    Each is shown for `hold` frames.
    """
    rng = np.random.default_rng(seed)
    shown = [pictures_of(name, 40) for name in ("ankle boot", "shirt")]
    for part in range(changes + 1):
        picture = shown[part % 2][part % 40]
        for number in range(hold):
            light = 0.75 + 0.25 * np.sin((part * hold + number) / 17)
            yield frame(picture, light=light, noise=rng.normal(0, 4, (180, 320)))
