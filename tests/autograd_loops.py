"""GS-Bias and DPE one sample at a time with torch's automatic differentiation, as their released programs do it.

Written from the description of the methods. Loops take unit rows, and give logits and the views that were kept first.
"""

import math

import torch
from torch.nn.functional import cross_entropy, normalize


def average_entropy(rows):
    """The entropy of the mean probability, in log space."""
    log_mean = rows.log_softmax(dim=1).logsumexp(dim=0) - math.log(len(rows))
    log_mean = log_mean.clamp(min=torch.finfo(log_mean.dtype).min)
    return -(log_mean * log_mean.exp()).sum()


def confident(rows, keep):
    log_p = rows.double().log_softmax(dim=1)
    entropies = -(log_p * log_p.exp()).sum(dim=1)
    return torch.argsort(entropies, stable=True)[: max(1, int(len(rows) * keep))]


def gs_bias(anchors, f, views, patches, *, scale, alpha, beta, steps, keep, top_patches, r=0.9, stop=0.25):
    b_g, b_s = (torch.zeros(len(anchors), dtype=f.dtype, requires_grad=True) for _ in range(2))
    h_g, h_s, first, chosen = b_g, b_s, None, None
    for t in range(steps):  # everything anew in every step, as the released program does it
        c_g, c_s = r * b_g + (1 - r) * h_g, r * b_s + (1 - r) * h_s
        z, s = scale * views @ anchors.T + c_g, scale * patches @ anchors.T + c_s
        rows, score = confident(z.detach(), keep), s.detach().double().softmax(dim=0).sum(dim=1)
        chosen = rows if chosen is None else chosen
        loss_g = average_entropy(z[rows])
        loss_s = average_entropy(s[torch.argsort(score, descending=True, stable=True)[:top_patches]])
        value = float(loss_g.detach())
        first = value if t == 0 else first
        if first == 0 or (t > 0 and abs(value - first) / abs(first) > stop):
            break
        (by_g,), (by_s,) = torch.autograd.grad(loss_g, b_g), torch.autograd.grad(loss_s, b_s)
        h_g, h_s = c_g.detach(), c_s.detach()
        b_g = (b_g - alpha * by_g).detach().requires_grad_()
        b_s = (b_s - beta * by_s).detach().requires_grad_()
    learned = r * b_g + (1 - r) * h_g + r * b_s + (1 - r) * h_s
    return (scale * anchors @ f + learned).detach(), chosen


class DPELoop:
    """State and step of DPE; `answer` and parameters as the adapter calls them."""

    def __init__(
        self, anchors, *, scale, alpha=6.0, beta=5.0, align=0.5, lr=5e-4, slots=3, gate=0.1, keep=0.1, answer="plain"
    ):
        self.W, self.n, self.cache = anchors.clone(), 0, {}
        self.scale, self.alpha, self.beta, self.align, self.lr = scale, alpha, beta, align, lr
        self.slots, self.gate, self.keep, self.answer = slots, gate, keep, answer

    def looked_at(self, W, views):
        z = self.scale * views @ W.T
        rows = confident(z.detach(), self.keep)
        return views[rows].mean(dim=0), z[rows].mean(dim=0), float(average_entropy(z[rows].detach().double())), rows

    def with_affinities(self, z, f, K, present):
        added = torch.zeros_like(z).index_add(0, present, self.alpha * torch.exp(-self.beta * (1 - K @ f)))
        return z + added

    def __call__(self, f0, views):
        residual = torch.zeros_like(self.W, requires_grad=True)
        W = normalize(self.W + residual, dim=1)
        f, z, e, chosen = self.looked_at(W, views)
        own = self.cache.setdefault(int(z.argmax()), [])
        own.append((f.detach(), e))
        own.sort(key=lambda item: item[1])
        del own[self.slots :]
        present = torch.tensor(sorted(self.cache))
        means = torch.stack([torch.stack([item[0] for item in self.cache[int(c)]]).mean(dim=0) for c in present])
        visual_residual = torch.zeros_like(means, requires_grad=True)
        K = normalize(means + visual_residual, dim=1)
        final = self.with_affinities(z, f, K, present)
        info_nce = cross_entropy(K @ W[present].T / 0.01, torch.arange(len(present)))
        loss = average_entropy(final[None]) + self.align * info_nce
        optimiser = torch.optim.AdamW([residual, visual_residual], lr=self.lr, eps=1e-3, weight_decay=0.1)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            W, K = normalize(self.W + residual, dim=1), normalize(means + visual_residual, dim=1)
            f, z = (f0, self.scale * W @ f0) if self.answer == "plain" else self.looked_at(W, views)[:2]
            out = self.with_affinities(z, f, K, present)
            if float(average_entropy(out[None].double())) < self.gate * math.log2(len(out)):
                self.n += 1
                self.W = self.W * self.n / (self.n + 1) + W / (self.n + 1)
        return out, chosen
