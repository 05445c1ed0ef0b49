"""CLIP in OpenAI's layout: a ViT or modified ResNet for images, a causal transformer for texts."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.towers import ImageTower
from pta.door.images import CLIP_PREPROCESSING, Preprocessing
from pta.models.clip.resnet import ModifiedResNet
from pta.models.clip.state_dict import State, fill
from pta.models.clip.text import ClipText
from pta.models.clip.vit import VisionTransformer
from pta.models.image_encoder import ImageEncoder


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
