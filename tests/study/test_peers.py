"""The peers are TorchJD's own: the same weights, step by step, as a loop written with TorchJD."""

import inspect

import _tasks
import pytest
import torch
import torchjd.scalarization as torchjd

import trainonce
from trainonce.study.peer_loss import PeerLoss
from trainonce.study.peers import LEFT_OUT, PEERS
from trainonce.study.rules import make

TERMS = ("a", "b", "c")


def losses(w, step):
    target = torch.tensor([1.0, 2.0, 3.0]) * (1 + 0.1 * (step % 4))
    return (w * torch.tensor([3.0, 1.0, 0.3]) - target).square() + 0.05


def criterion_of(method, nonfinite="propagate", steps=None, **settings):
    return make(method, settings).build(TERMS, nonfinite=nonfinite, steps=steps)


def ours(method, steps, tmp_path, optimizer=torch.optim.SGD, settings=None, **options):
    w = torch.nn.Parameter(torch.zeros(3))
    rule = make(method, settings or {})
    criterion = rule.build(TERMS, steps=steps)
    made = optimizer([w], lr=0.02, **options)
    history = trainonce.History(tmp_path / "history.jsonl")
    rule.attach(made, criterion, history)
    for step in range(steps):
        made.zero_grad()
        criterion(dict(zip(TERMS, losses(w, step), strict=True))).backward()
        made.step()
    return w.detach(), criterion, history, made


def by_hand(method, steps, epoch=10**9, **settings):
    """TorchJD as its documentation shows it, with SGD; FAMO gets the next batch's losses."""
    w = torch.nn.Parameter(torch.zeros(3))
    make = getattr(torchjd, PEERS[method])
    scalarizer = make(3, **settings) if "shape" in inspect.signature(make).parameters else make(**settings)
    learned = list(scalarizer.parameters()) if method in ("uw", "imtl-l") else []
    optimizer = torch.optim.SGD([w, *learned], lr=0.02)
    for step in range(steps):
        values = losses(w, step)
        if method == "famo" and step:
            scalarizer.update(values.detach())
        optimizer.zero_grad()
        scalarizer(values).backward()
        optimizer.step()
        if (step + 1) % epoch == 0:
            scalarizer.step()
    return w.detach(), scalarizer


@pytest.mark.parametrize("method", [name for name in PEERS if name != "random-weights"])
def test_the_model_goes_where_torchjd_takes_it(method, tmp_path):
    steps = 30
    epoch = 5 if method == "dwa" else None
    torch.manual_seed(1)
    w, criterion, _, _ = ours(method, steps, tmp_path, settings={"epoch": epoch} if epoch else {})
    torch.manual_seed(1)
    expected, scalarizer = by_hand(method, steps, **{"epoch": epoch} if epoch else {})
    torch.testing.assert_close(w, expected, rtol=1e-6, atol=1e-7)
    for a, b in zip(criterion.scalarizer.parameters(), scalarizer.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert w.abs().max() > 0.1


def test_random_weights_are_torchjds_from_a_state_of_their_own(tmp_path):
    state = torch.get_rng_state()
    _, _, history, _ = ours("random-weights", 200, tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    weights = history.coefficients()
    torch.testing.assert_close(weights.sum(1), torch.ones(200, dtype=weights.dtype))
    torch.testing.assert_close(weights.mean(0), torch.full((3,), 1 / 3, dtype=weights.dtype), rtol=0, atol=0.05)
    assert weights.std(0).min() > 0.1


@pytest.mark.parametrize(("method", "settings", "count"), [("famo", {}, 9), ("dwa", {"epoch": 2}, 5)])
def test_micro_batches_and_skipped_steps_do_not_count_as_steps(method, settings, count):
    rule = make(method, settings)
    criterion = rule.build(TERMS, steps=10)
    calls = []
    setattr(criterion.scalarizer, "update" if method == "famo" else "step", lambda *_: calls.append(1))
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([w], lr=0.02)
    rule.attach(optimizer, criterion, trainonce.History())
    for _ in range(10):
        for _ in range(4):
            criterion(dict(zip(TERMS, losses(w, 0), strict=True))).backward()
        optimizer.step()
        criterion.after_step(torch.ones(1))  # as a step that GradScaler skips
    assert len(calls) == count


def test_the_coefficients_are_the_gradient_of_the_scalar(tmp_path):
    _, criterion, history, _ = ours("uw", 20, tmp_path)
    factor = 0.5 * torch.exp(-criterion.scalarizer.log_var.detach())
    rows = history.coefficients()
    torch.testing.assert_close(rows[-1].float(), factor, rtol=0.05, atol=0)  # one step apart
    assert rows[0].tolist() == [0.5, 0.5, 0.5]
    assert history.columns()["loss/a"][0] == pytest.approx(1.05)


@pytest.mark.parametrize("method", PEERS)
def test_the_coefficients_include_the_scale_and_nothing_of_what_is_around_the_loss(method):
    found = []
    for scale, around in ((1.0, 1.0), (3.0, 8.0)):
        torch.manual_seed(0)
        criterion, w = make(method).build(TERMS, scale=scale), torch.nn.Parameter(torch.zeros(3))
        values = losses(w, 1)
        (around * criterion(list(values))).backward()
        coefficients = criterion.coefficients()
        (expected,) = torch.autograd.grad((coefficients * losses(w, 1)).sum(), w)
        torch.testing.assert_close(w.grad, around * expected)
        found.append(coefficients)
    torch.testing.assert_close(found[1], 3 * found[0])


def test_weights_that_end_as_nan_are_noted(tmp_path):
    from trainonce.study import Study
    from trainonce.study.store import Store

    Study(_tasks.vanishing, tmp_path, seeds=1).add("geometric").run(workers=0, device="cpu", show=False)
    (record,) = Store(tmp_path).read_all()
    assert any("not finite at the end" in text for text in record.warnings)


def test_settings_reach_torchjd(tmp_path):
    w, *_ = ours("dwa", 30, tmp_path, settings={"temperature": 0.1, "epoch": 5})
    torch.testing.assert_close(w, by_hand("dwa", 30, epoch=5, temperature=0.1)[0])
    assert not torch.allclose(w, by_hand("dwa", 30, epoch=5)[0])


def test_dwa_has_epochs_where_none_is_given(tmp_path):
    _, criterion, *_ = ours("dwa", 60, tmp_path)
    assert criterion.epoch == 3
    assert len(criterion.scalarizer._previous_averages) == 2


def test_a_batch_without_a_term_is_refused():
    one = torch.ones((), requires_grad=True)
    with pytest.raises(ValueError, match="UW has no rule for a batch without some of its terms"):
        criterion_of("uw")(a=one, b=one, c=None)
    with pytest.raises(FloatingPointError, match="'b' are not finite"):
        criterion_of("uw", "raise")(a=one, b=one * float("nan"), c=one)


@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_evaluation_leaves_the_method_alone(how):
    criterion = criterion_of("famo").train(how != "eval")
    with torch.set_grad_enabled(how == "eval"):
        value = criterion(torch.tensor([1.0, 2.0, 3.0], requires_grad=True))
    assert value.item() == pytest.approx(2.0)
    assert criterion.scalarizer._prev_losses is None


def test_every_scalarizer_is_a_plan_or_left_out_with_a_reason():
    known = set(torchjd.__all__) - {"Scalarizer"}
    used = set(PEERS.values())
    assert used | set(LEFT_OUT) == known
    assert not used & set(LEFT_OUT)
    assert issubclass(PeerLoss, trainonce.LossWeighting)
