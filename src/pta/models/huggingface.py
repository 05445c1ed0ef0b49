"""`hf:` models: CLIP, SigLIP and SigLIP 2 of fixed resolution, by transformers, without torchvision."""

import string
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.towers import ImageTower, TokenBlock, attention
from pta.door.weights.hub import in_one_line
from pta.errors import InvalidParameter, UnavailableModel
from pta.models.clip.prompts import CausalBlock, CausalPrompts, PromptTokens
from pta.models.encoder import ImageEncoder, at_end
from pta.models.huggingface_files import HuggingFaceFiles, tokenizer_digest

_SIZES = {(768, 12): "B", (1024, 24): "L", (1152, 27): "So400m", (1280, 32): "H", (1536, 40): "g"}  # width, depth
_WITHOUT_PUNCTUATION = str.maketrans("_", " ", string.punctuation.replace("_", ""))


class HuggingFaceEncoder(ImageEncoder):
    """A dual encoder of transformers; `HuggingFaceEncoder.load` makes the right kind."""

    def __init__(self, files: HuggingFaceFiles, family: str) -> None:
        super().__init__()
        self.model = files.model.eval().requires_grad_(False)
        self.tokenizer = files.tokenizer
        self.preprocess = files.preprocessing
        self.architecture = _architecture(family, files.config.vision_config)
        self.text_length: int = files.config.text_config.max_position_embeddings
        towers = [
            [getattr(tower, name) for name in ("hidden_act", "num_attention_heads", "layer_norm_eps")]
            for tower in (files.config.text_config, files.config.vision_config)
        ]
        self.settings = {"towers": towers, "tokenizer": tokenizer_digest(files.tokenizer)}
        self.scale = self.model.logit_scale.exp().item()  # now, while it is float32

    @classmethod
    def load(cls, name: str) -> "HuggingFaceEncoder":
        """The model in a local folder, or of that name on the hub, for inference in float32."""
        files = HuggingFaceFiles.read(name)
        return HuggingFaceClip(files) if files.config.model_type == "clip" else HuggingFaceSiglip(files)

    def embed_ids(self, ids: Tensor) -> Tensor:
        return self.model.text_model.embeddings.token_embedding(ids)

    def _token_ids(self, texts: Sequence[str], **options: bool) -> list[list[int]]:
        """What the tokenizer makes of texts; its files may be those of another model, or damaged."""
        known = self.model.text_model.embeddings.token_embedding.num_embeddings
        with in_one_line(lambda said: f"the tokenizer of {self.architecture} fails: {said}"):
            rows = self.tokenizer(list(texts), verbose=False, **options).input_ids
            largest = max((number for row in rows for number in row), default=0)
        if largest >= known:
            raise UnavailableModel(f"the tokenizer gives token {largest}, {self.architecture} knows {known}")
        return rows

    def _read_text(self, embeddings: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Token embeddings through the text tower: N×L×width to the same shape."""
        if not len(embeddings):  # which transformers' attention cannot take
            return embeddings
        tower = self.model.text_model
        positioned = tower.embeddings(inputs_embeds=embeddings.to(self.dtype))
        read = tower.encoder(inputs_embeds=positioned, attention_mask=attention_mask).last_hidden_state
        return tower.final_layer_norm(read)


class HuggingFaceClip(HuggingFaceEncoder):
    """CLIP: a causal text tower, read at the end token."""

    def __init__(self, files: HuggingFaceFiles) -> None:
        super().__init__(files, "CLIP")
        self.dim = int(self.model.visual_projection.out_features)

    def features(self, pixels: Tensor) -> Tensor:
        return normalize(self.model.visual_projection(self.model.vision_model(pixels).pooler_output), dim=-1)

    def patch_features(self, pixels: Tensor) -> Tensor:
        """Preprocessed pixels to N×patches×dim unit rows, each patch projected like the class token."""
        patches = self.model.vision_model.post_layernorm(self.model.vision_model(pixels).last_hidden_state[:, 1:])
        return normalize(self.model.visual_projection(patches), dim=-1)

    def image_tower(self) -> ImageTower:
        vit, projection = self.model.vision_model, self.model.visual_projection
        return ImageTower(
            shape=self._pixel_shape,
            tokens=vit.embeddings.num_positions,
            width=vit.embeddings.embed_dim,
            dim=self.dim,
            ready=self._ready,
            embed=lambda pixels: vit.pre_layrnorm(vit.embeddings(pixels)),
            blocks=[_token_block(layer) for layer in vit.encoder.layers],
            project=lambda token: normalize(projection(vit.post_layernorm(token)), dim=-1),
        )

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids and mask, up to the first end token, padded to the longest; too long a text is refused."""
        end = self.tokenizer.eos_token_id
        rows = self._token_ids(texts)
        if not all(end in row for row in rows):
            raise UnavailableModel(
                f"the tokenizer does not end texts with its end token, where {self.architecture} reads"
            )
        rows = [row[: row.index(end) + 1] for row in rows]
        self._require_short(texts, (len(row) - 2 for row in rows), self.text_length - 2)
        return self._padded(rows, end)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Token embeddings N×L×width to N×dim unit rows, read where the mask is True last."""
        length = embeddings.shape[1]
        causal = torch.full((length, length), -torch.inf, dtype=self.dtype, device=self.device).triu(1)
        hidden = self._read_text(embeddings, causal[None, None])
        return normalize(self.model.text_projection(at_end(hidden, mask)), dim=-1)

    def _prompt_reader(self, prompts: PromptTokens) -> Callable[[Tensor], Tensor]:
        text, projection = self.model.text_model, self.model.text_projection
        return CausalPrompts(
            prompts,
            embed=self.embed_ids,
            positions=text.embeddings.position_embedding.weight,
            blocks=[_causal_block(layer) for layer in text.encoder.layers],
            project=lambda end: normalize(projection(text.final_layer_norm(end)), dim=-1),
        )


class HuggingFaceSiglip(HuggingFaceEncoder):
    """SigLIP and SigLIP 2: a text tower that sees every position, padding too, and is read at the last.

    SigLIP was trained on lower-case texts without punctuation, SigLIP 2 on lower-case texts. The tokenizers that
    transformers loads do their part of this only in some forms, so it is done here. Texts are cut to the model's
    length, keeping the end token, as in training.
    """

    def __init__(self, files: HuggingFaceFiles) -> None:
        second = files.tokenizer.eos_token == "<eos>"  # Gemma's vocabulary, which came with SigLIP 2
        super().__init__(files, "SigLIP2" if second else "SigLIP")
        self._canonical = str.lower if second else canonical_text
        self.dim, self.bias = int(self.model.text_model.head.out_features), float(self.model.logit_bias)

    def features(self, pixels: Tensor) -> Tensor:
        return normalize(self.model.vision_model(pixels).pooler_output, dim=-1)

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids and mask of the canonical texts, padded on the right to the length the model was trained with."""
        canonical = [self._canonical(text) for text in texts]
        rows = self._token_ids(canonical, add_special_tokens=False)
        ended = [[*row[: self.text_length - 1], self.tokenizer.eos_token_id] for row in rows]
        return self._padded(ended, self.tokenizer.pad_token_id, self.text_length)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Token embeddings N×L×width, of the model's full length, to N×dim unit rows; the padding is read too."""
        if embeddings.shape[1] != self.text_length:
            raise InvalidParameter(
                f"{self.architecture} reads {self.text_length} token embeddings, padding included, "
                f"not {embeddings.shape[1]}"
            )
        return normalize(self.model.text_model.head(self._read_text(embeddings, None)[:, -1]), dim=-1)


def canonical_text(text: str) -> str:
    """A text as SigLIP was trained on it.

    >>> canonical_text("A Photo of a  sea_lion!!")
    'a photo of a sea lion'
    """
    return " ".join(text.lower().translate(_WITHOUT_PUNCTUATION).split())


def _token_block(layer: Any) -> TokenBlock:
    """A CLIPEncoderLayer; its own attention gives no probabilities, so they are computed beside it."""
    own = layer.self_attn

    def attend(x: Tensor) -> tuple[Tensor, Tensor]:
        normalised = layer.layer_norm1(x)
        q, k, v = (
            projection(normalised).unflatten(-1, (own.num_heads, -1)).transpose(1, 2)
            for projection in (own.q_proj, own.k_proj, own.v_proj)
        )
        mixed, probabilities = attention(q, k, v)
        return own.out_proj(mixed), probabilities

    def mlp(x: Tensor) -> Tensor:
        return layer.mlp(layer.layer_norm2(x))

    def whole(x: Tensor) -> Tensor:  # not by the layer's own forward, whose arguments differ in transformers 4 and 5
        attended = x + own(layer.layer_norm1(x))[0]
        return attended + mlp(attended)

    return TokenBlock(whole, attend, mlp)


def _causal_block(layer: Any) -> CausalBlock:
    own = layer.self_attn
    projections = own.q_proj, own.k_proj, own.v_proj, own.out_proj
    return CausalBlock(own.num_heads, layer.layer_norm1, *projections, lambda x: layer.mlp(layer.layer_norm2(x)))


def _architecture(family: str, vision: Any) -> str:
    size = _SIZES.get((vision.hidden_size, vision.num_hidden_layers))
    if size is None:
        return f"{family} ViT {vision.hidden_size}×{vision.num_hidden_layers}/{vision.patch_size}"
    usual = vision.image_size == 224
    name = f"ViT-{size}/{vision.patch_size}{'' if usual else f'@{vision.image_size}px'}"
    return name if family == "CLIP" else f"{family} {name}"
