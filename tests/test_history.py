"""History: one exact row per real step, blocks without reads in between, a file that survives kills and full disks."""

import copy
import gc
import math
import random

import pytest
import torch
from _history_run import TERMS, Run, rows
from torch import nn

import trainonce
from trainonce import CompositeLoss, History, attach

# Numbers


def test_columns_equal_an_independent_recomputation():
    lr, momentum, rho = 0.05, 0.9, 0.7
    history = History()
    run = Run(history, dtype=torch.float64, lr=lr, momentum=momentum, decay=rho)
    schedule = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, gamma=0.99)
    used = []
    for _ in range(200):
        used.append(run.step())
        schedule.step()
    columns = history.columns()
    assert columns["step"] == list(range(1, 201))

    def close(column, t, value):
        assert columns[column][t] == pytest.approx(value, rel=1e-11, abs=1e-13), (column, t)

    mu, buffer = [math.log(0.5)] * 2, [0.0] * 2
    for t, losses in enumerate(used):
        rate = lr * 0.99**t
        ratios = [1.0, *map(math.exp, mu)]
        lam = [r / sum(ratios) for r in ratios]
        total = sum(w * losses[name] for w, name in zip(lam, TERMS, strict=True))
        mean = lam[1] * mu[0] + lam[2] * mu[1]
        close("lr", t, rate)
        for i, name in enumerate(TERMS):
            assert columns[f"loss/{name}"][t] == losses[name]
            close(f"coefficient/{name}", t, lam[i])
        for i, name in enumerate(TERMS[1:]):
            pull = lam[i + 1] * (mu[i] - mean) + 1 / (1 + math.exp(-mu[i]))
            buffer[i] = momentum * buffer[i] + lam[i + 1] * (losses[name] - total)
            close(f"exponent/{name}", t, mu[i])
            close(f"empirical/{name}", t, -rate * buffer[i])
            close(f"decay/{name}", t, -rate * rho * pull)
            mu[i] += -rate * buffer[i] - rate * rho * pull


def test_a_file_loads_back_bit_for_bit(tmp_path):
    for dtype in (torch.float32, torch.float64):
        history = History(tmp_path / f"{dtype}.jsonl", block=7)
        Run(history, dtype=dtype).steps(20)
        history.flush()
        assert History.load(history.path).columns() == history.columns()
        assert torch.equal(History.load(history.path).coefficients(), history.coefficients().double())
        assert len(History.load(history.path)) == len(history) == 20


# One row per real step


