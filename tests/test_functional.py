"""The mathematics against autograd, finite differences, the printed formulas and known fixed points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainonce import functional as F

PARTS = [("negentropy", "softplus"), ("negentropy",), ("softplus",), ()]
finite = st.floats(-20, 20, allow_nan=False)
vectors = st.lists(finite, min_size=1, max_size=6).map(lambda v: torch.tensor(v, dtype=torch.float64))


@st.composite
def exponents_and_losses(draw):
    mu = draw(vectors)
    losses = draw(st.lists(finite, min_size=len(mu) + 1, max_size=len(mu) + 1))
    return mu, torch.tensor(losses, dtype=torch.float64)


def autograd(function, mu):
    mu = mu.clone().requires_grad_()
    return torch.autograd.grad(function(mu), mu)[0]


def central_difference(function, mu, step=1e-5):
    eye = torch.eye(len(mu), dtype=mu.dtype) * step
    return torch.stack([(function(mu + e) - function(mu - e)) / (2 * step) for e in eye])


@given(exponents_and_losses())
def test_composite_gradient(case):
    mu, losses = case
    found = F.composite_grad(mu, losses)
    torch.testing.assert_close(found, autograd(lambda m: F.composite(m, losses), mu), rtol=1e-10, atol=1e-12)
    differences = central_difference(lambda m: F.composite(m, losses), mu)
    torch.testing.assert_close(found, differences, rtol=1e-5, atol=1e-7)


@given(exponents_and_losses())
def test_composite_gradient_as_printed(case):
    """The paper's double sum over pairs, written out term by term."""
    mu, losses = case
    full = [0.0, *mu.tolist()]
    top = max(full)
    e, loss = [math.exp(m - top) for m in full], losses.tolist()
    total = sum(e)
    printed = [
        e[i] * sum((loss[i] - loss[j]) * e[j] for j in range(len(e)) if j != i) / total**2 for i in range(1, len(e))
    ]
    found = F.composite_grad(mu, losses)
    torch.testing.assert_close(found, torch.tensor(printed, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("parts", PARTS)
@given(mu=vectors)
def test_regularizer_gradient(parts, mu):
    found = F.regularizer_grad(mu, parts)
    if parts:
        torch.testing.assert_close(found, autograd(lambda m: F.regularizer(m, parts), mu), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found, central_difference(lambda m: F.regularizer(m, parts), mu), rtol=1e-5, atol=1e-7)


@given(mu=vectors)
def test_regularizer_gradient_as_printed(mu):
    full = [0.0, *mu.tolist()]
    top = max(full)
    e = [math.exp(m - top) for m in full]
    total = sum(e)
    printed = [
        e[i] * sum(e[j] * (full[i] - full[j]) for j in range(len(e))) / total**2 + 1 / (1 + math.exp(-full[i]))
        for i in range(1, len(e))
    ]
    torch.testing.assert_close(
        F.regularizer_grad(mu), torch.tensor(printed, dtype=torch.float64), rtol=1e-9, atol=1e-12
    )


@given(mu=vectors)
def test_regularizer_value_as_printed(mu):
    lam = torch.softmax(torch.cat((torch.zeros(1, dtype=mu.dtype), mu)), 0).tolist()
    negentropy = sum(p * math.log(p) for p in lam if p > 0)
    softplus = sum(max(m, 0) + math.log1p(math.exp(-abs(m))) for m in mu.tolist())
    assert F.regularizer(mu).item() == pytest.approx(negentropy + softplus, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(("count", "ratio"), [(1, math.exp(-1.2784645)), (2, 0.1971), (3, 0.1555), (9, 0.0745)])
def test_symmetric_optimum(count, ratio):
    low, high = -5.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        pull = F.regularizer_grad(torch.full((count,), middle, dtype=torch.float64))[0]
        low, high = (middle, high) if pull < 0 else (low, middle)
    assert math.exp(low) == pytest.approx(ratio, abs=6e-5)


@given(exponents_and_losses(), st.randoms(use_true_random=False))
def test_permuting_auxiliary_terms_permutes_everything(case, random):
    mu, losses = case
    order = list(range(len(mu)))
    random.shuffle(order)
    full = [0, *(i + 1 for i in order)]
    torch.testing.assert_close(F.weights(mu[order]), F.weights(mu)[full], rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(F.composite(mu[order], losses[full]), F.composite(mu, losses), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(F.regularizer_grad(mu[order]), F.regularizer_grad(mu)[order], rtol=1e-9, atol=1e-12)


@given(exponents_and_losses(), finite)
def test_shifts(case, shift):
    """Shifting all losses shifts the total and leaves the gradient; another base is a shift of the exponents."""
    mu, losses = case
    torch.testing.assert_close(F.composite(mu, losses + shift), F.composite(mu, losses) + shift, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(F.composite_grad(mu, losses + shift), F.composite_grad(mu, losses), rtol=1e-6, atol=1e-9)
    rebased = torch.cat((-mu[:1], mu[1:] - mu[0]))  # the first auxiliary term as the base, the old base in its place
    swapped = F.weights(mu).clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    torch.testing.assert_close(F.weights(rebased), swapped, rtol=1e-9, atol=1e-12)


@given(exponents_and_losses())
def test_weights_are_a_convex_combination(case):
    mu, losses = case
    lam = F.weights(mu)
    assert bool((lam >= 0).all())
    assert lam.sum().item() == pytest.approx(1, abs=1e-12)
    total = F.composite(mu, losses).item()
    assert losses.min().item() - 1e-9 <= total <= losses.max().item() + 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mu", [[80.0], [-80.0], [80.0, -80.0], [-80.0, -80.0], [80.0, 80.0, 80.0]])
def test_no_overflow(mu, dtype):
    mu = torch.tensor(mu, dtype=dtype)
    losses = torch.linspace(-3, 5, len(mu) + 1, dtype=dtype)
    for value in (F.weights(mu), F.composite_grad(mu, losses), F.regularizer(mu), F.regularizer_grad(mu)):
        assert bool(torch.isfinite(value).all())
    assert bool(torch.isfinite(autograd(F.regularizer, mu)).all())
    torch.testing.assert_close(F.regularizer_grad(mu), autograd(F.regularizer, mu), rtol=1e-4, atol=1e-6)


def test_vmap_equals_a_loop():
    mu, losses = torch.randn(7, 3, dtype=torch.float64), torch.rand(7, 4, dtype=torch.float64)
    for function in (F.composite, F.composite_grad):
        looped = torch.stack([function(m, x) for m, x in zip(mu, losses, strict=True)])
        torch.testing.assert_close(torch.func.vmap(function)(mu, losses), looped, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(function(mu, losses), looped, rtol=1e-12, atol=1e-14)
    for function in (F.weights, F.regularizer, F.regularizer_grad):
        looped = torch.stack([function(m) for m in mu])
        torch.testing.assert_close(torch.func.vmap(function)(mu), looped, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(function(mu), looped, rtol=1e-12, atol=1e-14)
    grads = torch.func.vmap(torch.func.grad(F.composite))(mu, losses)
    torch.testing.assert_close(grads, F.composite_grad(mu, losses), rtol=1e-12, atol=1e-14)


class LargestTensor(TorchDispatchMode):
    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.size = max([self.size, *sizes])
        return out


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_no_tensor_is_larger_than_the_terms(count):
    mu, losses = torch.randn(count), torch.rand(count + 1)
    with LargestTensor() as largest:
        F.composite_grad(mu, losses)
        F.regularizer_grad(mu)
        autograd(lambda m: F.composite(m, losses) + F.regularizer(m), mu)
    assert largest.size == count + 1


@settings(max_examples=25)
@given(exponents_and_losses())
def test_narrow_losses_are_summed_in_the_exponents_precision(case):
    mu, losses = case
    found = F.composite(mu.float(), losses.bfloat16())
    assert found.dtype == torch.float32
    exact = F.composite(mu, losses.bfloat16().double())
    assert found.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("parts", [["softplsu"], "softplus"])
def test_unknown_parts(parts):
    for function in (F.regularizer, F.regularizer_grad):
        with pytest.raises(ValueError, match="takes a list of any of 'negentropy', 'softplus'; got 'softpl"):
            function(torch.zeros(2), parts)
