"""attach: Algorithm 1, its balance points, every optimizer, real and skipped steps."""

import copy
import gc
import math
import pickle

import pytest
import torch
from _constant_losses import constant_losses
from torch import nn

import trainonce
from trainonce import functional as F

# Every optimizer


def optimizers():
    o = torch.optim
    plain = {
        "SGD": (o.SGD, {"momentum": 0.9}),
        "Adam": (o.Adam, {}),
        "AdamW": (o.AdamW, {"weight_decay": 0.1}),
        "NAdam": (o.NAdam, {}),
        "RAdam": (o.RAdam, {}),
        "RMSprop": (o.RMSprop, {}),
        "Adagrad": (o.Adagrad, {}),
        "Adadelta": (o.Adadelta, {"weight_decay": 0.1}),
        "Adamax": (o.Adamax, {}),
        "ASGD": (o.ASGD, {}),
        "Rprop": (o.Rprop, {}),
        "SGDW": (trainonce.SGDW, {"momentum": 0.9, "weight_decay": 0.1}),
    }
    for name, (kind, settings) in plain.items():
        for foreach in (False, True):
            yield pytest.param(
                kind, {**settings, "foreach": foreach}, id=f"{name}-{'foreach' if foreach else 'single'}"
            )
    for name in ("SGD", "Adam", "AdamW", "Adagrad"):
        kind, settings = plain[name]
        yield pytest.param(kind, {**settings, "fused": True}, id=f"{name}-fused")
    yield pytest.param(o.Adafactor, {}, id="Adafactor")


@pytest.mark.parametrize("named", [False, True], ids=["parameters", "named"])
@pytest.mark.parametrize(("kind", "settings"), list(optimizers()))
def test_every_optimizer(kind, settings, named):
    """The exponents follow the optimizer's own rule on the closed-form gradient, plus the decay, and nothing else."""
    model = nn.Linear(3, 1).double()
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init={"b": 0.5, "c": 2.0}, decay=3.0, lr=0.02).double()
    optimizer = kind(model.named_parameters() if named else model.parameters(), lr=0.01, **settings)
    trainonce.attach(optimizer, criterion)
    twin = criterion.exponents.detach().clone().requires_grad_()
    twin_optimizer = kind(
        [twin], lr=0.02, **{**settings, **({"weight_decay": 0} if "weight_decay" in settings else {})}
    )
    x = torch.randn(16, 3, dtype=torch.float64)
    for _ in range(12):
        out = model(x)
        losses = torch.stack([(out - 1).square().mean(), out.abs().mean(), model.weight.square().sum()])
        before = twin.detach().clone()
        twin.grad = F.composite_grad(before, losses.detach())
        twin_optimizer.step()
        with torch.no_grad():
            twin -= 0.02 * 3.0 * F.regularizer_grad(before)
        optimizer.zero_grad()
        criterion(losses).backward()
        optimizer.step()
        torch.testing.assert_close(criterion.exponents, twin, rtol=1e-11, atol=1e-13)
    assert optimizer.param_groups[-1]["name"] == "loss_weights"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "tolerance"),
    # Compiled, torch's own AdamW corrects its bias in float32 and is off by 1e-6, with or without us.
    [(torch.optim.SGD, 1e-12), (torch.optim.AdamW, 1e-5), (trainonce.SGDW, 1e-12)],
)
def test_compiled_optimizer(kind, tolerance):
    def run(compiled):
        torch.manual_seed(0)
        model, criterion = nn.Linear(3, 1).double(), trainonce.CompositeLoss(["a", "b"], init=0.1).double()
        optimizer = kind(model.parameters(), lr=0.05)
        trainonce.attach(optimizer, criterion)
        step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        x = torch.randn(16, 3, dtype=torch.float64)
        for _ in range(12):
            out = model(x)
            criterion(a=(out - 1).square().mean(), b=out.abs().mean()).backward()
            step()
            optimizer.zero_grad()
        return criterion.exponents.detach()

    torch._dynamo.reset()
    torch.testing.assert_close(run(True), run(False), rtol=tolerance, atol=1e-13)


