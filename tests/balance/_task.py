"""A small trunk with two heads and three losses, which the tests of gradient balance train."""

import math

import torch
from torch import nn

import trainonce
from trainonce.balance import arithmetic

TERMS = ["fit", "twice", "flat"]


class Heads(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.fit, self.twice = nn.Linear(8, 1), nn.Linear(8, 1)
        self.to(dtype)

    def forward(self, x):
        z = self.trunk(x)
        a, b = self.fit(z), self.twice(z)
        return {"fit": (a - x[:, :1]).square().mean(), "twice": (b - 2 * x[:, 1:2]).square().mean(), "flat": a.var()}


def batches(count, dtype=torch.float32, size=16):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 4, generator=generator).to(dtype) for _ in range(count)]


def make(terms=TERMS, *, optimizer=torch.optim.Adam, dtype=torch.float32, lr=1e-2, model=None, **options):
    model = Heads(dtype) if model is None else model
    criterion = trainonce.BalancedLoss(terms, **options).to(dtype)
    optimizer = optimizer(model.parameters(), lr=lr)
    trainonce.attach(optimizer, criterion)
    return model, criterion, optimizer


def train(model, criterion, optimizer, data, factors=(1, 1, 1), call=None):
    for x in data:
        optimizer.zero_grad()
        losses = {name: c * loss for c, (name, loss) in zip(factors, model(x).items(), strict=True)}
        (criterion if call is None else call)(losses).backward()
        optimizer.step()
    return criterion


def by_hand(data, held, *, weights=None, follow=0.75, every=0.05, steps=None, travel=None, lr=0.05):
    """The same by plain gradients and Python's numbers; ``data`` has all ranks' batches of a step in a list.

    Returns the coefficients of each step and the model.
    """
    model, w = Heads(torch.float64), [1.0] * 3 if weights is None else weights
    trunk = list(model.trunk.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    norm, peak, anchor, means, found, due, last = {}, {}, {}, [], [], 0, 0
    a = dict.fromkeys(TERMS, 0.0)

    def at_trunk(parts):
        mean = sum(parts) / len(parts)
        return torch.cat([g.flatten() for g in torch.autograd.grad(mean, trunk, retain_graph=True)])

    for step, batch in enumerate(data):
        each = [model(x) for x in batch]
        losses = {term: sum(part[term] for part in each) / len(each) for term in TERMS}
        if step == due:
            gradients = [at_trunk([part[term] for part in each]) for term in TERMS]
            for term, g in zip(TERMS, gradients, strict=True):
                now = g.norm().item()
                norm[term] = math.sqrt(0.5 * norm.get(term, now) ** 2 + 0.5 * now**2)
                peak[term] = max(peak.get(term, 0.0), norm[term])
            if held is not None:
                h = at_trunk([model(x)["fit"] for x in held[step]])
                fresh = [(float(g @ h), float(g @ g), float(h @ h)) for g in gradients]
                means = means or fresh
                means = [
                    [0.9 * p + 0.1 * q for p, q in zip(*two, strict=True)] for two in zip(means, fresh, strict=True)
                ]
                cosine = {t: p / math.sqrt(s * r) for t, (p, s, r) in zip(TERMS, means, strict=True)}
                # How strong each term is beside the base: as strong where it started from nothing.
                strong = {t: math.exp(a[t]) * v / w[0] / anchor.get(t, 1) for t, v in zip(TERMS, w, strict=True)}
                mean = sum(strong[t] * cosine[t] for t in TERMS) / sum(strong.values())
                rate = arithmetic.travelled(last, step, steps, travel)
                a |= {t: a[t] + rate * (cosine[t] - mean) for t in TERMS[1:]}
                last = step
            due = step + max(1, math.ceil(every * step))
        now = [w[0]]
        for term, weight in zip(TERMS[1:], w[1:], strict=True):
            fade = (norm["fit"] / peak["fit"]) / (norm[term] / peak[term])
            ratio = peak["fit"] / peak[term] * min(max(fade**follow, 0.1), 10.0)
            rise = min(1.0, step / 10) if weights is None else 1.0
            now.append(
                weight * math.exp(a[term]) * ratio / (1.0 if weights is None else anchor.setdefault(term, ratio)) * rise
            )
        found.append(now)
        optimizer.zero_grad()
        sum(c * losses[term] for c, term in zip(now, TERMS, strict=True)).backward()
        optimizer.step()
    return found, model
