"""attach: Algorithm 1, the balance points, every optimizer, real and skipped steps."""

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
from trainonce import health

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
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init={"b": 0.5, "c": 2.0}).double()
    optimizer = kind(model.named_parameters() if named else model.parameters(), lr=0.01, **settings)
    trainonce.attach(optimizer, criterion, decay=3.0, lr=0.02)
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
        model, criterion = nn.Linear(3, 1).double(), trainonce.CompositeLoss(["a", "b"]).double()
        optimizer = kind(model.parameters(), lr=0.05)
        trainonce.attach(optimizer, criterion, decay=2.0)
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


@pytest.mark.parametrize("preset", ["paper", "softplus"])
def test_presets_and_parts(preset):
    def run(**options):
        return constant_losses(lambda p: torch.optim.SGD(p, lr=0.1), [1.0, 2.0], decay=1.0, steps=5, **options)

    parts = {"paper": ["softplus", "negentropy"], "softplus": "softplus"}[preset]
    assert torch.equal(run(preset=preset), run(regularizer=parts))
    assert not torch.equal(run(preset=preset), run(regularizer=["negentropy"]))


def test_no_regularizer_is_no_decay():
    def run(**options):
        return constant_losses(lambda p: torch.optim.SGD(p, lr=0.1), [1.0, 2.0], steps=5, **options)

    assert torch.equal(run(decay=5.0, regularizer=[]), run(decay=0.0))


# Coupled


@pytest.mark.parametrize("closure", ["none", "positional", "keyword"])
@pytest.mark.parametrize("maximize", [False, True])
def test_coupled_goes_through_the_optimizer(closure, maximize):
    w = nn.Parameter(torch.ones(1, dtype=torch.float64))
    criterion = trainonce.CompositeLoss(["a", "b"]).double()
    optimizer = torch.optim.Adam([w], lr=0.01, maximize=maximize)
    trainonce.attach(optimizer, criterion, decay=3.0, coupled=True)
    twin = criterion.exponents.detach().clone().requires_grad_()
    twin_optimizer = torch.optim.Adam([twin], lr=0.01, maximize=maximize)

    def compute():
        optimizer.zero_grad()
        loss = criterion(a=(w**2).sum(), b=w.abs().sum())
        loss.backward()
        return loss

    for _ in range(10):
        losses = torch.stack([(w**2).sum(), w.abs().sum()]).detach()
        sign = -1 if maximize else 1
        twin.grad = F.composite_grad(twin.detach(), losses) + sign * 3.0 * F.regularizer_grad(twin.detach())
        twin_optimizer.step()
        if closure != "none":
            returned = optimizer.step(compute) if closure == "positional" else optimizer.step(closure=compute)
            assert returned.item() == pytest.approx((losses @ F.weights(twin.detach())).item(), rel=0.05)
        else:
            compute()
            optimizer.step()
        torch.testing.assert_close(criterion.exponents, twin, rtol=1e-12, atol=1e-13)


def test_coupled_leaves_the_other_arguments_of_a_step_alone():
    class Noting(torch.optim.SGD):
        def step(self, closure=None, note=None):
            self.note = note
            return super().step(closure)

    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = Noting([w], lr=0.1)
    trainonce.attach(optimizer, criterion, decay=3.0, coupled=True)
    optimizer.step(lambda: criterion(a=(w**2).sum(), b=w.abs().sum()).backward(), "kept")
    assert optimizer.note == "kept"


