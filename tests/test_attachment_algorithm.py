"""The update of the exponents against Algorithm 1 of the paper, and where it comes to rest."""

import math

import pytest
import torch
from _constant_losses import constant_losses
from torch import nn

import trainonce
from trainonce import functional as F

# Algorithm 1 against a reference that shares no code with the library


def algorithm_1(steps, *, alpha, eta, beta, weight_decay, rho, epsilon, targets):
    """The printed algorithm in plain Python floats, on l_i(w) = sum_k (w_k - targets[i][k])^2 / 2."""
    count = len(targets)
    w, mu = [0.3, -0.2], [0.0] + [math.log(epsilon)] * (count - 1)
    m, n = [0.0, 0.0], [0.0] * count
    for t in range(1, steps + 1):
        e = [math.exp(x) for x in mu]
        total = math.fsum(e)
        loss = [sum((wk - a) ** 2 for wk, a in zip(w, target, strict=True)) / 2 for target in targets]
        g = [sum(e[i] / total * (w[k] - targets[i][k]) for i in range(count)) for k in range(2)]
        h = [
            e[i] * math.fsum((loss[i] - loss[j]) * e[j] for j in range(count) if j != i) / total**2
            for i in range(count)
        ]
        r = [
            e[i] * math.fsum(e[j] * (mu[i] - mu[j]) for j in range(count)) / total**2 + e[i] / (1 + e[i])
            for i in range(count)
        ]
        rate = eta(t) * alpha
        m = [beta * mk + rate * gk for mk, gk in zip(m, g, strict=True)]
        n = [beta * ni + rate * hi for ni, hi in zip(n, h, strict=True)]
        w = [wk - mk - rate * weight_decay * wk for wk, mk in zip(w, m, strict=True)]
        mu = [0.0, *(mu[i] - n[i] - rate * rho * r[i] for i in range(1, count))]
    return w, mu[1:]


TARGETS = [[1.0, 0.5], [0.8, -0.7], [0.0, 0.1]]


def terms_of(w):
    return {name: ((w - torch.tensor(a, dtype=w.dtype)) ** 2).sum() / 2 for name, a in zip("abc", TARGETS, strict=True)}


@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
@pytest.mark.parametrize("rho", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("foreach", [False, True])
def test_sgdw_with_attach_is_algorithm_1(rho, foreach):
    def eta(t):
        return 0.5 + 0.5 * math.cos(math.pi * (t - 1) / 4000)

    w = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.float64))
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init=0.1).double()
    optimizer = trainonce.SGDW([w], lr=0.02, momentum=0.9, weight_decay=0.1, foreach=foreach)
    trainonce.attach(optimizer, criterion, decay=rho)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: eta(t + 1))
    for _ in range(3000):
        optimizer.zero_grad()
        criterion(terms_of(w)).backward()
        optimizer.step()
        scheduler.step()
    expected_w, expected_mu = algorithm_1(
        3000, alpha=0.02, eta=eta, beta=0.9, weight_decay=0.1, rho=rho, epsilon=0.1, targets=TARGETS
    )
    torch.testing.assert_close(w.detach(), torch.tensor(expected_w, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        criterion.exponents.detach(), torch.tensor(expected_mu, dtype=torch.float64), rtol=0, atol=1e-12
    )


# Balance points


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
@pytest.mark.parametrize("rho", [2.0, 20.0])
def test_adams_balance(rho):
    """With softplus alone Adam ends where exp(mu) = s / (rho - s), whatever the losses are; here s = 1."""
    for losses in ([1.5, 0.5, 0.4], [0.15, 0.012, 0.011]):
        mu = constant_losses(
            lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95)),
            losses,
            decay=rho,
            steps=2000,
            preset="softplus",
        )
        torch.testing.assert_close(mu.exp(), torch.full_like(mu, 1 / (rho - 1)), rtol=2e-3, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_adams_balance_with_noise():
    """Gradient noise of coefficient of variation c shrinks Adam's step to s = 1 / sqrt(1 + c^2)."""
    s = 1 / math.sqrt(1 + 0.5**2)
    settings = {"decay": 20.0, "steps": 6000, "noise": 0.5, "preset": "softplus", "init": s / (20 - s)}
    path = constant_losses(lambda p: torch.optim.Adam(p, lr=1e-3), [1.5, 0.5], whole_path=True, **settings)
    assert path[2000:].exp().mean().item() == pytest.approx(s / (20 - s), rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_adam_has_no_balance_below_s():
    def adam(p):
        return torch.optim.Adam(p, lr=1e-2)

    ends = [constant_losses(adam, [1.5, 0.5], decay=0.3, steps=n, preset="softplus").item() for n in (1000, 2000, 3000)]
    assert ends[0] < ends[1] < ends[2]
    assert ends[2] - ends[1] > 0.5  # still rising at lr * (s - rho)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_sgds_balance():
    """K = 1: the optimizer amplifies the loss's part by 1 / (1 - beta), and not the decay."""
    rho, beta, gap = 0.5, 0.9, 0.3
    mu = constant_losses(lambda p: trainonce.SGDW(p, lr=0.2, momentum=beta), [0.5, 0.5 - gap], decay=rho, steps=3000)
    lam = F.weights(mu)
    left = (lam[0] * lam[1] * gap / (1 - beta)).item()
    assert left == pytest.approx((rho * F.regularizer_grad(mu)).item(), rel=1e-6)


def test_adam_follows_the_sign_not_the_size():
    """Multiplying all losses by a constant changes nothing under Adam: rho alone sets the weights."""
    runs = [
        constant_losses(lambda p: torch.optim.Adam(p, lr=1e-2, eps=1e-30), [c * 1.5, c * 0.5], decay=2.0, steps=300)
        for c in (1.0, 1000.0)
    ]
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-9, atol=1e-9)
