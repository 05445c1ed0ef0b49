"""GS-Bias: Global-Spatial Bias Learner for Single-Image Test-Time Adaptation of Vision-Language Models (ICML 2025).

https://github.com/hzhxmu/GS-Bias

Keeps nothing from sample to sample. For each it learns two biases, one number per class each, that make its views and
its patches agree, and adds them to the logits of the plain image.

For each sample with views f_1 … f_V, the plain image first, and patches g_1 … g_P of the plain image:
1. Logits of the views, z_i = scale·T·f_i, and of the patches, s_i = scale·T·g_i.
2. The K patches whose score is highest stay: Σ_c softmax over the patches of s_ic.
3. Biases b_g = b_s = 0, histories h_g = h_s = 0.
4. `steps` times:
   (a) c_g = r_g·b_g + (1−r_g)·h_g, and c_s alike;
   (b) L_g = H(mean of softmax(z_i + c_g)) over the int(keep·V) rows z_i + c_g of the lowest entropy, at least one;
       L_s = H(mean of softmax(s_i + c_s)) over the K patches;
   (c) end if L_g is 0 at the first step, or later differs from that of the first step by more than `early_stop` of it;
   (d) h_g ← c_g, b_g ← b_g − α·∂L_g/∂b_g, and h_s and b_s alike with β. The derivative of c_g by b_g is 1 at the first
       step, where history and bias are the same variable, and r_g later.
5. Score: z of the plain image + r_g·b_g + (1−r_g)·h_g + r_s·b_s + (1−r_s)·h_s.

The gradients are closed forms (`pta.engines.prompts.view_entropy`), and a batch is computed at once: a sample that has
ended keeps its biases while others go on. What decides is float64: the views with their bias, and the scores of patches
(`pta.engines.prompts.patch_choice`). The released program computes in float16.
The authors take 8 views and half of them, on ImageNet and its variants 64 and a tenth. α, β, K and `steps` are known
for seven datasets (preset `paper`); the defaults elsewhere are our choice.
A first loss of 0 stops the released program with a division by zero; here there is nothing to minimise.
The factor 100 of the program is the classifier's scale. With another one, α and β act on other gradients.
PTA on top of it (`combined`) learns from the plain image.
"""

import torch
from torch import Tensor

from pta.core.parameters import count, number
from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.engines.prompts.patch_choice import highest_scores
from pta.engines.prompts.view_entropy import entropy_by_bias, most_confident, number_kept, rows_of_each
from pta.engines.zero_shot import exact_logits, samples_at_once
from pta.errors import InvalidSamples
from pta.methods.first_views import OfFirstViews
from pta.methods.gradient_method import GradientMethod

_MOST = 1e6  # of α and β


class GSBias(OfFirstViews, GradientMethod):
    """Two biases per class, learned from a sample's views and patches and reset after it.

    The loop: `pta.reference.gs_bias.gs_bias_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"], scale=4.0)
    >>> rows = torch.tensor([[[0.8, 0.6], [0.9, 0.4], [0.6, 0.8]]])
    >>> samples = Samples.of(rows[:, 0], views=rows, patches=rows)
    >>> GSBias(classifier, first_views=3, top_patches=2).step(samples)
    tensor([[3.6755, 1.9245]])
    """

    name = "gs-bias"
    needs = frozenset({"features", "views", "patches"})
    needed_unless = ()
    may_fail = False
    alpha: float = number(1.0, 0.0, _MOST, "α, step size of the bias from views")
    beta: float = number(1.0, 0.0, _MOST, "β, step size of the bias from patches")
    top_patches: int = count(16, 1, 2**16, "K, number of patches that are used, those with the highest scores")
    steps: int = count(5, 1, 1000, "T, maximum number of steps")
    first_views: int = count(8, 1, 2**16, "V, number of stored views that are used, from the first on")
    keep: float = number(0.5, 0.0, 1.0, "share of the views that is kept, at least one")
    r_g: float = number(0.9, 0.0, 1.0, "weight of the new bias from views against its history")
    r_s: float = number(0.9, 0.0, 1.0, "weight of the new bias from patches against its history")
    early_stop: float = number(0.25, 0.0, _MOST, "relative change of the loss of views at which the steps stop")

    def _declare_state(self) -> None:
        super()._declare_state()
        self.max_batch = samples_at_once(self.classifier, views=self.first_views + self.top_patches)

    def require(self, samples: Samples) -> None:
        """Refuse samples without views or patches, or with too few."""
        super().require(samples)
        if samples.patches is not None and samples.patches.shape[1] < self.top_patches:
            raise InvalidSamples(
                f"gs-bias needs {self.top_patches} patches, but the samples have {samples.patches.shape[1]}; "
                "choose fewer: --set gs-bias.top_patches=…"
            )

    def _logits(self, samples: Samples) -> Tensor:
        given = samples.tensors()
        chosen = highest_scores(self.classifier, given["patches"], self.top_patches)  # step 2
        views, patches = given["views"][:, : self.first_views], rows_of_each(given["patches"], chosen)
        z, s = exact_logits(self.classifier, views), self.classifier.logits(patches)  # step 1
        kept = number_kept(z.shape[1], self.keep)
        b_g = h_g = z.new_zeros(len(samples), self.classifier.classes)  # step 3
        b_s = h_s = s.new_zeros(len(samples), self.classifier.classes)
        for t in range(self.steps):  # step 4
            c_g, c_s = h_g.lerp(b_g, self.r_g), h_s.lerp(b_s, self.r_s)  # (a)
            loss, by_view = entropy_by_bias(most_confident(z + c_g[:, None], kept))  # (b)
            _, by_patch = entropy_by_bias((s + c_s[:, None]).softmax(dim=2))
            if t == 0:  # (c)
                first, goes_on, of_g, of_s = loss, loss != 0, self.alpha, self.beta
            else:
                goes_on = goes_on & ((loss - first).abs() / first.abs() <= self.early_stop)
                of_g, of_s = self.alpha * self.r_g, self.beta * self.r_s
            if is_host_readable(goes_on) and not goes_on.any():
                break
            moved = c_g, c_s, b_g.sub(by_view, alpha=of_g), b_s.sub(by_patch, alpha=of_s)  # (d)
            now = (h_g, h_s, b_g, b_s)
            h_g, h_s, b_g, b_s = (torch.where(goes_on[:, None], *pair) for pair in zip(moved, now, strict=True))
        learned = h_g.lerp(b_g, self.r_g) + h_s.lerp(b_s, self.r_s)
        return (self.zero_shot(samples).exact_logits + learned).to(samples.features.dtype)  # step 5
