"""A rule of one's own: GradNorm (Chen et al., ICML 2018, https://arxiv.org/abs/1711.02257).

Each term has a trained weight. It is moved until the norm of the term's weighted gradient, at the
last shared layer, is the mean norm times (the pace of its loss / the mean pace) ** alpha: a term
whose loss has fallen less than the others' gets a stronger gradient.

    python examples/gradnorm.py

It trains for a second on a CPU and prints the weights.
"""

import math

import torch
from torch import nn

import trainonce


class GradNorm(trainonce.LossWeighting):
    """Train a weight for each term; measure ``at`` parameters, or at tensors named in the call."""

    def __init__(self, terms, *, alpha=1.5, at=(), lr=None, scale=1.0, nonfinite="propagate"):
        super().__init__(terms, scale=scale, nonfinite=nonfinite)
        self.alpha, self.at = alpha, list(at)
        self.add_trainable("weights", 1.0, lr=lr)
        self.add_state("first", math.nan)  # the losses when each term was first seen
        self.add_state("gradient", 0.0)  # that of the weights, at the last call
        self.add_count("measured", 0)

    def weigh(self):
        return self.live("weights").detach().clone()  # or a step would change them before backward

    def combine(self, batch):
        return self.steer(super().combine(batch), self.gradient)

    @torch.no_grad()
    def observe(self, batch):
        losses, norms = own = self.first.new_full((2, len(self.terms)), math.nan)
        there = range(len(self.terms)) if batch.where is None else batch.where
        for i, loss in zip(there, batch.each(), strict=True):
            losses[i], norms[i] = loss, self.norm(loss, batch.at or self.at)
        losses, norms = self.mean(own, own.isfinite())  # of the ranks that have the term
        self.first.copy_(torch.where(self.first.isnan(), losses, self.first))
        pace, strength = losses / self.first, self.weights * norms
        wanted = strength.nanmean() * (pace / pace.nanmean()) ** self.alpha
        gradient = torch.sign(strength - wanted) * norms
        self.gradient = gradient.nan_to_num(0.0, 0.0, 0.0)  # absent terms stay where they are
        self.measured += 1

    def norm(self, loss, places):
        if not places:
            raise ValueError("GradNorm needs parameters or tensors to measure at: pass at=...")
        found = torch.autograd.grad(loss, places, retain_graph=True)
        return sum(g.float().square().sum() for g in found) ** 0.5

    @torch.no_grad()
    def after_step(self, skipped):
        if not self.frozen:
            self.weights.clamp_(min=1e-3).mul_(len(self.terms) / self.weights.sum())


def main(steps=300):
    torch.manual_seed(0)
    body, heads = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16)), nn.Linear(16, 2)
    criterion = GradNorm(["small", "large"], at=body[2].parameters(), lr=0.01)
    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=3e-3)
    trainonce.attach(optimizer, criterion)
    for _ in range(steps):
        x = torch.randn(64, 8)
        small, large = (heads(body(x)) - x[:, :2]).square().mean(0)
        optimizer.zero_grad()
        criterion(small=small, large=10 * large).backward()
        optimizer.step()
    print(criterion)


if __name__ == "__main__":
    main()