def test_coupled_with_a_scaler_that_a_fused_optimizer_unscales():
    def run(scaled):
        w = nn.Parameter(torch.ones(1))
        criterion = trainonce.CompositeLoss(["a", "b"])
        optimizer = torch.optim.SGD([w], lr=0.1, fused=True)
        trainonce.attach(optimizer, criterion, decay=3.0, coupled=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale(criterion(a=(w**2).sum(), b=w.abs().sum())).backward()
            scaler.step(optimizer)
            scaler.update()
        return criterion.exponents.detach()

    torch.testing.assert_close(run(True), run(False), rtol=1e-6, atol=0)


# Real steps only


@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_closure_gives_the_same_as_without(decay):
    def run(closure):
        w = nn.Parameter(torch.ones(2, dtype=torch.float64))
        criterion = trainonce.CompositeLoss(["a", "b"]).double()
        optimizer = torch.optim.AdamW([w], lr=0.05)
        trainonce.attach(optimizer, criterion, decay=decay)

        def compute():
            optimizer.zero_grad()
            loss = criterion(a=(w**2).sum(), b=(w - 2).abs().sum())
            loss.backward()
            return loss

        for _ in range(20):
            if closure == "positional":
                optimizer.step(compute)
            elif closure == "keyword":
                optimizer.step(closure=compute)
            else:
                compute()
                optimizer.step()
        return criterion.exponents.detach()

    assert torch.equal(run("positional"), run(None))
    assert torch.equal(run("keyword"), run(None))


def test_accumulation_decays_once_per_step():
    def run(parts):
        w = nn.Parameter(torch.ones(4, dtype=torch.float64))
        criterion = trainonce.CompositeLoss(["a", "b"]).double()
        optimizer = torch.optim.AdamW([w], lr=0.05)
        attachment = trainonce.attach(optimizer, criterion, decay=3.0)
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
    trainonce.attach(optimizer, criterion, decay=3.0)
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


@pytest.mark.parametrize("coupled", [False, True])
def test_no_gradient_no_decay(coupled):
    """As with weight decay: a step in which the criterion took no part leaves it alone."""
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.1)
    trainonce.attach(optimizer, criterion, decay=3.0, coupled=coupled)
    start = criterion.exponents.detach().clone()
    (w**2).sum().backward()
    optimizer.step()
    assert torch.equal(criterion.exponents, start)


def test_decay_and_lr_can_be_scheduled_and_are_saved():
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion, decay=3.0, lr=0.5)
    attachment.decay = 1.5
    saved = optimizer.state_dict()
    attachment.decay = 9.0
    optimizer.load_state_dict(saved)
    assert attachment.decay == 1.5
    assert attachment.group["lr"] == 0.5
    assert "decay=1.5" in repr(attachment)


def test_tensor_learning_rate():
    def run(lr):
        return constant_losses(lambda p: torch.optim.SGD(p, lr=0.1), [1.0, 2.0], decay=1.0, steps=5, lr=lr)

    torch.testing.assert_close(run(torch.tensor(0.05, dtype=torch.float64)), run(0.05), rtol=1e-12, atol=0)


def test_freeze_stops_gradients_momentum_and_decay():
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.Adam([w], lr=0.1)
    trainonce.attach(optimizer, criterion, decay=3.0)

    def step():
        optimizer.zero_grad()
        criterion(a=(w**2).sum(), b=(w - 3).abs().sum()).backward()
        optimizer.step()
        return criterion.exponents.detach().clone()

    step()
    criterion.freeze()
    frozen, w_then = criterion.exponents.detach().clone(), w.detach().clone()
    for _ in range(5):
        assert torch.equal(step(), frozen)
    assert not torch.equal(w, w_then)
    assert "frozen" in repr(criterion)
    criterion.unfreeze()
    assert not torch.equal(step(), frozen)


def test_remove_undoes_the_hooks():
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion, decay=3.0)
    attachment.remove()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert criterion.attachment is None
    trainonce.attach(optimizer, criterion, decay=1.0)
    assert len(optimizer.param_groups) == 2


# Misuse


@pytest.mark.parametrize("decay", [-1, math.nan, math.inf, "2", True])
def test_bad_decay(decay):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ValueError, match="decay must be a number of at least 0"):
        trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]), decay=decay)
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lr": -0.1}, "lr must be"),
        ({"lr": "0.1"}, "lr must be a number of at least 0; got '0.1'"),
        ({"preset": "literal"}, "preset must be one of 'paper', 'softplus'; got 'literal'"),
        ({"regularizer": ["entropy"]}, "regularizer takes a list of any of 'negentropy', 'softplus'; got 'entropy'"),
    ],
)
def test_bad_options(options, text):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ValueError, match=text):
        trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]), decay=1.0, **options)
    assert len(optimizer.param_groups) == 1