@pytest.mark.parametrize("regularizer", [["negentropy"], "softplus", ["softplus", "negentropy"], []])
def test_the_pull_is_that_of_the_parts(regularizer):
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.3, decay=5.0, regularizer=regularizer, lr="model").double()
    mu = criterion.exponents.detach().clone()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    trainonce.attach(optimizer, criterion)
    leaf = torch.ones(2, dtype=torch.float64, requires_grad=True)  # equal losses: the decay alone moves
    criterion(leaf).backward()
    optimizer.step()
    parts = (regularizer,) if isinstance(regularizer, str) else tuple(regularizer)
    torch.testing.assert_close(criterion.exponents.detach(), mu - 0.5 * F.regularizer_grad(mu, parts))


# Real steps only


def test_accumulation_decays_once_per_step():
    def run(parts):
        w = nn.Parameter(torch.ones(4, dtype=torch.float64))
        criterion = trainonce.CompositeLoss(["a", "b"], decay=3.0).double()
        optimizer = torch.optim.AdamW([w], lr=0.05)
        attachment = trainonce.attach(optimizer, criterion)
        x = torch.linspace(-1, 1, 8, dtype=torch.float64)
        for _ in range(10):
            for part in x.chunk(parts):
                a, b = (part[:, None] * w - 1).square().mean(), (part[:, None] * w).abs().mean()
                (criterion(a=a, b=b) / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert attachment.steps == 10
        return criterion.exponents.detach()

    torch.testing.assert_close(run(4), run(1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_that_gradscaler_skips_applies_nothing(kind, fused, unscale):
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = kind([w], lr=0.1, fused=fused)
    trainonce.attach(optimizer, criterion)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    moved = []
    for bad in (False, True, True, False):
        before = criterion.exponents.detach().clone(), w.detach().clone()
        optimizer.zero_grad()
        loss = criterion(a=(w**2).sum(), b=w.abs().sum())
        scaler.scale(loss).backward()
        if bad:
            w.grad.fill_(math.inf)
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        moved.append((not torch.equal(before[0], criterion.exponents), not torch.equal(before[1], w)))
    assert moved == [(True, True), (False, False), (False, False), (True, True)]


def test_no_gradient_no_decay():
    """As with weight decay: a step in which the criterion took no part leaves it alone."""
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.1)
    trainonce.attach(optimizer, criterion)
    start = criterion.exponents.detach().clone()
    (w**2).sum().backward()
    optimizer.step()
    assert torch.equal(criterion.exponents, start)


def test_the_decay_is_the_rules_alone():
    """It may change during training, and an optimizer's checkpoint does not bring another one."""
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"], decay=3.0, lr=0.5)
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion)
    saved = optimizer.state_dict()
    assert not any("decay" in key and value for key, value in attachment.group.items() if key != "params")
    criterion.decay = 9.0
    optimizer.load_state_dict(saved)
    assert (criterion.decay, attachment.group["lr"]) == (9.0, 0.5)
    with pytest.raises(ValueError, match="decay must be a number of at least 0; got -5"):
        criterion.decay = -5
    with pytest.raises(TypeError, match="decay"):
        trainonce.attach(optimizer, trainonce.BalancedLoss(["a", "b"]), decay=3)


def test_tensor_learning_rate():
    def run(lr):
        return constant_losses(lambda p: torch.optim.SGD(p, lr=0.1), [1.0, 2.0], decay=1.0, steps=5, lr=lr)

    torch.testing.assert_close(run(torch.tensor(0.05, dtype=torch.float64)), run(0.05), rtol=1e-12, atol=0)


def test_remove_undoes_the_hooks():
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    trainonce.attach(optimizer, criterion).remove()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert criterion.attachment is None
    trainonce.attach(optimizer, criterion)
    assert len(optimizer.param_groups) == 2


# Misuse


def optimizer_of(lr=0.1):
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr)


def test_attaching_twice():
    criterion = trainonce.CompositeLoss(["a", "b"])
    first, second = optimizer_of(), optimizer_of()
    trainonce.attach(first, criterion)
    with pytest.raises(RuntimeError, match="already attached to this optimizer"):
        trainonce.attach(first, criterion)
    with pytest.raises(RuntimeError, match="already attached to another optimizer"):
        trainonce.attach(second, criterion)
    assert len(second.param_groups) == 1


