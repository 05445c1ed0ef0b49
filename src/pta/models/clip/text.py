"""The text tower of CLIP, which SLIP and ULIP share. Attributes are named as in OpenAI's state dicts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from pta.errors import InvalidParameter, UnavailableModel
from pta.models.clip.causal_prompts import CausalBlock, CausalPrompts, CausalTower
from pta.models.clip.prompt_tokens import PromptTokens
from pta.models.clip.state_dict import State, shape_of
from pta.models.clip.tokenizer import END, VOCABULARY, clip_ids
from pta.models.clip.transformer import Transformer
from pta.models.encoder import Encoder, at_end


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
        return self._padded(rows, max(map(len, rows), default=2), END)

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
        tower = CausalTower(self.embed_ids, self.positional_embedding, blocks, self._project_text)
        return CausalPrompts(tower, prompts)

    def _project_text(self, end: Tensor) -> Tensor:
        """End tokens …×width after the last block to …×dim unit rows."""
        return normalize(self.ln_final(end) @ self.text_projection, dim=-1)


def _causal_block(block: Any) -> CausalBlock:
    own = block.attn
    rows = zip(own.in_proj_weight.chunk(3), own.in_proj_bias.chunk(3), strict=True)
    query, key, value = (partial(linear, weight=weight, bias=bias) for weight, bias in rows)
    return CausalBlock(own.heads, block.ln_1, query, key, value, own.out_proj, block.layers)