def test_attaching_twice():
    criterion = trainonce.CompositeLoss(["a", "b"])
    first, second = (torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2))
    trainonce.attach(first, criterion, decay=1.0)
    with pytest.raises(RuntimeError, match="already attached to this optimizer"):
        trainonce.attach(first, criterion, decay=1.0)
    with pytest.raises(RuntimeError, match="already attached to another optimizer"):
        trainonce.attach(second, criterion, decay=1.0)
    assert len(second.param_groups) == 1


def test_not_a_criterion():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(TypeError, match=r"needs a trainonce.CompositeLoss; got Linear"):
        trainonce.attach(optimizer, nn.Linear(1, 1), decay=1.0)


def test_exponents_replaced_after_attach():
    w = nn.Parameter(torch.ones(1))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.1)
    trainonce.attach(optimizer, criterion, decay=1.0)
    criterion.load_state_dict(trainonce.CompositeLoss(["a", "b"], init=1.0).state_dict(), assign=True)
    criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    with pytest.raises(RuntimeError, match="exponents were replaced after attach"):
        optimizer.step()


def test_copies_are_attached_again():
    model, criterion = nn.Linear(2, 1), trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    trainonce.attach(optimizer, criterion, decay=2.0)

    def train(model, criterion, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(torch.linspace(-1, 1, 8).reshape(4, 2))
            criterion(a=(out - 1).square().mean(), b=out.abs().mean()).backward()
            optimizer.step()

    train(model, criterion, optimizer, 5)
    copied = copy.deepcopy((model, criterion, optimizer))
    assert copied[1].attachment is None
    trainonce.attach(copied[2], copied[1], decay=2.0)
    assert [len(g["params"]) for g in copied[2].param_groups] == [2, 1]
    train(model, criterion, optimizer, 5)
    train(*copied, 5)
    assert torch.equal(criterion.exponents, copied[1].exponents)
    assert torch.equal(model.weight, copied[0].weight)
    # Without attaching again, the copy says so.
    lost = copy.deepcopy((model, criterion, optimizer))
    with pytest.warns(health.NotAttached, match="attach"):
        train(*lost, 101)


def test_a_new_optimizer_after_the_old_one_is_gone():
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion, decay=1.0)
    del optimizer
    gc.collect()
    assert "no longer exists" in repr(attachment)
    trainonce.attach(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), criterion, decay=1.0)


def test_an_optimizer_that_is_gone_is_one_sentence():
    criterion = trainonce.CompositeLoss(["a", "b"])
    attachment = trainonce.attach(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), criterion, decay=1.0)
    gc.collect()
    with pytest.raises(RuntimeError, match="optimizer this criterion was attached to no longer exists"):
        _ = attachment.decay


def test_attachments_in_copies_are_none():
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion, decay=1.0)
    assert copy.deepcopy({"kept": attachment}) == {"kept": None}
    assert pickle.loads(pickle.dumps(attachment)) is None


@pytest.mark.parametrize(
    ("criterion", "sync", "synced"),
    [
        (trainonce.CompositeLoss(["a", "b"]), True, True),
        (trainonce.CompositeLoss(["a", "b"]), False, False),
        (trainonce.FixedLoss({"a": 1.0, "b": 2.0}), True, False),
    ],
)
def test_what_is_averaged_over_ranks(criterion, sync, synced):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert trainonce.attach(optimizer, criterion, decay=1.0, sync=sync).synced is synced


# The ratio of the learning rates


def groups(model=0.1, own=0.02):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=model)
    return optimizer, trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]), decay=1.0, lr=own)


