"""TCA as a loop: Is Less More? Exploring Token Condensation as Training-free Test-time Adaptation (ICCV 2025)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pta.reference.numerics import Array, entropy, softmax, unit


@dataclass(frozen=True)
class NumpyViT:
    """A CLIP ViT with QuickGELU for one image at a time, from weights under OpenAI's names."""

    weights: Mapping[str, Array]
    heads: int

    @property
    def depth(self) -> int:
        """How many blocks there are."""
        return len({name.split(".")[3] for name in self.weights if name.startswith("visual.transformer.resblocks.")})

    def embed(self, image: Array) -> Array:
        """Tokens of an image, the class token first."""
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
        """The MLP of LN(x)."""
        name = f"visual.transformer.resblocks.{block}."
        hidden = self._linear(f"{name}mlp.c_fc.", self._norm(f"{name}ln_2", x))
        return self._linear(f"{name}mlp.c_proj.", hidden / (1 + np.exp(-1.702 * hidden)))

    def project(self, token: Array) -> Array:
        """The unit feature of a class token."""
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
    bias: float = 0.0,
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
    reservoir: list[list[tuple[float, Array]]] = [[] for _ in anchors]
    domain_anchors: Array | None = None  # C×blocks×width
    omega = np.exp(np.arange(tower.depth) / (tower.depth - 1) / layer_temperature)
    omega /= omega.sum()

    def score(z: Array, K: Array) -> Array:
        total = z.copy()
        for c, items in enumerate(reservoir):
            for _, other in items:
                g = sum(w * cosine(mine, theirs) for w, mine, theirs in zip(omega, K, other, strict=True))
                total[c] += alpha * math.exp(-beta * (1 - g))
        return total

    outputs = []
    for number, image in enumerate(images):
        # 1. to 4. The condensing encoder.
        f, K = condensed(tower, image, rate, blocks, domain_anchors, np.random.default_rng((seed, number)))
        z = scale * (anchors @ f) + bias
        if order == "predict-first":
            outputs.append(score(z, K))
        # 5. The image enters the reservoir of its class.
        insert(reservoir[int(z.argmax())], entropy(softmax(z)), K, slots)
        # 6. Domain anchors, as soon as every class has two images.
        if all(len(items) >= 2 for items in reservoir):
            domain_anchors = np.stack([np.mean([other for _, other in items], axis=0) for items in reservoir])
        # 7. Score.
        if order == "update-first":
            outputs.append(score(z, K))
    return np.array(outputs)


def insert(items: list[tuple[float, Array]], e: float, K: Array, slots: int) -> None:
    """Step 5: put an image to a class; if there are too many, the one most in doubt and most like the others leaves."""
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
        # 1. How many patches the block condenses.
        N = len(x)
        L = math.ceil((1 - rate) * (N - 1))
        if block not in blocks or N - 1 - L == 0:
            x = x + tower.attend(block, x)[0]
        else:
            before = None if domain_anchors is None else domain_anchors[:, block - 1]
            x = condense(tower, block, x, L, before, rng)
        # 4. Add the MLP.
        x = x + tower.mlp(block, x)
        record.append(x[0])
    return tower.project(x[0]), np.stack(record)


def condense(tower: NumpyViT, block: int, x: Array, L: int, anchors: Array | None, rng: np.random.Generator) -> Array:
    """Steps 2 to 4: fewer tokens than x, after the attention of a block."""
    # 2. Attention, with the nearest domain anchor in front.
    if anchors is None:
        attended, p = tower.attend(block, x)
    else:
        nearest = max(anchors, key=lambda anchor: cosine(anchor, x[0]))
        attended, p = tower.attend(block, np.stack([nearest, *x]))
        attended, p = attended[1:], p[:, 1:, 1:]
    x = x + attended
    # 3. Patches sorted by the attention of the class token to them: some are kept, some merged, the rest pooled.
    a = p.mean(axis=0)[0, 1:]
    ranked, patches, m = np.argsort(-a, kind="stable"), x[1:], len(x) - L
    kept, ambiguous, rest = ranked[: L - 2 * m], ranked[L - 2 * m : L], ranked[L:]
    pooled = np.sum([a[j] * patches[j] for j in rest], axis=0)
    # 4. Go on with fewer tokens.
    return np.stack([x[0], *patches[kept], *merged(patches[ambiguous], int(rng.integers(2 * m))), pooled])


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
    """Of the angle between two vectors."""
    return float(unit(one) @ unit(other))