def test_accumulation_records_the_mean_of_the_micro_batches():
    history = History()
    run = Run(history, dtype=torch.float64)
    expected = []
    for _ in range(5):
        run.optimizer.zero_grad()
        micro = [run.backward() for _ in range(3)]
        run.optimizer.step()
        expected.append({name: sum(m[name] for m in micro) / 3 for name in TERMS})
    columns = history.columns()
    assert columns["step"] == [1, 2, 3, 4, 5]
    for name in TERMS:
        assert columns[f"loss/{name}"] == pytest.approx([e[name] for e in expected], rel=1e-15)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_grad_scaler_skips_leaves_no_row(fused):
    history = History(block=3)
    run = Run(history, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    exponents, losses = [], []
    for t in range(8):
        run.optimizer.zero_grad()
        values = run.losses()
        scaler.scale(run.criterion(values)).backward()
        before = run.criterion.exponents.detach().clone()
        if t in (2, 3, 6):
            run.model.weight.grad[0, 0] = math.inf
        else:
            exponents.append(before.tolist())
            losses.append([values[name].item() for name in TERMS])
        scaler.step(run.optimizer)
        scaler.update()
        assert torch.equal(before, run.criterion.exponents) == (t in (2, 3, 6))
    columns = history.columns()
    assert columns["step"] == [1, 2, 3, 4, 5]
    assert [list(mu) for mu in zip(columns["exponent/small"], columns["exponent/smooth"], strict=True)] == exponents
    assert [list(row) for row in zip(*(columns[f"loss/{n}"] for n in TERMS), strict=True)] == losses


def test_absent_terms_are_nan_for_that_term_only():
    history = History()
    run = Run(history, dtype=torch.float64)
    first, second = run.step(small=None), run.step()
    run.optimizer.zero_grad()
    micro = [run.backward(smooth=None), run.backward()]
    run.optimizer.step()
    columns = history.columns()
    assert columns["loss/fit"] == pytest.approx([first["fit"], second["fit"], (micro[0]["fit"] + micro[1]["fit"]) / 2])
    assert math.isnan(columns["loss/small"][0])
    assert columns["loss/small"][1:] == pytest.approx([second["small"], micro[0]["small"]], rel=1e-14)
    assert columns["loss/smooth"] == [first["smooth"], second["smooth"], micro[1]["smooth"]]
    assert all(map(math.isfinite, columns["coefficient/small"]))


def test_a_nan_loss_is_recorded_as_nan_and_the_file_stays_json(tmp_path):
    history = History(tmp_path / "run.jsonl")
    run = Run(history)
    run.step()
    run.step(smooth=run.model.weight.sum() * math.nan)
    run.step(fit=run.model.weight.sum() * math.inf)
    for columns in (history.columns(), History.load(history.path).columns()):
        assert math.isfinite(columns["loss/smooth"][0])
        assert math.isnan(columns["loss/smooth"][1])
        assert math.isfinite(columns["loss/fit"][1])
    assert rows(history.path)[1]["loss/smooth"] == "nan"


@pytest.mark.parametrize("lr", [0.05, torch.tensor(0.05)], ids=["number", "tensor"])
def test_a_step_that_moves_nothing_leaves_no_row_and_does_not_count(lr):
    history = History()
    run = Run(history, lr=lr)
    run.step()
    run.optimizer.zero_grad()
    run.optimizer.step()  # without a gradient
    run.criterion.exponents.grad = torch.zeros(2)  # torch.distributed.checkpoint makes its state like this
    rate, run.attachment.group["lr"] = run.attachment.group["lr"], 0.0 * lr
    run.optimizer.step()
    run.attachment.group["lr"] = rate
    run.step()
    assert history.columns()["step"] == [1, 2]
    assert run.attachment.steps == 2


OPTIMIZERS = {
    "momentum": lambda w: torch.optim.SGD([w], lr=0.005, momentum=0.9),
    "adam": lambda w: torch.optim.Adam([w], lr=0.05),
    "tensor lr": lambda w: torch.optim.Adam([w], lr=torch.tensor(0.05)),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(("set_to_none", "decay"), [(True, 0.0), (True, 2.0), (False, 2.0), ("never cleared", 2.0)])
def test_the_rows_add_up_to_the_movement_whatever_the_criterion_was_called_for(tmp_path, make, set_to_none, decay):
    for seed in range(4):
        rng, w = random.Random(seed), nn.Parameter(torch.ones(3, dtype=torch.float64))
        criterion, optimizer = CompositeLoss(["a", "b", "c"], decay=decay).double(), make(w)
        history = History(tmp_path / f"{seed}.jsonl", block=3)
        attach(optimizer, criterion, history=history)
        start, used = criterion.exponents.detach().clone(), []
        for _ in range(20):
            if set_to_none != "never cleared":
                optimizer.zero_grad(set_to_none=set_to_none)
            if rng.random() < 0.5:
                used.append(criterion.coefficients())
                criterion(a=(w**2).sum(), b=w.abs().sum(), c=(w - 2).abs().sum()).backward()
            else:
                (w**2).sum().backward()
            optimizer.step()
        end = criterion.exponents.detach()
        history.flush()
        for found in (history, History.load(history.path)):
            columns = found.columns()
            for i, name in enumerate("bc"):
                parts = [columns[f"empirical/{name}"], columns[f"decay/{name}"]]
                assert start[i] + sum(map(sum, parts)) == pytest.approx(end[i].item(), abs=1e-13)
                places = [*columns[f"exponent/{name}"], end[i].item()]
                for t, (e, d) in enumerate(zip(*parts, strict=True)):
                    assert places[t + 1] == pytest.approx(places[t] + e + d, abs=1e-14)
            assert torch.equal(found.coefficients(), torch.stack(used))  # what replay repeats, call by call
            called = [not math.isnan(v) for v in columns["loss/a"]]
            assert sum(called) == len(used)
            assert all(called) == (set_to_none is True)


def test_losses_from_before_attach_are_unknown_and_rows_carry_no_gradient():
    w, criterion, history = torch.nn.Parameter(torch.ones(1)), trainonce.CompositeLoss(["a", "b"]), History()
    optimizer = torch.optim.SGD([w], lr=0.1)
    criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    trainonce.attach(optimizer, criterion, history=history)
    optimizer.step()
    assert [math.isnan(history.columns()[f"loss/{name}"][0]) for name in "ab"] == [True, True]
    assert not history.coefficients().requires_grad


# Blocks


def test_a_forgotten_history_is_flushed(tmp_path):
    path = tmp_path / "run.jsonl"
    Run(History(path)).steps(5)
    gc.collect()
    assert [r["step"] for r in rows(path)] == [1, 2, 3, 4, 5]


def test_steps_inside_a_cuda_graph_are_refused(monkeypatch):
    run = Run(History())
    monkeypatch.setattr(trainonce.history, "is_capturing", lambda tensor: True)
    with pytest.raises(RuntimeError, match="inside a CUDA graph"):
        run.step()


def test_a_history_dropped_while_torch_traces_is_written(tmp_path):
    """The collector runs at any time, also inside torch.compile, where new tensors hold no values."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    run = Run(History(tmp_path / "h.jsonl"))
    run.step()
    with FakeTensorMode():
        run.criterion.attachment.history.__del__()
    assert len(History.load(tmp_path / "h.jsonl")) == 1


def test_one_history_for_one_criterion():
    history = History()
    run = Run(history)
    with pytest.raises(ValueError, match="records another criterion already"):
        Run(history)
    run.criterion.attachment.remove()
    Run(history)


def test_a_copy_writes_no_file(tmp_path):
    run = Run(History(tmp_path / "h.jsonl"))
    run.step()
    history = run.criterion.attachment.history
    copied = copy.deepcopy(history)
    assert copied.path is None
    assert copied.columns() == history.columns()
    del copied
    history.flush()
    assert len(History.load(tmp_path / "h.jsonl")) == 1


def test_attach_takes_a_path(tmp_path):
    run = Run(tmp_path / "h.jsonl")
    run.step()
    run.criterion.attachment.history.flush()
    assert len(History.load(tmp_path / "h.jsonl")) == 1
