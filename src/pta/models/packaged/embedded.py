"""A dual encoder small enough to ship: a ViT for 28×28 grey images and a byte-level text transformer.

It was trained contrastively on Fashion-MNIST by `training/embedded.py` and knows clothing only. It exists so
that everything in `pta` can be tried on real image and text features with nothing to download.

The text tower, the form of the file and the check of class names are also those of `embedded_points.py`.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, normalize, scaled_dot_product_attention

from pta.core.towers import ImageTower, TokenBlock, attention
from pta.door.files import load_tensors, packaged_json, save_tensors
from pta.door.images import Preprocessing
from pta.errors import UnreadableFile, first_line, some_of
from pta.models.encoder import Encoder, ImageEncoder

_SHORTEST_NOUN, _SHORTEST_FRONT = 4, 3  # letters of a compound's parts: "rain" and "coat", not "commit" and "tee"


def training_nouns(architecture: str) -> dict[str, list[str]]:
    """Other names of the same thing by class name.

    >>> training_nouns("embedded")["dress"][:2]
    ['gown', 'frock']
    """
    return packaged_json("training_nouns.json")[architecture]


def unread_names(architecture: str, names: Iterable[str]) -> list[str]:
    """The names without a noun of the training. It may be in the plural, among other words, or the end of a compound.

    >>> unread_names("embedded", ["coats", "Leather_Jacket", "raincoat", "t-shirt/top", "hat", "committee", "address"])
    ['hat', 'committee', 'address']
    """
    nouns = _nouns(architecture)
    return [name for name in names if not _has_noun(_words(name), nouns)]


def _has_noun(words: tuple[str, ...], nouns: frozenset[tuple[str, ...]]) -> bool:
    parts = (words[start:end] for end in range(1, len(words) + 1) for start in range(end))
    ends = tuple(noun[0] for noun in nouns if len(noun) == 1 and len(noun[0]) >= _SHORTEST_NOUN)
    return any(part in nouns for part in parts) or any(word[_SHORTEST_FRONT:].endswith(ends) for word in words)


@cache
def _nouns(architecture: str) -> frozenset[tuple[str, ...]]:
    listed = training_nouns(architecture)
    return frozenset(_words(noun) for name, others in listed.items() for noun in (name, *others))


def _words(text: str) -> tuple[str, ...]:
    return tuple(map(_singular, re.findall(r"[^\W_]+", text.casefold())))


def _singular(word: str) -> str:
    """The word without the ending of a plural; the same for both numbers is enough.

    >>> _singular("boots"), _singular("dresses"), _singular("dress"), _singular("wardrobes"), _singular("bodies")
    ('boot', 'dress', 'dress', 'wardrobe', 'body')
    """
    for plural, ending in (("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("ies", "y"), ("ss", "ss")):
        if word.endswith(plural):
            return word.removesuffix(plural) + ending
    return word.removesuffix("s")


MAX_SCALE = 100.0  # as in CLIP: beyond it the contrastive loss becomes unstable
START, END, PAD = 256, 257, 258  # the ids after the 256 byte values
_VOCABULARY = 259


@dataclass(frozen=True)
class TextConfig:
    """Every number that shapes the text tower and the common space."""

    dim: int = 128
    text_length: int = 77
    text_width: int = 64
    text_depth: int = 2
    text_heads: int = 4
    mlp_ratio: int = 3
    dropout: float = 0.1


class EmbeddedBlock(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, heads: int, config: TextConfig) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, config.mlp_ratio * width)
        self.mlp_out = nn.Linear(config.mlp_ratio * width, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """N×L×width to the same shape; keys where `mask` (N×L) is False are not attended to."""
        visible = None if mask is None else mask[:, None, None, :]
        q, k, v = self._queries_keys_values(x)
        mixed = scaled_dot_product_attention(q, k, v, visible)
        x = x + self.dropout(self.attention_out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(x))

    def mlp(self, x: Tensor) -> Tensor:
        """The two layers, of the normalised tokens."""
        return self.mlp_out(gelu(self.mlp_in(self.mlp_norm(x))))

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Unmasked self-attention of the normalised tokens, and who attends to whom, N×heads×L×L."""
        mixed, probabilities = attention(*self._queries_keys_values(x))
        return self.attention_out(mixed), probabilities

    def _queries_keys_values(self, x: Tensor) -> Any:
        return self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)


