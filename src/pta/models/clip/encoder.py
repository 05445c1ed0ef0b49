"""CLIP in OpenAI's layout: a ViT or modified ResNet for images, a causal transformer for texts.

SLIP and ULIP share the text tower. Attributes are named as in OpenAI's state dicts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from pta.core.towers import ImageTower
from pta.door.images import CLIP_PREPROCESSING, Preprocessing
from pta.engines.gpu import processors
from pta.errors import InvalidParameter, UnavailableModel
from pta.models.clip.prompts import CausalBlock, CausalPrompts, PromptTokens
from pta.models.clip.resnet import ModifiedResNet
from pta.models.clip.state_dict import State, fill, shape_of
from pta.models.clip.tokenizer import END, VOCABULARY, clip_ids
from pta.models.clip.transformer import Transformer
from pta.models.clip.vit import VisionTransformer
from pta.models.encoder import Encoder, ImageEncoder, at_end


class ClipText(Encoder):
    """An encoder that reads texts as CLIP does: a causal transformer, read at the end token."""

    def _build_text_tower(self, state: State, *, dim: int, head_width: int, quick_gelu: bool) -> None:
        vocabulary, width = shape_of(state, "token_embedding.weight", 2)
        if vocabulary != VOCABULARY:
            raise UnavailableModel(f"the text tower reads {vocabulary} different tokens, CLIP's tokenizer {VOCABULARY}")
        length, _ = shape_of(state, "positional_embedding", 2)
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.empty(length, width))
        self.transformer = Transformer(state, "transformer.", head_width=head_width, quick_gelu=quick_gelu)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.empty(width, dim))
        self.logit_scale = nn.Parameter(torch.empty(()))

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Texts to ids and mask, both N×L, padded to the longest: nothing that follows the end is ever seen."""
        rows = clip_ids(texts)
        self._require_short(texts, (len(row) - 2 for row in rows), len(self.positional_embedding) - 2)
        return self._padded(rows, END)

    def embed_ids(self, ids: Tensor) -> Tensor:
        return self.token_embedding(ids)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Token embeddings N×L×width and their mask N×L to N×dim unit rows, read at the last unmasked token."""
        length, most = embeddings.shape[1], len(self.positional_embedding)
        if length > most:
            raise InvalidParameter(f"{length} token embeddings are more than the {most} that {self.architecture} reads")
        x = self.transformer(embeddings + self.positional_embedding[:length], causal=True)
        return self._project_text(at_end(x, mask))

    def _prompt_reader(self, prompts: PromptTokens) -> Callable[[Tensor], Tensor]:
        blocks = [_causal_block(block) for block in self.transformer.resblocks]
        return CausalPrompts(prompts, self.embed_ids, self.positional_embedding, blocks, self._project_text)

    def _project_text(self, end: Tensor) -> Tensor:
        """End tokens …×width after the last block to …×dim unit rows."""
        return normalize(self.ln_final(end) @ self.text_projection, dim=-1)


class ClipEncoder(ClipText, ImageEncoder):
    """A CLIP model made from its weights under OpenAI's names, copied in float32."""

    def __init__(
        self,
        state: State,
        *,
        quick_gelu: bool,  # whether it was trained with QuickGELU (OpenAI's models) or GELU (most others)
        image_head_width: int = 64,  # the width of an attention head, in all models up to ViT-L
        text_head_width: int = 64,
        preprocess: Preprocessing = CLIP_PREPROCESSING,  # with the size of the weights
    ) -> None:
        super().__init__()
        self.settings = (quick_gelu, image_head_width, text_head_width)
        with torch.device("meta"):
            self.visual = (
                ModifiedResNet(state, head_width=image_head_width)
                if "visual.attnpool.positional_embedding" in state
                else VisionTransformer(state, head_width=image_head_width, quick_gelu=quick_gelu)
            )
            self._build_text_tower(state, dim=self.visual.dim, head_width=text_head_width, quick_gelu=quick_gelu)
        without = ".num_batches_tracked"  # how long a BatchNorm was trained
        fill(
            self, {name: one.to(torch.float32, copy=True) for name, one in state.items() if not name.endswith(without)}
        )
        self.scale = self.logit_scale.exp().item()  # now: in half precision it would be another
        self.architecture, self.dim = self.visual.architecture, self.visual.dim
        self.preprocess = replace(preprocess, size=self.visual.size)
        self.eval().requires_grad_(False)

    def ready(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Self:
        super().ready(device, dtype)
        if isinstance(self.visual, VisionTransformer):
            self.visual.transformer.has_kernels = processors.transformer_runs_on(self.device)
        return self

    def has_kernels_for(self, batch: int) -> bool:
        vit = self.visual
        return isinstance(vit, VisionTransformer) and vit.transformer.has_kernels_for(batch * vit.tokens, self.dtype)

    def features(self, pixels: Tensor) -> Tensor:
        return normalize(self.visual(pixels), dim=-1)

    def patch_features(self, pixels: Tensor) -> Tensor:
        """A ViT's patches, projected like its class token; a ResNet's third stage, if that has `dim` channels."""
        if isinstance(self.visual, ModifiedResNet) and self.visual.patch_dim != self.dim:
            return super().patch_features(pixels)
        return normalize(self.visual.patches(pixels), dim=-1)

    def image_tower(self) -> ImageTower:
        """A ViT block by block; a ResNet has none."""
        vit = self.visual
        if isinstance(vit, ModifiedResNet):
            return super().image_tower()
        return ImageTower(
            shape=self._pixel_shape,
            tokens=len(vit.positional_embedding),
            width=len(vit.class_embedding),
            dim=self.dim,
            ready=self._ready,
            embed=vit.embed,
            blocks=vit.token_blocks(),
            project=lambda token: normalize(vit.project(token), dim=-1),
        )


def _causal_block(block: Any) -> CausalBlock:
    own = block.attn
    rows = zip(own.in_proj_weight.chunk(3), own.in_proj_bias.chunk(3), strict=True)
    query, key, value = (partial(linear, weight=weight, bias=bias) for weight, bias in rows)
    return CausalBlock(own.heads, block.ln_1, query, key, value, own.out_proj, block.layers)
