"""TCA as a plain loop over images, on the weights of a CLIP ViT under OpenAI's names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


@dataclass(frozen=True)
class NumpyViT:
    """A CLIP ViT with QuickGELU for one image at a time."""

    weights: Mapping[str, Array]
    heads: int

    @property
    def depth(self) -> int:
        return len({name.split(".")[3] for name in self.weights if name.startswith("visual.transformer.resblocks.")})

    def embed(self, image: Array) -> Array:
        kernel = self.weights["visual.conv1.weight"]
        width, _, patch, _ = kernel.shape
        rows, columns = image.shape[1] // patch, image.shape[2] // patch
        tokens = [self.weights["visual.class_embedding"]]
        for row in range(rows):
            for column in range(columns):
                piece = image[:, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
                tokens.append(kernel.reshape(width, -1) @ piece.reshape(-1))
        return self._norm("visual.ln_pre", np.stack(tokens) + self.weights["visual.positional_embedding"])

    def attend(self, block: int, x: Array) -> tuple[Array, Array]:
        """Attention of LN(x), and its probabilities heads×L×L."""
        name = f"visual.transformer.resblocks.{block}."
        joined = self._linear(f"{name}attn.in_proj_", self._norm(f"{name}ln_1", x))
        q, k, v = np.split(joined, 3, axis=1)
        outputs, probabilities = [], []
        for columns in np.split(np.arange(q.shape[1]), self.heads):
            p = softmax(q[:, columns] @ k[:, columns].T / math.sqrt(len(columns)))
            probabilities.append(p)
            outputs.append(p @ v[:, columns])
        return self._linear(f"{name}attn.out_proj.", np.concatenate(outputs, axis=1)), np.stack(probabilities)

    def mlp(self, block: int, x: Array) -> Array:
        name = f"visual.transformer.resblocks.{block}."
        hidden = self._linear(f"{name}mlp.c_fc.", self._norm(f"{name}ln_2", x))
        return self._linear(f"{name}mlp.c_proj.", hidden / (1 + np.exp(-1.702 * hidden)))

    def project(self, token: Array) -> Array:
        return unit(self._norm("visual.ln_post", token[None])[0] @ self.weights["visual.proj"])

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}weight"].T + self.weights[f"{name}bias"]

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def tca_loop(
    anchors: Array,
    images: Array,
    tower: NumpyViT,
    *,
    scale: float = 100.0,
    rate: float = 0.035,
    blocks: Sequence[int] = (3, 6, 9),
    slots: int = 3,
    layer_temperature: float = 0.1,
    alpha: float = 3.0,
    beta: float = 5.0,
    seed: int = 1,
    order: str = "update-first",
) -> Array:
    """Logits N×C of N images, channels×height×width each."""
    classes = len(anchors)
    reservoir: list[list[tuple[float, Array]]] = [[] for _ in range(classes)]
    domain_anchors: Array | None = None  # C×blocks×width
    omega = np.exp(np.arange(tower.depth) / (tower.depth - 1) / layer_temperature)
    omega /= omega.sum()
    out = []
    for number, image in enumerate(images):
        f, K = condensed(tower, image, rate, blocks, domain_anchors, np.random.default_rng((seed, number)))
        z = scale * anchors @ f

        def scored(z: Array = z, K: Array = K) -> Array:
            total = z.copy()
            for c, items in enumerate(reservoir):
                for _, other in items:
                    g = sum(w * cosine(mine, theirs) for w, mine, theirs in zip(omega, K, other, strict=True))
                    total[c] += alpha * math.exp(-beta * (1 - g))
            return total

        if order == "predict-first":
            out.append(scored())
        insert(reservoir[int(z.argmax())], entropy(softmax(z[None])[0]), K, slots)
        if all(len(items) >= 2 for items in reservoir):
            domain_anchors = np.stack([np.mean([other for _, other in items], axis=0) for items in reservoir])
        if order == "update-first":
            out.append(scored())
    return np.stack(out)


def insert(items: list[tuple[float, Array]], e: float, K: Array, slots: int) -> None:
    items.append((e, K))
    if len(items) > slots:
        means = [record.mean(axis=0) for _, record in items]
        scores = []
        for i, (own, _) in enumerate(items):
            likeness = [cosine(means[i], means[j]) for j in range(len(items)) if j != i]
            scores.append(own + sum(likeness) / len(likeness))
        del items[scores.index(max(scores))]
    items.sort(key=lambda item: item[0])


def condensed(
    tower: NumpyViT,
    image: Array,
    rate: float,
    blocks: Sequence[int],
    domain_anchors: Array | None,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """The feature of an image and its class token after every block."""
    x = tower.embed(image)
    record = []
    for block in range(tower.depth):
        N = len(x)
        L = math.ceil((1 - rate) * (N - 1))
        if block not in blocks or N - 1 - L == 0:
            x = x + tower.attend(block, x)[0]
        else:
            before = None if domain_anchors is None else domain_anchors[:, block - 1]
            x = condense(tower, block, x, L, before, rng)
        x = x + tower.mlp(block, x)
        record.append(x[0])
    return tower.project(x[0]), np.stack(record)


def condense(tower: NumpyViT, block: int, x: Array, L: int, anchors: Array | None, rng: np.random.Generator) -> Array:
    N = len(x)
    m = N - L
    if anchors is None:
        attended, p = tower.attend(block, x)
    else:
        nearest = max(range(len(anchors)), key=lambda c: cosine(anchors[c], x[0]))
        attended, p = tower.attend(block, np.concatenate([anchors[nearest : nearest + 1], x]))
        attended, p = attended[1:], p[:, 1:, 1:]
    x = x + attended
    a = p.mean(axis=0)[0, 1:]
    ranked = np.argsort(-a, kind="stable")
    patches = x[1:]
    kept, ambiguous, rest = ranked[: L - 2 * m], ranked[L - 2 * m : L], ranked[L:]
    residual = sum(a[j] * patches[j] for j in rest)
    return np.stack([x[0], *patches[kept], *merged(patches[ambiguous], int(rng.integers(2 * m))), residual])


def merged(tokens: Array, first: int) -> list[Array]:
    """Four tokens for many, by greedy k-centre."""
    centres = [first]
    while len(centres) < 4:
        gaps = [min(np.linalg.norm(token - tokens[centre]) for centre in centres) for token in tokens]
        centres.append(int(np.argmax(gaps)))
    clusters: list[list[int]] = [[] for _ in centres]
    for j, token in enumerate(tokens):
        gaps = [np.linalg.norm(token - tokens[centre]) for centre in centres]
        clusters[int(np.argmin(gaps))].append(j)
    means = []
    for centre, members in zip(centres, clusters, strict=True):
        gaps = [np.linalg.norm(tokens[j] - tokens[centre]) for j in members]
        weights = [1.0 if gap == 0 else 1 / gap for gap in gaps]
        total = sum(weights)
        means.append(sum(w / total * tokens[j] for w, j in zip(weights, members, strict=True)))
    return means


def cosine(one: Array, other: Array) -> float:
    return float(unit(one) @ unit(other))


def unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)


def softmax(rows: Array) -> Array:
    shifted = np.exp(rows - rows.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def entropy(p: Array) -> float:
    return float(-sum(value * math.log(value) for value in p if value > 0))