def make_blocks(depth: int, width: int, heads: int, config: TextConfig) -> nn.ModuleList:
    """The blocks of a tower."""
    return nn.ModuleList(EmbeddedBlock(width, heads, config) for _ in range(depth))


def run_blocks(blocks: Iterable[nn.Module], x: Tensor, mask: Tensor | None = None) -> Tensor:
    """N×L×width through all blocks."""
    for block in blocks:
        x = block(x, mask)
    return x


def small_normal(*shape: int) -> nn.Parameter:
    """Weights to begin a training with.

    Where weights are only described (meta) none are drawn: torch would load its compiler for that, which takes seconds.
    """
    weights = torch.empty(shape)
    return nn.Parameter(weights if weights.is_meta else nn.init.normal_(weights, std=0.02))


class TextTower(nn.Module):
    """Byte embeddings to one vector per text, read at the start token."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        width = config.text_width
        self.bytes, self.positions = small_normal(_VOCABULARY, width), small_normal(config.text_length, width)
        self.blocks = make_blocks(config.text_depth, width, config.text_heads, config)
        self.norm = nn.LayerNorm(width)

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """N×L×width embeddings, without positions, and their N×L mask to N×width."""
        x = run_blocks(self.blocks, embeddings + self.positions[: embeddings.shape[1]], mask)
        return self.norm(x[:, 0])


class PackagedEncoder(Encoder):
    """An encoder that reads texts as bytes, is written to a file with its configuration, and made again from it."""

    kind: ClassVar[str]  # what its file says that it is
    file: ClassVar[str]  # what it is called in the package
    config_class: ClassVar[type[TextConfig]]
    transformers: ClassVar[tuple[str, ...]] = ("text",)  # as its configuration calls them
    knows: ClassVar[str]  # what its training was about
    instead: ClassVar[str]  # the name of a model that knows more

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config, self.dim, self.settings = config, config.dim, asdict(config)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))  # CLIP's starting temperature

    def _build_text_tower(self, config: TextConfig) -> None:
        self.text = TextTower(config)
        self.text_projection = nn.Linear(config.text_width, config.dim, bias=False)

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Lower-cased UTF-8 bytes between start and end, padded to the longest: ids and mask, both N×L."""
        rows = [[START, *text.lower().encode(errors="replace"), END] for text in texts]
        self._require_short(texts, (len(row) - 2 for row in rows), self.config.text_length - 2, unit="bytes")
        return self._padded(rows, PAD)

    def embed_ids(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.text.bytes)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Read at the first token of each row, so a tuned prompt goes after it."""
        return normalize(self.text_projection(self.text(embeddings, mask)), dim=-1)

    @classmethod
    def load(cls) -> Self:
        """The packaged model, ready for inference in float32."""
        with resources.as_file(resources.files("pta") / "assets" / cls.file) as path:
            return cls.read(path)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A model written by `write`, ready for inference in float32."""
        weights, about = load_tensors(path, kind=cls.kind)
        try:
            config = cls.config_class(**about["config"])
            cls._require_sound(config, len(weights))
            with torch.device("meta"):
                encoder = cls(config)
            encoder.load_state_dict({name: weight.float() for name, weight in weights.items()}, assign=True)
        except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            raise UnreadableFile(f"{path} describes no {cls.kind}: {first_line(error)}") from None
        return encoder.eval().requires_grad_(False)

    def write(self, path: str | Path, **about: Any) -> None:
        """Save the weights in float16, with the configuration and what else is to be known `about` them."""
        weights = {name: value.detach().cpu().half() for name, value in self.state_dict().items()}
        save_tensors(path, weights, {"kind": self.kind, "config": asdict(self.config), **about})

    def remark_on_names(self, names: Sequence[str]) -> str | None:
        """A line about class names that were not in the training; None if all were."""
        unread = unread_names(self.architecture, names)
        if not unread:
            return None
        return (
            f"the packaged model knows {self.knows} only and was not trained on {some_of(unread)}: its answers for "
            f"{'it' if len(unread) == 1 else 'them'} mean nothing; use --model {self.instead}"
        )

    @property
    def scale(self) -> float:  # type: ignore[override]
        return min(self.log_scale.exp().item(), MAX_SCALE)

    @classmethod
    def _require_sound(cls, config: Any, weights: int) -> None:
        """Refuse a configuration that no model with this number of weights can have, before it is built."""
        for tower in cls.transformers:
            width, depth, heads = (getattr(config, f"{tower}_{number}") for number in ("width", "depth", "heads"))
            if depth > weights:
                raise ValueError("more layers than weights")
            if heads < 1 or width % heads:
                raise ValueError(f"a width of {width} cannot be divided into {heads} heads")


