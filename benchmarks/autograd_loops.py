"""GS-Bias and DPE one sample at a time with torch's automatic differentiation, as their released programs do it.

Written from the description of the methods. Loops take unit rows, and give logits and the views that were kept first.
The released programs decide in the precision they compute in, the tests in float64.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot


def average_entropy(rows: Tensor) -> Tensor:
    """The entropy of the mean probability, in log space."""
    log_mean = rows.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(rows))
    log_mean = log_mean.clamp(min=torch.finfo(log_mean.dtype).min)
    return -(log_mean * log_mean.exp()).sum()


def confident(rows: Tensor, keep: float) -> Tensor:
    """The numbers of the rows of lowest entropy."""
    log_p = rows.log_softmax(dim=1)
    entropies = -(log_p * log_p.exp()).sum(dim=1)
    return torch.argsort(entropies, stable=True)[: max(1, int(len(rows) * keep))]


def gs_bias(
    anchors: Tensor,
    f: Tensor,
    views: Tensor,
    patches: Tensor,
    *,
    scale: float,
    alpha: float,
    beta: float,
    steps: int,
    keep: float,
    top_patches: int,
    r: float = 0.9,
    stop: float = 0.25,
    decided_in: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """The answer for one sample."""
    b_g, b_s = (anchors.new_zeros(len(anchors), requires_grad=True) for _ in range(2))
    h_g, h_s, first, chosen = b_g, b_s, 0.0, torch.empty(0)
    for t in range(steps):  # everything anew in every step, as the released program does it
        c_g, c_s = r * b_g + (1 - r) * h_g, r * b_s + (1 - r) * h_s
        z, s = scale * views @ anchors.T + c_g, scale * patches @ anchors.T + c_s
        rows, score = confident(z.detach().to(decided_in), keep), s.detach().to(decided_in).softmax(dim=0).sum(dim=1)
        loss_g = average_entropy(z[rows])
        loss_s = average_entropy(s[torch.argsort(score, descending=True, stable=True)[:top_patches]])
        value = float(loss_g.detach())
        if t == 0:
            first, chosen = value, rows
        if first == 0 or (t > 0 and abs(value - first) / abs(first) > stop):
            break
        (by_g,), (by_s,) = torch.autograd.grad(loss_g, b_g), torch.autograd.grad(loss_s, b_s)
        h_g, h_s = c_g.detach(), c_s.detach()
        b_g = (b_g - alpha * by_g).detach().requires_grad_()
        b_s = (b_s - beta * by_s).detach().requires_grad_()
    learned = r * b_g + (1 - r) * h_g + r * b_s + (1 - r) * h_s
    return (scale * anchors @ f + learned).detach(), chosen


class DPELoop:
    """State and step of DPE; `answer` and parameters as the adapter calls them. Prototypes are columns, d×C and d×M."""

    def __init__(
        self,
        anchors: Tensor,
        *,
        scale: float,
        alpha: float = 6.0,
        beta: float = 5.0,
        align: float = 0.5,
        lr: float = 5e-4,
        slots: int = 3,
        gate: float = 0.1,
        keep: float = 0.1,
        answer: str = "plain",
        decided_in: torch.dtype = torch.float64,
    ) -> None:
        self.W, self.n, self.classes = anchors.T.contiguous(), 0, len(anchors)
        self.cache: dict[int, list[tuple[Tensor, float]]] = {}
        self.scale, self.alpha, self.beta, self.align, self.lr = scale, alpha, beta, align, lr
        self.slots, self.gate, self.keep, self.answer, self.decided_in = slots, gate, keep, answer, decided_in

    def looked_at(self, W: Tensor, views: Tensor) -> tuple[Tensor, Tensor, float, Tensor]:
        """Mean feature 1×d and mean logits 1×C of the kept views, their entropy together, and which they are."""
        z = self.scale * views @ W
        rows = confident(z.detach().to(self.decided_in), self.keep)
        entropy = float(average_entropy(z[rows].detach().to(self.decided_in)))
        return views[rows].mean(dim=0, keepdim=True), z[rows].mean(dim=0, keepdim=True), entropy, rows

    def remember(self, label: int, f: Tensor, entropy: float) -> None:
        """Let a sample into the cache of a class, if it is among the most confident ones."""
        own = self.cache.setdefault(label, [])
        own.append((f.detach(), entropy))
        own.sort(key=lambda item: item[1])
        del own[self.slots :]

    def visual_prototypes(self) -> tuple[Tensor, list[int]]:
        """The means of what is in the cache, d×M, and of which classes they are."""
        present, means = sorted(self.cache), []
        for c in present:
            mean = self.W.new_zeros(1, len(self.W))
            for f, _ in self.cache[c]:
                mean += f / len(self.cache[c])
            means.append(mean)
        return torch.cat(means).T, present

    def __call__(self, f0: Tensor, views: Tensor) -> tuple[Tensor, Tensor]:
        """Learn one sample and answer it."""
        residual = torch.zeros_like(self.W, requires_grad=True)
        W = normalize(self.W + residual, dim=0)
        f, z, entropy, chosen = self.looked_at(W, views)
        self.remember(int(z.argmax()), f, entropy)
        means, present = self.visual_prototypes()
        values = one_hot(torch.tensor(present), self.classes).to(self.W)
        visual_residual = torch.zeros_like(means, requires_grad=True)
        K = normalize(means + visual_residual, dim=0)

        def with_affinities(z: Tensor, f: Tensor, K: Tensor) -> Tensor:
            return z + self.alpha * torch.exp(-self.beta * (1 - f @ K)) @ values

        queries, keys = normalize(K.T, dim=1), normalize(W[:, present].T, dim=1)  # once more, as its library does
        info_nce = cross_entropy(queries @ keys.T / 0.01, torch.arange(len(present), device=K.device))
        loss = average_entropy(with_affinities(z, f, K)) + self.align * info_nce
        optimiser = torch.optim.AdamW([residual, visual_residual], lr=self.lr, eps=1e-3, weight_decay=0.1)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            W, K = normalize(self.W + residual, dim=0), normalize(means + visual_residual, dim=0)
            f, z = (f0[None], self.scale * f0[None] @ W) if self.answer == "plain" else self.looked_at(W, views)[:2]
            out = with_affinities(z, f, K)
            if float(average_entropy(out.to(self.decided_in))) < self.gate * math.log2(self.classes):
                self.n += 1
                self.W = self.W * self.n / (self.n + 1) + W / (self.n + 1)
        return out[0], chosen
