"""DiffTPT: Diverse Data Augmentation with Diffusions for Effective Test-time Prompt Tuning (ICCV 2023).

https://arxiv.org/abs/2308.06038

TPT (`pta.methods.tpt`) on pictures that a diffusion model has generated from the sample, beside its augmented views.

For each sample:
1. Rows: the plain image, its augmented views and its generated pictures; in the paper 1, 64 and 63, which makes 128.
2. Keep the int(127·keep_similar) rows whose logits have the largest cosine with those of the plain image, and that.
3. Of these, here 102, select the int(102·keep) of lowest entropy, at least one.
4. Tune the prompt for the selected rows as TPT does, in four steps of AdamW, and score the plain image.

The paper compares features, and filters both kinds of rows apart; this is what the released program does. There the
pictures are made beforehand, by a Stable Diffusion for variations of an image; `pta extract --views-from` reads them.
`difftpt-augmented` is not the paper's method: further augmented views (`pta extract --views 128`) stand in the place of
the generated pictures.
PTA on top of either (`combined`) learns from the plain image.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from pta.core.parameters import count, number
from pta.core.samples import Samples
from pta.methods.tpt import TPT


class DiffTPT(TPT):
    """TPT with generated pictures in addition to augmented views.

    The loop: `pta.reference.difftpt.difftpt_loop`.
    """

    name = "difftpt"
    needs = TPT.needs | {"generated"}
    keep: float = number(0.3, 0.0, 1.0, "share of the similar rows that is selected")
    keep_similar: float = number(0.8, 0.0, 1.0, "share of the rows that count as similar to the plain image")
    steps: int = count(4, 0, 100, "steps of AdamW")

    def _views(self, samples: Samples) -> Tensor:
        given = samples.tensors()
        return torch.cat([given["views"], given["generated"]], dim=1)

    def _selected(self, views: Tensor, z: Tensor) -> Tensor:
        similarity = cosine_similarity(z[:, 1:], z[:, :1], dim=2)
        similar = int((views.shape[1] - 1) * self.keep_similar)
        others = 1 + similarity.argsort(dim=1, descending=True, stable=True)[:, :similar, None]
        rows = torch.cat([others.new_zeros(len(views), 1, 1), others], dim=1)
        return super()._selected(views.take_along_dim(rows, dim=1), z.take_along_dim(rows, dim=1))


class AugmentedDiffTPT(DiffTPT):
    """DiffTPT with further augmented views instead of generated pictures; not the paper's method.

    The loop: `pta.reference.difftpt.difftpt_loop`.
    """

    name = "difftpt-augmented"
    needs = TPT.needs
    _views = TPT._views