EMBEDDED_TEMPLATES = (
    "a catalogue shot of a {}.",
    "you can see one {} here.",
    "a tiny black and white picture of a {}.",
)
"""Prompts for the embedded model. None of them was used in its training or in any choice made there."""


@dataclass(frozen=True)
class EmbeddedConfig(TextConfig):
    """Every number that shapes the encoder; stored with the weights, so a file says how to read itself."""

    image_size: int = 28
    patch_size: int = 4
    image_width: int = 128
    image_depth: int = 5
    image_heads: int = 4
    pixel_mean: float = 0.286
    pixel_std: float = 0.353

    @property
    def patches(self) -> int:
        """How many patch tokens an image gives."""
        return (self.image_size // self.patch_size) ** 2


class PatchTransformer(nn.Module):
    """Pixels to normalised tokens: the class token first, then the patches row by row."""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        width, patch = config.image_width, config.patch_size
        self.patch = nn.Conv2d(1, width, kernel_size=patch, stride=patch)
        self.class_token, self.positions = small_normal(width), small_normal(1 + config.patches, width)
        self.blocks = make_blocks(config.image_depth, width, config.image_heads, config)
        self.norm = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """N×1×H×W to N×(1+patches)×width."""
        return self.norm(run_blocks(self.blocks, self.embed(pixels)))

    def embed(self, pixels: Tensor) -> Tensor:
        """N×1×H×W to the N×(1+patches)×width that the first block takes."""
        patches = self.patch(pixels).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(pixels.shape[0], 1, -1), patches], dim=1) + self.positions

    def token_blocks(self) -> list[TokenBlock]:
        """The blocks, one by one."""
        blocks: Any = self.blocks
        return [TokenBlock(block, block.attend, block.mlp) for block in blocks]


class EmbeddedEncoder(PackagedEncoder, ImageEncoder):
    """Images and texts to unit rows of one space.

    >>> encoder = EmbeddedEncoder.load()
    >>> encoder.encode_texts(["a photo of a coat.", "a photo of a bag."]).shape
    torch.Size([2, 128])
    """

    kind = "embedded encoder"
    file = "embedded.safetensors"
    config_class = EmbeddedConfig
    transformers = ("text", "image")
    knows, instead = "clothing", "hf:openai/clip-vit-base-patch16"
    config: EmbeddedConfig

    def __init__(self, config: EmbeddedConfig | None = None) -> None:
        config = config or EmbeddedConfig()
        super().__init__(config)
        self.architecture = "embedded"
        mean, std = (config.pixel_mean,), (config.pixel_std,)
        self.preprocess = Preprocessing(config.image_size, resize="square", mean=mean, std=std)
        self.image = PatchTransformer(config)
        self.image_projection = nn.Linear(config.image_width, config.dim, bias=False)
        self._build_text_tower(config)

    def features(self, pixels: Tensor) -> Tensor:
        return normalize(self.image_projection(self.image(pixels)[:, 0]), dim=-1)

    def patch_features(self, pixels: Tensor) -> Tensor:
        return normalize(self.image_projection(self.image(pixels)[:, 1:]), dim=-1)

    def image_tower(self) -> ImageTower:
        return ImageTower(
            shape=self._pixel_shape,
            tokens=1 + self.config.patches,
            width=self.config.image_width,
            dim=self.dim,
            ready=self._ready,
            embed=self.image.embed,
            blocks=self.image.token_blocks(),
            project=lambda token: normalize(self.image_projection(self.image.norm(token)), dim=-1),
        )
