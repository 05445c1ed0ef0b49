"""What one sits and lies on. A back is where z is negative, in centimetres or any other unit."""

from numpy.random import Generator

from pta.door.points.mesh import Mesh
from shapes.solids import ball, box, leaning, moved, rod, turned


def legs(rng: Generator, width: float, depth: float, height: float) -> list[Mesh]:
    """Four legs below a rectangle: square or round, upright or splayed, perhaps joined by bars."""
    thick, splay = rng.uniform(1.5, 4), rng.choice([0.0, rng.uniform(0, 0.12)])
    corners = [(x * (width / 2 - thick), z * (depth / 2 - thick)) for x in (-1, 1) for z in (-1, 1)]
    if splay == 0 and rng.random() < 0.5:
        found = [box(2 * thick, height, 2 * thick, (x, 0, z)) for x, z in corners]
    else:
        out = 1 + splay
        found = [rod((x * out, 0, z * out), (x, height, z), thick * 0.7, thick) for x, z in corners]
    if rng.random() < 0.3:
        low = height * rng.uniform(0.15, 0.5)
        found += [box(thick, thick, depth, (x * (width / 2 - thick), low, 0)) for x in (-1, 1)]
    return found


def pedestal(rng: Generator, radius: float, height: float) -> list[Mesh]:
    """A column on a plate, or on a star of feet with castors."""
    column = rod((0, 2, 0), (0, height, 0), rng.uniform(2, 4))
    if rng.random() < 0.4:
        return [column, turned([(0, 0), (radius, 0), (radius * 0.9, 3), (0, 3)])]
    star = [leaning(rod((0, 5, 0), (radius, 3, 0), 2, 1.5), 1, turn * 1.2566) for turn in range(5)]
    castors = [leaning(ball(2.5, (radius, 2.5, 0)), 1, turn * 1.2566) for turn in range(5)]
    return [column, *star, *castors]


def _back(rng: Generator, width: float, height: float, thick: float) -> list[Mesh]:
    """A back that stands on z = 0: a slab, slats or bars, or a frame with a panel."""
    match rng.integers(3):
        case 0:
            low = rng.choice([0.0, height * rng.uniform(0.1, 0.4)])
            return [box(width, height - low, thick, (0, low, 0)), *_posts(width, height, thick if low else 0)]
        case 1:
            count, upright = rng.integers(2, 6), rng.random() < 0.5
            wide = (width if upright else height) / (2.2 * count)
            places = [(k + 0.5) / count for k in range(count)]
            slats = [
                box(wide, height, thick / 2, ((place - 0.5) * width * 0.85, 0, 0))
                if upright
                else box(width, wide, thick / 2, (0, place * height * 0.9, 0))
                for place in places
            ]
            return [*slats, box(width, height * 0.12, thick, (0, height * 0.88, 0)), *_posts(width, height, thick)]
        case _:
            panel = box(width * 0.8, height * rng.uniform(0.4, 0.8), thick / 2, (0, height * 0.15, 0))
            return [panel, box(width, thick, thick, (0, height - thick, 0)), *_posts(width, height, thick)]


def _posts(width: float, height: float, thick: float) -> list[Mesh]:
    return [box(thick, height, thick, (x * (width - thick) / 2, 0, 0)) for x in (-1, 1)] if thick else []


def chair(rng: Generator) -> list[Mesh]:
    """A seat on legs or a pedestal, with a back, seldom with thin arms."""
    width, depth, high = rng.uniform(36, 54), rng.uniform(36, 52), rng.uniform(38, 50)
    thick, tall = rng.uniform(2, 8), rng.uniform(30, 62)
    round_seat = rng.random() < 0.15
    seat = turned([(0, 0), (width / 2, 0), (width / 2, thick), (0, thick)], (0, high, 0))
    back = [leaning(part, 0, -rng.uniform(0, 0.25)) for part in _back(rng, width * 0.95, tall, rng.uniform(2, 5))]
    back = [moved(part, (0, high, 2 - depth / 2)) for part in back]
    below = legs(rng, width, depth, high) if rng.random() < 0.8 else pedestal(rng, width * 0.55, high)
    arms: list[Mesh] = []
    if rng.random() < 0.2:
        level = high + rng.uniform(17, 25)
        for x in (-width / 2, width / 2):
            arms += [box(4, 3, depth * 0.9, (x, level, 0)), box(3, level - high, 3, (x, high, depth * 0.35))]
    return [seat if round_seat else box(width, thick, depth, (0, high, 0)), *back, *below, *arms]