@pytest.mark.parametrize("own", [0.05, 0.2])
def test_a_loop_that_gives_all_groups_one_rate_replaces_the_ratio(own):
    optimizer, attachment = groups(own=own)
    first, second = optimizer.param_groups
    assert attachment.lr == own
    assert attachment.lr_ratio == pytest.approx(own / 0.1)
    first["lr"], second["lr"] = 0.05, 0.05 * own / 0.1
    assert attachment.replaced_lr_ratio() is None
    first["lr"] = second["lr"] = 0.05
    assert attachment.replaced_lr_ratio() == 1.0


def test_equal_rates_that_the_user_set_are_no_replacement():
    optimizer, attachment = groups(own=0.1 * (1 + 1e-8))
    first, second = optimizer.param_groups
    first["lr"] = second["lr"] = 0.05
    assert attachment.replaced_lr_ratio() is None


def test_a_scheduler_shows_in_the_initial_rates_alone():
    optimizer, attachment = groups()
    first, second = optimizer.param_groups
    first["initial_lr"], second["initial_lr"] = 1.0, 0.2 * (1 + 1e-8)
    first["lr"] = second["lr"] = 0.01  # where two schedules cross
    assert attachment.replaced_lr_ratio() is None
    second["initial_lr"] = 0.3
    assert attachment.replaced_lr_ratio() == pytest.approx(0.3)


def test_a_warm_up_from_zero_has_no_ratio_to_replace():
    optimizer, attachment = groups(model=0.0)
    first, second = optimizer.param_groups
    assert math.isnan(attachment.lr_ratio)
    first["lr"] = second["lr"] = 0.05
    assert attachment.replaced_lr_ratio() is None


def test_the_ratio_where_the_exponents_come_first():
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD(
        [{"params": [criterion.exponents], "lr": 0.02}, {"params": [nn.Parameter(torch.ones(1))]}], lr=0.1
    )
    assert trainonce.attach(optimizer, criterion, decay=1.0).lr_ratio == pytest.approx(0.2)


def test_a_bad_decay_later():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    attachment = trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]), decay=1.0)
    with pytest.raises(ValueError, match="decay must be a number of at least 0; got -5"):
        attachment.decay = -5


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=["compiled", "parallel"])
def test_a_wrapped_criterion_is_found(wrap):
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert trainonce.attach(optimizer, wrap(criterion), decay=1.0).criterion is criterion


# Arguments without a use


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"lr": 0.1}, "lr=0.1"),
        ({"lr": torch.tensor(0.1)}, r"lr=tensor\(0.1000\)"),
        ({"preset": "softplus"}, "preset='softplus'"),
        ({"regularizer": ["softplus"]}, r"regularizer=\['softplus'\]"),
        ({"regularizer": ()}, r"regularizer=\(\)"),
        ({"coupled": True}, "coupled=True"),
    ],
)
def test_what_moves_exponents_is_refused_where_the_loss_does_not(given, shown):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    with pytest.raises(
        ValueError, match=f"attach was given {shown}, which moves nothing in gradient units.*signal='loss'"
    ):
        trainonce.attach(optimizer, criterion, **given)
    assert criterion.attachment is None
    assert len(optimizer.param_groups) == 1
    trainonce.attach(optimizer, criterion, decay=0, preset="paper", coupled=False, lr=None)


def test_an_optimizer_without_a_learning_rate_needs_one_for_the_group():
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = None
    attachment = trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"], units="gradient"), lr=0.0)
    assert attachment.lr == 0.0


@pytest.mark.parametrize(
    "criterion",
    [
        trainonce.FixedLoss({"a": 1.0, "b": 2.0}),
        trainonce.CompositeLoss(["a", "b"]),
        trainonce.CompositeLoss(["a", "b"], units="gradient", signal="loss"),
    ],
    ids=["fixed", "raw", "units that the loss moves"],
)
def test_one_loop_gives_the_same_arguments_to_all_other_criteria(criterion):
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    attachment = trainonce.attach(optimizer, criterion, decay=2.0, lr=0.01, preset="softplus", coupled=True)
    assert attachment.lr == 0.01
