"""The GPU's kernel that resizes lines of pixels, of many pictures at once."""

import triton
import triton.language as tl


@triton.jit
def resize_lines(
    fields, first, weights, size, rows,
    FIELDS: tl.constexpr, BITS: tl.constexpr, LINES: tl.constexpr, PIXELS: tl.constexpr,
    LINES_ARE_NEAR: tl.constexpr,
):  # fmt: skip
    """Some lines of one channel of one picture: each pixel becomes the sum of those near it by their weights.

    Neighbouring threads take neighbouring lines if these are nearer to each other in memory than pixels of one line.
    """
    here, channel = fields + tl.program_id(1) * FIELDS, tl.program_id(2)
    source = tl.load(here).to(tl.pointer_type(tl.uint8)) + channel * tl.load(here + 1)
    target = tl.load(here + 4).to(tl.pointer_type(tl.uint8)) + channel * tl.load(here + 5)
    lines, length = tl.load(here + 8), tl.load(here + 9)
    taps, row = tl.load(here + 10).to(tl.int32), tl.load(here + 11)
    blocks = tl.cdiv(size, PIXELS)
    start = (tl.program_id(0) // blocks) * LINES
    if LINES_ARE_NEAR:
        line = start + tl.arange(0, LINES)[None, :]
        pixel = (tl.program_id(0) % blocks) * PIXELS + tl.arange(0, PIXELS)[:, None]
    else:
        line = start + tl.arange(0, LINES)[:, None]
        pixel = (tl.program_id(0) % blocks) * PIXELS + tl.arange(0, PIXELS)[None, :]
    inside = (line < lines) & (pixel < size)
    if start < lines:
        place = tl.load(first + row * size + pixel, mask=pixel < size, other=0)
        near_lines, step = source + line * tl.load(here + 2), tl.load(here + 3)
        total = tl.full(inside.shape, 1 << (BITS - 1), tl.int32)
        for tap in range(taps):
            weight = tl.load(weights + (tap * rows + row) * size + pixel, mask=pixel < size, other=0)
            near = tl.load(near_lines + (place + tap) * step, mask=inside & (place + tap < length), other=0)
            total += near.to(tl.int32) * weight
        resized = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
        tl.store(target + line * tl.load(here + 6) + pixel * tl.load(here + 7), resized, mask=inside)
