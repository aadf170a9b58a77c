"""Random states: a resumed training draws what an uninterrupted one would."""

import json
import random
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from _runs import study, torchrun

from trainonce import random_states
from trainonce.study import task


@task(terms=["fit", "small"], metric="error", direction="minimize")
def drawing(trial, *, steps=10, stop="", keep=True, early=True):
    """Dropout, and orders from numpy and Python; the model is built after ``restore``, or before it."""
    saved = trial.restore() if early else None
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)).to(trial.device)
    saved = saved if early else trial.restore()
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trial.attach(optimizer)
    parts = {"model": model, "criterion": criterion, "optimizer": optimizer}
    if saved is not None:
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    data, orders = torch.arange(32.0, device=trial.device).reshape(8, 4) / 32, []
    for step in range(1 + (saved["step"] if saved else 0), steps + 1):
        if step == 7 and stop and not Path(stop).exists():
            Path(stop).touch()
            raise RuntimeError("stopped")
        order = np.random.permutation(8)[:4].tolist() + random.sample(range(8), 4)
        orders.append(order)
        optimizer.zero_grad()
        found = model(data[order] + 0.1 * torch.randn(8, 4, device=trial.device))
        criterion(fit=(found - 1).square().mean(), small=found.square().mean()).backward()
        optimizer.step()
        if step % 3 == 0:
            trial.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, random=keep)
    values = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    return {"validation/error": found.mean(), "test/error": sum(values)} | {f"p{i}": v for i, v in enumerate(values)}


def train(out, device="cpu", **settings):
    made = study(out, drawing, plans=["yoto"], seeds=1, **settings)
    made.run(workers=0, show=False, device=device)
    (record,) = made.store.read().values()
    return record


def resume(tmp_path, **settings):
    """The same training in one go, and stopped and resumed."""
    stop = str(tmp_path / "stop")
    straight = train(tmp_path / "a", **settings)
    assert train(tmp_path / "b", stop=stop, **settings).status == "failed"
    return straight, train(tmp_path / "b", stop=stop, **settings)


@pytest.mark.parametrize("early", [True, False])
def test_a_resumed_training_is_the_same_bit_for_bit(tmp_path, early, capsys):
    straight, resumed = resume(tmp_path, early=early)
    assert resumed.status == "done"
    assert resumed.metrics == straight.metrics
    assert resumed.coefficients == straight.coefficients


def test_random_states_are_left_alone_if_told_so(tmp_path, capsys):
    straight, resumed = resume(tmp_path, keep=False)
    assert resumed.status == "done"
    assert resumed.metrics != straight.metrics


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_training_on_a_gpu_is_resumed_with_its_random_state(tmp_path, capsys):
    straight, resumed = resume(tmp_path, device="cuda")
    assert resumed.metrics == straight.metrics


def draws():
    return torch.rand(3).tolist(), random.random(), random.gauss(0, 1), np.random.rand(3).tolist(), np.random.randn()


def test_what_is_put_back_draws_the_same_numbers(tmp_path):
    random_states.seed_everything(5)
    draws()  # an odd number of normal ones, of which the second is kept for later
    torch.save(random_states.collect(torch.device("cpu")), tmp_path / "states")
    expected = [draws(), draws()]
    random_states.put_back(torch.load(tmp_path / "states", weights_only=True), torch.device("cpu"))
    assert [draws(), draws()] == expected


RANKS = textwrap.dedent("""
    import os
    import torch
    from trainonce.study import torchrun, task

    @task(terms=["fit", "small"], metric="error", direction="minimize")
    def ranks(trial, *, steps=6, break_at=0):
        saved = trial.restore()
        model = torch.nn.Linear(1, 1)
        criterion, optimizer = trial.criterion(), torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(torchrun.rank())
        trial.attach(optimizer)
        drawn = torch.zeros(2, dtype=torch.float64)
        if saved is not None:
            drawn = saved["drawn"]
        for step in range(1 + (saved["step"] if saved else 0), steps + 1):
            if step == break_at and saved is None:
                raise ValueError("broken on purpose")
            optimizer.zero_grad()
            found = model(torch.ones(1, 1))
            criterion(fit=found.square().mean(), small=found.abs().mean()).backward()
            optimizer.step()
            both = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
            torch.distributed.all_gather(both, torch.rand(1, dtype=torch.float64))
            drawn = drawn + step * torch.cat(both)
            if step % 3 == 0:
                trial.save({"step": step, "drawn": drawn})
        return {"validation/error": drawn[0].item(), "test/error": drawn[1].item()}
""")


@pytest.mark.dist
def test_each_process_of_torchrun_goes_on_with_its_own_random_state(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    command = ("run", "ranks.py", "--out", "out", "--set", "break_at=5")
    torchrun(tmp_path, *command, code=1)
    torchrun(tmp_path, *command)
    last = json.loads((tmp_path / "out" / "trials.jsonl").read_text().splitlines()[-1])
    for rank, name in enumerate(["validation/error", "test/error"]):
        generator = torch.Generator().manual_seed(rank)
        numbers = [torch.rand(1, dtype=torch.float64, generator=generator).item() for _ in range(6)]
        expected = sum(step * value for step, value in enumerate(numbers, start=1))
        assert last["metrics"][name] == pytest.approx(expected, abs=1e-12)