def _upholstered(rng: Generator, width: float, cushions: int) -> list[Mesh]:
    """A padded seat between arms and before a back."""
    depth, high, foot = rng.uniform(70, 95), rng.uniform(30, 44), rng.uniform(2, 16)
    arm, arm_high = rng.uniform(8, 24), rng.uniform(50, 66)
    back, back_high = rng.uniform(12, 26), rng.uniform(66, 100)
    inner = width - 2 * arm
    base = box(width, high - foot - 10, depth, (0, foot, 0))
    sides = [box(arm, arm_high - foot, depth, (x * (width - arm) / 2, foot, 0)) for x in (-1, 1)]
    if rng.random() < 0.3:
        sides += [
            rod(
                (part * (width - arm) / 2, arm_high, -depth / 2),
                (part * (width - arm) / 2, arm_high, depth / 2),
                arm / 2,
            )
            for part in (-1, 1)
        ]
    rest = leaning(box(width, back_high - foot, back, (0, foot, (back - depth) / 2)), 0, -rng.uniform(0, 0.15))
    pads = [
        box(
            inner / cushions - 1,
            rng.uniform(9, 16),
            depth - back,
            ((k + 0.5) * inner / cushions - inner / 2, high - 10, back / 2),
        )
        for k in range(cushions)
    ]
    feet = [box(5, foot, 5, (x * (width / 2 - 6), 0, z * (depth / 2 - 6))) for x in (-1, 1) for z in (-1, 1)]
    return [base, *sides, rest, *pads, *feet]


def armchair(rng: Generator) -> list[Mesh]:
    """A padded seat for one."""
    return _upholstered(rng, rng.uniform(70, 105), 1)


def sofa(rng: Generator) -> list[Mesh]:
    """A padded seat for two to four, sometimes around a corner, sometimes with loose cushions."""
    width = rng.uniform(140, 260)
    parts = _upholstered(rng, width, int(rng.integers(2, 5)))
    if rng.random() < 0.25:
        side, long = rng.choice([-1, 1]), rng.uniform(50, 120)
        parts.append(box(75, rng.uniform(35, 45), long, (side * (width - 75) / 2, 0, 35 + long / 2)))
    if rng.random() < 0.3:
        parts += [leaning(box(40, 40, 12, (x * width * 0.3, 42, -12)), 0, -0.3, (0, 42, -12)) for x in (-1, 1)]
    return parts


def stool(rng: Generator) -> list[Mesh]:
    """A seat without a back."""
    width, high, thick = rng.uniform(28, 44), rng.uniform(40, 82), rng.uniform(2, 9)
    depth = width * rng.uniform(0.85, 1.1)
    below = legs(rng, width * 0.9, depth * 0.9, high) if rng.random() < 0.65 else pedestal(rng, width * 0.5, high)
    if rng.random() < 0.5:
        return [turned([(0, 0), (width / 2, 0), (width / 2, thick), (0, thick)], (0, high, 0)), *below]
    return [box(width, thick, depth, (0, high, 0)), *below]


def bench(rng: Generator) -> list[Mesh]:
    """A long seat of boards on two supports, with or without a back of boards."""
    width, depth, high = rng.uniform(110, 200), rng.uniform(32, 50), rng.uniform(38, 48)
    boards = int(rng.integers(1, 6))
    seat = [
        box(width, 4, depth / boards - 1.5, (0, high, (k + 0.5) * depth / boards - depth / 2)) for k in range(boards)
    ]
    ends = [box(rng.uniform(4, 8), high, depth * 0.9, (x * width * 0.42, 0, 0)) for x in (-1, 1)]
    below = ends if rng.random() < 0.5 else legs(rng, width * 0.94, depth, high)
    back: list[Mesh] = []
    if rng.random() < 0.5:
        count = int(rng.integers(1, 4))
        back = [box(width, 9, 3, (0, high + 12 + 14 * k, -depth / 2)) for k in range(count)]
        back += [box(5, 14 + 14 * count, 4, (x * width * 0.42, high, -depth / 2)) for x in (-1, 1)]
    return [*seat, *below, *back]


def bed(rng: Generator) -> list[Mesh]:
    """A mattress on a frame with a headboard; a cot has bars, a bunk bed a second mattress."""
    width, long, high = rng.uniform(75, 200), rng.uniform(170, 220), rng.uniform(15, 40)
    kind = rng.random()
    mattress = rng.uniform(12, 30)
    frame = box(width, rng.uniform(8, 24), long, (0, high - 8, 0))
    head = box(width * rng.uniform(1, 1.1), rng.uniform(60, 120), rng.uniform(3, 10), (0, 0, -long / 2))
    foot = box(width, rng.uniform(high, 70), rng.uniform(3, 8), (0, 0, long / 2))
    parts = [frame, head, box(width * 0.95, mattress, long * 0.96, (0, high + 6, 0)), *legs(rng, width, long, high)]
    parts += [foot] if rng.random() < 0.5 else []
    top = high + 6 + mattress
    pillows = 1 if width < 120 else 2
    parts += [
        ball((width / pillows * 0.38, 7, 20), ((k + 0.5) * width / pillows - width / 2, top, 25 - long / 2))
        for k in range(pillows)
    ]
    if kind < 0.12:
        level = rng.uniform(110, 140)
        parts += [box(width, 22, long, (0, level, 0)), *legs(rng, width, long, level + 40)]
    elif kind < 0.22:
        bars = [(x * width / 2, k * long / 8 - long / 2) for x in (-1, 1) for k in range(9)]
        parts += [rod((x, high, z), (x, high + 60, z), 1.5) for x, z in bars]
        parts += [box(4, 4, long, (x * width / 2, high + 58, 0)) for x in (-1, 1)]
    return parts