def test_not_a_criterion():
    with pytest.raises(TypeError, match=r"needs a rule such as trainonce.CompositeLoss; got Linear"):
        trainonce.attach(optimizer_of(), nn.Linear(1, 1))


def test_exponents_replaced_after_attach():
    w = nn.Parameter(torch.ones(1))
    criterion, optimizer = trainonce.CompositeLoss(["a", "b"]), torch.optim.SGD([w], lr=0.1)
    trainonce.attach(optimizer, criterion)
    criterion.load_state_dict(trainonce.CompositeLoss(["a", "b"]).state_dict(), assign=True)
    criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    with pytest.raises(RuntimeError, match="exponents were replaced after attach"):
        optimizer.step()


def test_an_optimizer_that_is_gone():
    criterion, optimizer = trainonce.CompositeLoss(["a", "b"]), optimizer_of()
    attachment = trainonce.attach(optimizer, criterion)
    assert copy.deepcopy({"kept": attachment}) == {"kept": None}
    assert pickle.loads(pickle.dumps(attachment)) is None
    del optimizer
    gc.collect()
    assert "no longer exists" in repr(attachment)
    with pytest.raises(RuntimeError, match="optimizer this criterion was attached to no longer exists"):
        _ = attachment.optimizer
    other = optimizer_of()
    assert trainonce.attach(other, criterion).optimizer is other


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=["compiled", "parallel"])
def test_a_wrapped_criterion_is_found(wrap):
    criterion, optimizer = trainonce.CompositeLoss(["a", "b"]), optimizer_of()
    assert trainonce.attach(optimizer, wrap(criterion)).criterion is criterion


# The ratio of the learning rates


@pytest.mark.parametrize(
    ("own", "change", "replaced"),
    [
        (0.05, {"lr": (0.05, 0.025)}, None),
        (0.05, {"lr": (0.05, 0.05)}, 1.0),
        (0.1 * (1 + 1e-8), {"lr": (0.05, 0.05)}, None),  # equal, as the user set them
        (0.02, {"initial_lr": (1.0, 0.2), "lr": (0.01, 0.01)}, None),  # where two schedules cross
        (0.02, {"initial_lr": (1.0, 0.3)}, 0.3),
    ],
)
def test_a_replaced_ratio_of_the_rates_is_noticed(own, change, replaced):
    optimizer = optimizer_of()
    attachment = trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"], lr=own))
    assert attachment.lr_ratio == pytest.approx(own / 0.1)
    for key, values in change.items():
        for group, value in zip(optimizer.param_groups, values, strict=True):
            group[key] = value
    assert attachment.replaced_lr_ratio() == (replaced if replaced is None else pytest.approx(replaced))


def test_a_warm_up_from_zero_has_no_ratio_to_replace():
    optimizer = optimizer_of(lr=0.0)
    attachment = trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"], lr=0.02))
    assert math.isnan(attachment.lr_ratio)
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.05
    assert attachment.replaced_lr_ratio() is None


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
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init=0.1, decay=rho, lr="model").double()
    optimizer = trainonce.SGDW([w], lr=0.02, momentum=0.9, weight_decay=0.1, foreach=foreach)
    trainonce.attach(optimizer, criterion)
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
            regularizer="softplus",
        )
        torch.testing.assert_close(mu.exp(), torch.full_like(mu, 1 / (rho - 1)), rtol=2e-3, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_adams_balance_with_noise():
    """Gradient noise of coefficient of variation c shrinks Adam's step to s = 1 / sqrt(1 + c^2)."""
    s = 1 / math.sqrt(1 + 0.5**2)
    settings = {"decay": 20.0, "steps": 6000, "noise": 0.5, "regularizer": "softplus", "init": s / (20 - s)}
    path = constant_losses(lambda p: torch.optim.Adam(p, lr=1e-3), [1.5, 0.5], whole_path=True, **settings)
    assert path[2000:].exp().mean().item() == pytest.approx(s / (20 - s), rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_adam_has_no_balance_below_s():
    def adam(p):
        return torch.optim.Adam(p, lr=1e-2)

    ends = [
        constant_losses(adam, [1.5, 0.5], decay=0.3, steps=n, regularizer="softplus").item() for n in (1000, 2000, 3000)
    ]
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
