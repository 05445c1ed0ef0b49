"""ECALP as a loop: Efficient and Context-Aware Label Propagation for Zero-/Few-Shot Training-Free Adaptation (2025)."""

from dataclasses import dataclass

import numpy as np

from pta.reference.numerics import Array

COPY = 2**31  # the number of a sample's second copy, above that of any row
GRID = 2.0**24  # similarities and Y are compared in multiples of its inverse, so that equal ones are equal
SHORTEST = 1e-12
Entry = tuple[float, int]  # a similarity and the number of a row or of a class


@dataclass
class Node:
    """What is stored of a sample."""

    age: int
    feature: Array
    images: list[Entry]
    text: list[Entry]
    label: int = 0
    value: float = 0.0


def ecalp_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    max_rows: int | None = 500,
    neighbours: int = 8,
    text_neighbours: int = 3,
    gamma: int = 10,
    iterations: int = 3,
    seed_weight: float = 0.2,
) -> Array:
    """Logits N×C of a stream: scale times what arrives at each sample's second copy."""
    variance = anchors.var(axis=0, ddof=1)
    w = variance / max(np.linalg.norm(variance), SHORTEST)
    rows: dict[int, Node] = {}
    outputs = []
    for t, f in enumerate(features):
        # 1. Lists.
        before = {i: row.images for i, row in rows.items()}
        number, length = len(rows), length_of_lists(len(rows), neighbours)
        text = best([(on_grid(cosine), c) for c, cosine in enumerate(anchors @ f)], text_neighbours)
        rows[number] = new = Node(t, f / np.linalg.norm(f), [], text)
        s = {i: similarity(row, new, w) for i, row in rows.items()}
        own = best([*((s[i], i) for i in rows), (s[number], COPY)], length)
        for i, row in rows.items():
            row.images = own if row is new else best([*row.images, (s[i], number), (s[i], COPY)], length)
        # 2. and 3. Propagation, and the answer.
        Y = propagated(rows, len(anchors), neighbours, gamma, iterations)
        outputs.append(scale * Y[-1])
        # 4. Labels; the copy goes.
        for row, y in zip(rows.values(), Y, strict=False):
            row.label = int(np.round(y * GRID).argmax())
            row.value = seed_weight * float(y[row.label])
            row.images = [entry for entry in row.images if entry[1] != COPY]
        # 5. Room.
        if max_rows is not None and len(rows) > max_rows:
            if (gone := weakest(rows)) == number:
                del rows[number]
                for i, row in rows.items():
                    row.images = before[i]
            else:
                rows[gone] = rows.pop(number)
                lost = [row for i, row in rows.items() if i == gone or gone in [j for _, j in before[i]]]
                fill(rows, lost, number, gone, w, neighbours)
    return np.array(outputs)


def best(entries: list[Entry], count: int) -> list[Entry]:
    """The largest similarities, of equal ones those of the higher number."""
    return sorted(entries, reverse=True)[:count]


def length_of_lists(rows: int, neighbours: int) -> int:
    """How many neighbours are kept of a row when there were so many rows."""
    return neighbours + min(max(rows - neighbours, 0), 2)


def similarity(one: Node, other: Node, w: Array) -> float:
    """The weighted cosine, with the weight on the older row; 0 if it is negative."""
    older, newer = sorted([one, other], key=lambda row: row.age)
    weighted = w * older.feature
    return on_grid(float(weighted @ newer.feature) / max(float(np.linalg.norm(weighted)), SHORTEST))


def on_grid(cosine: float) -> float:
    """A multiple of the grid from 0 to 1."""
    return float(np.round(min(max(cosine, 0.0), 1.0) * GRID) / GRID)


def weakest(rows: dict[int, Node]) -> int:
    """Of the label with most rows, the row with the smallest value."""
    labels = [row.label for row in rows.values()]
    most = max(sorted(set(labels)), key=labels.count)
    return min((np.round(row.value * GRID), i) for i, row in rows.items() if row.label == most)[1]


def fill(rows: dict[int, Node], lost: list[Node], number: int, now: int, w: Array, neighbours: int) -> None:
    """Make the lists of rows that lost an entry anew; in the others, a row has another number now."""
    length = length_of_lists(len(rows), neighbours)
    for row in rows.values():
        row.images = [(s, now if j == number else j) for s, j in row.images]
    for row in lost:
        row.images = best([(similarity(row, other, w), j) for j, other in rows.items()], length)


def propagated(rows: dict[int, Node], C: int, neighbours: int, gamma: int, iterations: int) -> Array:
    """Y of every row and, last, of the copy, whose lists are those of the newest row."""
    newest, N = max(rows.values(), key=lambda row: row.age), len(rows) + 1
    node = {number: i for i, number in enumerate([*rows, COPY])}
    W, B, Y = np.zeros((N, N)), np.zeros((N, C)), np.zeros((N, C))
    for i, row in enumerate([*rows.values(), newest]):
        for s, j in row.images[:neighbours]:
            W[i, node[j]] = s**gamma
        for s, c in row.text:
            B[i, c] = s**gamma
        if row.age < newest.age:
            Y[i, row.label] = row.value
    A = W + W.T
    a = 1 / (np.sqrt(A.sum(axis=1) + B.sum(axis=1)) + 1e-6)
    b = 1 / (np.sqrt(B.sum(axis=0)) + 1e-6)
    A, B = a[:, None] * A * a, a[:, None] * B * b
    for _ in range(iterations):
        Y = A @ Y + B
    return Y
