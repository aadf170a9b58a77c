"""The peers are TorchJD's own: the same weights, step by step, as a loop written with TorchJD."""

import inspect

import _tasks
import pytest
import torch
import torchjd.scalarization as torchjd

import trainonce
from trainonce.study.weightings.peer_loss import PeerLoss
from trainonce.study.weightings.peer_names import LEFT_OUT, PEERS
from trainonce.study.weightings.peers import Peer

TERMS = ("a", "b", "c")


def losses(w, step):
    target = torch.tensor([1.0, 2.0, 3.0]) * (1 + 0.1 * (step % 4))
    return (w * torch.tensor([3.0, 1.0, 0.3]) - target).square() + 0.05


def ours(method, steps, tmp_path, settings=None, epoch=None, optimizer=torch.optim.SGD, **options):
    w = torch.nn.Parameter(torch.zeros(3))
    weighting = Peer(method, settings or {}, epoch)
    criterion = weighting.criterion(TERMS, 1.0, "propagate", None)
    made = optimizer([w], lr=0.02, **options)
    history = trainonce.History(tmp_path / "history.jsonl")
    weighting.attach(made, criterion, history, steps)
    for step in range(steps):
        made.zero_grad()
        criterion(dict(zip(TERMS, losses(w, step), strict=True))).backward()
        made.step()
    return w.detach(), criterion, history, made


def by_hand(method, steps, epoch=10**9, **settings):
    """TorchJD as its documentation shows it, with SGD; FAMO gets the next batch's losses."""
    w = torch.nn.Parameter(torch.zeros(3))
    make = getattr(torchjd, PEERS[method].scalarizer)
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
    w, criterion, _, _ = ours(method, steps, tmp_path, epoch=epoch)
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
    weights = history.weights()
    torch.testing.assert_close(weights.sum(1), torch.ones(200, dtype=weights.dtype))
    torch.testing.assert_close(weights.mean(0), torch.full((3,), 1 / 3, dtype=weights.dtype), rtol=0, atol=0.05)
    assert weights.std(0).min() > 0.1


@pytest.mark.parametrize("method", ["famo", "dwa"])
def test_micro_batches_and_skipped_steps_do_not_count_as_steps(method):
    weighting = Peer(method, {}, 2 if method == "dwa" else None)
    criterion = weighting.criterion(TERMS, 1.0, "propagate", None)
    calls = []
    name = "update" if method == "famo" else "step"
    setattr(criterion.scalarizer, name, lambda *_: calls.append(1))
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([w], lr=0.02)
    weighting.attach(optimizer, criterion, trainonce.History(), 10)
    for _ in range(10):
        for _ in range(4):
            criterion(dict(zip(TERMS, losses(w, 0), strict=True))).backward()
        optimizer.step()
        criterion._after_step(torch.ones(1))  # as a step that GradScaler skips
    assert len(calls) == (9 if method == "famo" else 5)


def test_the_recorded_weights_are_the_gradient_of_the_scalar(tmp_path):
    _, criterion, history, _ = ours("uw", 20, tmp_path)
    factor = 0.5 * torch.exp(-criterion.scalarizer.log_var.detach())
    last = history.weights()[-1]
    assert last.sum().item() == pytest.approx(1)
    torch.testing.assert_close(last.float(), factor / factor.sum(), rtol=0.05, atol=0)  # one step apart
    assert (history.weights()[0] - 1 / 3).abs().max() < 1e-6
    assert history.columns()["loss/a"][0] == pytest.approx(1.05)


def test_weights_that_end_as_nan_are_noted(tmp_path):
    from trainonce.study import Study
    from trainonce.study.store import Store

    Study(_tasks.vanishing, tmp_path, seeds=1).add("geometric").run(workers=0, device="cpu", show=False)
    (record,) = Store(tmp_path).read_all()
    assert any("not finite at the end" in text for text in record.warnings)


def test_settings_reach_torchjd(tmp_path):
    w, *_ = ours("dwa", 30, tmp_path, {"temperature": 0.1}, epoch=5)
    torch.testing.assert_close(w, by_hand("dwa", 30, epoch=5, temperature=0.1)[0])
    assert not torch.allclose(w, by_hand("dwa", 30, epoch=5)[0])


def test_learned_parameters_of_a_peer_are_not_decayed(tmp_path):
    *_, optimizer = ours("uw", 3, tmp_path, optimizer=torch.optim.AdamW, weight_decay=0.5)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0, 0.0]


def test_dwa_has_epochs_where_none_is_given(tmp_path):
    _, criterion, *_ = ours("dwa", 60, tmp_path)
    assert criterion.epoch == 3
    assert len(criterion.scalarizer._previous_averages) == 2


def test_a_batch_without_a_term_is_refused():
    criterion = Peer("uw").criterion(TERMS, 1.0, "propagate", None)
    one = torch.ones((), requires_grad=True)
    with pytest.raises(ValueError, match="UW has no rule for a batch without some of its terms"):
        criterion(a=one, b=one, c=None)


def test_a_loss_that_is_not_finite_stops_a_task_that_asked_for_it():
    criterion = Peer("uw").criterion(TERMS, 1.0, "raise", None)
    one = torch.ones((), requires_grad=True)
    with pytest.raises(FloatingPointError, match="'b' are not finite"):
        criterion(a=one, b=one * float("nan"), c=one)


def test_evaluation_without_gradients_leaves_the_method_alone():
    criterion = Peer("famo").criterion(TERMS, 1.0, "propagate", None)
    with torch.no_grad():
        value = criterion(torch.tensor([1.0, 2.0, 3.0]))
    assert value.item() == pytest.approx(2.0)
    assert criterion.scalarizer._prev_losses is None


def test_every_scalarizer_is_a_plan_or_left_out_with_a_reason():
    known = set(torchjd.__all__) - {"Scalarizer"}
    used = {peer.scalarizer for peer in PEERS.values()}
    assert used | set(LEFT_OUT) == known
    assert not used & set(LEFT_OUT)
    assert issubclass(PeerLoss, trainonce.CompositeLoss)
