"""Pictures to work on: noise, smooth colours, the packaged test images; and their files."""

import io
import struct
import zlib
from functools import cache

import numpy as np
import torch
from PIL import Image

from pta import Samples
from pta.data.fashion import load_fashion_test
from pta.data.prompts import build_classifier
from pta.data.views import make_views
from pta.door.images import load_image, open_image
from pta.errors import naming
from pta.models import EmbeddedEncoder

FASHION = load_fashion_test()


def decode_image(content, name="the image", **how):
    """Open a picture and decode it, as the package does in two steps; `name` is what messages call it."""
    with naming(name):
        image = open_image(content, **how)
        load_image(image)
        return image


def write_photos(folder, count=40, size=(96, 80)):
    """A folder with one sub-folder per class; returns the paths in order and the class of each."""
    labelled = []
    for number in range(count):
        name = FASHION.class_names[FASHION.labels[number]]
        path = folder / name / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(FASHION.images[number]).resize(size).convert("RGB").save(path, quality=95)
        labelled.append((path, name))
    return sorted(labelled)


def write_classes(path):
    """The class names, one per line."""
    path.write_text("\n".join(FASHION.class_names) + "\n")
    return path


@cache
def fashion_samples(count, views):
    """The classifier of the embedded model, and features, AugMix views and patches of the first images."""
    encoder, pictures = EmbeddedEncoder.load().ready(), map(Image.fromarray, FASHION.images[:count])
    classifier = build_classifier(encoder, FASHION.class_names, ("a photo of a {}.",))
    how = {"count": views, "mode": "augmix"}
    drawn = [make_views(one, encoder.preprocess, seed=(1, number), **how) for number, one in enumerate(pictures)]
    pixels = torch.stack(drawn)
    seen = encoder.encode(pixels.flatten(0, 1)).unflatten(0, (count, views))
    return classifier, Samples.of(seen[:, 0], views=seen, patches=encoder.encode_tokens(pixels[:, 0]))


def noise(width, height, mode="RGB", seed=1):
    """Independent pixels."""
    colours = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(colours).convert(mode)


def smooth(width, height, mode="RGB", seed=0):
    """Smooth colours with some grain, so that every filter has something to do."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    grain = rng.integers(-20, 20, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(small) + grain, 0, 255).astype(np.uint8)).convert(mode)


def encoded(image, format="JPEG", **how):
    """The content of a picture's file."""
    buffer = io.BytesIO()
    image.save(buffer, format, **how)
    return buffer.getvalue()


def chunk(kind, data=b""):
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *, bits=8, colour=0, interlaced=False, before=b"", data=b""):
    """A PNG file that says of itself what it likes."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + head + before + chunk(b"IDAT", data) + chunk(b"IEND")
