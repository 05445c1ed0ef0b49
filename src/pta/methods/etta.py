"""ETTA: Efficient Test-Time Adaptation of Vision-Language Models with class means and adaptive prompts (BMVC 2025).

https://github.com/hamidreza-dastmalchi/ETTA

Keeps per class the weighted sum of the features whose zero-shot class it is, and the sum of their weights. Each image
chooses the prompts of each class that are nearest to it.

For each sample with feature f:
1. Of the P prompts of each class, the r = int(share·P) with the largest cosine with f; t_c is their mean, scaled to
   unit length. With `prompts="one"`, t_c is the text anchor.
2. z = T·f, cosines. With several views, the prompts are those of the plain image; of the int(keep·V) views of lowest
   entropy H(softmax(scale·z)), at least one, f and z are the means, f not scaled to unit length.
3. ŷ = arg max z and e = exp(z_ŷ): m_ŷ ← (S_ŷ·m_ŷ + e·f)/(S_ŷ + e), S_ŷ ← S_ŷ + e.
4. c_k = ⟨f, m_k⟩/(‖m_k‖ + 10⁻⁶), so 0 for a class without samples.
5. H_c and H_z: −Σ p ln p with p = softmax(scale·c) + 10⁻⁶, and likewise of z.
6. Score: scale·(H_z·c + H_c·z)/(H_z + H_c).

A sample is in its class mean before it is scored, and that carries the method: `order="predict-first"` loses 3 points.
While no class has a sample, the score is scale·z, which the program never meets.
The factor 100 of the program is the classifier's scale. The program computes in float16, where S stops growing at 4096;
here sums are in float64. With fewer than five prompts int(0.2·P) is 0, and NaN in the program; here it is refused.
The authors choose the templates by hand for each dataset (80 to 221; ETTA+ adds generated sentences). A class that is
added has its anchor in the place of each prompt.

Which class learns depends on z alone, so a batch is computed exactly: ⟨f, S·m⟩ and ‖S·m‖² at each sample's turn are
running sums. The length of the mean of chosen prompts follows from their products with each other, C×P×P numbers, which
are computed once.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import Order, choice, learning_order, number
from pta.core.samples import LONGEST_MEAN, Samples
from pta.engines.prompts.view_entropy import by_entropy, number_kept, rows_of_each
from pta.engines.zero_shot import entropy_of, samples_at_once
from pta.errors import InvalidParameter
from pta.methods.declaration import PROMPTS, Origin
from pta.methods.first_views import OfFirstViews, views_if_several
from pta.methods.state import LARGEST_COUNT, between, doubles

Prompts = Literal["all", "one"]

_FLOOR = 1e-6  # added to lengths and probabilities


class ETTA(OfFirstViews):
    """Running class means of images, fused with prompts that each image chooses.

    The loop: `pta.reference.etta.etta_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=10.0)
    >>> ETTA(classifier, prompts="one").step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "etta"
    needs = OfFirstViews.needs | PROMPTS
    needed_unless = (*OfFirstViews.needed_unless, ("prompts", "prompts", "one"))
    may_fail = False
    prototypes_in, counts_in = "sums", "weights"
    fixed_classes = ""
    prompts: Prompts = choice("all", Prompts, "all: each image chooses among the prompts; one: the text anchor")
    share: float = number(0.2, 0.0, 1.0, "α, share of each class's prompts that an image chooses, the nearest")
    first_views: int = views_if_several()
    keep: float = number(0.1, 0.0, 1.0, "share of the views that is kept, at least one")
    order: Order = learning_order("update-first")

    def _declare_state(self) -> None:
        (C, d), P = self.classifier.anchors.shape, self._bank.shape[1]
        # numbers per class that a sample takes: cosines with its prompts, or a text of its own
        per_class = P if self.first_views == 1 else max(d, P, self.first_views)
        self.max_batch = samples_at_once(self.classifier, views=max(1, per_class * C // max(C, d)))
        self.sums = self.add_state("sums", doubles(0.0, C, d))  # S·m
        self.weights = self.add_state("weights", doubles(0.0, C), between(0, LARGEST_COUNT))  # S

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters; too few prompts to choose from are refused."""
        known, bank = super().complete(given, origin), origin.classifier.prompt_features
        if known["prompts"] == "all" and bank is not None and int(bank.shape[1] * known["share"]) < 1:
            few = f"a share of {known['share']:g} of {bank.shape[1]} prompts per class is none"
            raise InvalidParameter(f"etta: {few}; use more templates, a larger share, or prompts=one")
        return known

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        longest = LONGEST_MEAN * state["weights"] + _FLOOR
        too_long = torch.linalg.vector_norm(state["sums"], dim=1) > longest
        return "sums are longer than their weights" if bool(too_long.any()) else None

    def _step(self, samples: Samples) -> Tensor:
        f, z = self._look(samples)
        label = z.argmax(dim=1, keepdim=True)
        e = z.gather(1, label).exp()
        squared, joins = f.square().sum(dim=1, keepdim=True), torch.zeros_like(z)
        added = joins.scatter(1, label, e)  # to the weight of each class, B×C
        inner = f @ self.sums.T + (f @ f.T).tril_(-1) @ added  # ⟨f, S·m⟩ before the sample has joined
        grown = joins.scatter(1, label, e * (2 * inner.gather(1, label) + e * squared))  # of ‖S·m‖²
        if self.order == "update-first":
            inner.scatter_add_(1, label, e * squared)
        lengths, weights = self._squared_lengths() + self._before(grown), self.weights + self._before(added)
        self.sums.addmm_(added.T, f)
        self.weights += added.sum(dim=0)
        return self._fused(samples, z, inner, lengths, weights)

    def _predict(self, samples: Samples) -> Tensor:
        f, z = self._look(samples)
        return self._fused(samples, z, f @ self.sums.T, self._squared_lengths(), self.weights)

    def _before(self, added: Tensor) -> Tensor:
        """What the samples have added, B×C, when each is scored."""
        running = added.cumsum(dim=0)
        return running if self.order == "update-first" else torch.cat([torch.zeros_like(added[:1]), running[:-1]])

    def _squared_lengths(self) -> Tensor:
        return torch.linalg.vecdot(self.sums, self.sums)

    def _fused(self, samples: Samples, z: Tensor, inner: Tensor, lengths: Tensor, weights: Tensor) -> Tensor:
        """Steps 4 to 6."""
        lengths = lengths.clamp_min(0.0).sqrt() + _FLOOR * weights
        c = inner / lengths.clamp_min(torch.finfo(z.dtype).tiny)
        h_c, h_z = (entropy_of((self.classifier.scale * one).softmax(dim=1) + _FLOOR)[:, None] for one in (c, z))
        h_z = h_z * (weights.sum(dim=-1) > 0)[..., None]  # nothing is known of c before
        return self.classifier.scores((h_z * c + h_c * z) / (h_z + h_c)).to(samples.features.dtype)

    def _look(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Steps 1 and 2: f and z, in float64."""
        if self.first_views == 1:
            f = samples.features.double()
            return f, self._cosines(f[:, None])[:, 0]
        views = samples.tensors()["views"][:, : self.first_views].double()
        z = self._cosines(views)
        kept = by_entropy(self.classifier.scale * z)[:, : number_kept(self.first_views, self.keep)]
        return rows_of_each(views, kept).mean(dim=1), rows_of_each(z, kept).mean(dim=1)

    @property
    def _bank(self) -> Tensor:
        """The prompts of each class, C×P×d, float64."""
        classifier = self.classifier
        return classifier.exact_anchors[:, None] if self.prompts == "one" else classifier.exact_prompt_features

    def _cosines(self, views: Tensor) -> Tensor:
        """Of B×V×d views with t, which the first view chooses, B×V×C."""
        bank = self._bank
        C, P, _ = bank.shape
        if P == 1:
            return views @ bank[:, 0].T
        scores = (views[:, 0] @ bank.flatten(0, 1).T).reshape(-1, C, P)
        nearest = scores.topk(int(P * self.share), dim=2)
        chosen = torch.zeros_like(scores).scatter_(2, nearest.indices, 1.0).transpose(0, 1)  # C×B×P
        if views.shape[1] > 1:
            t = normalize(chosen @ bank, dim=2)
            return views @ t.permute(1, 2, 0)
        squares = torch.linalg.vecdot(chosen @ self.classifier.exact_prompt_products, chosen)
        return (nearest.values.sum(dim=2) / squares.clamp_min_(_FLOOR**2).sqrt().T)[:, None]
