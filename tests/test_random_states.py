"""Random states: a resumed training draws what an uninterrupted one would."""

import json
import random
import textwrap

import numpy as np
import pytest
import torch
from _runs import torchrun

from trainonce import random_states


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
        model = torch.nn.Linear(1, 1)
        criterion, optimizer = trial.criterion(), torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(torchrun.rank())
        trial.attach(optimizer)
        drawn = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64), requires_grad=False)
        loop = trial.loop([model, torch.nn.ParameterList([drawn])])
        for done in loop:
            step = done + 1
            if done == 3:
                loop.snapshot()
            if step == break_at and loop.start == 0:
                raise ValueError("broken on purpose")
            optimizer.zero_grad()
            found = model(torch.ones(1, 1))
            criterion(fit=found.square().mean(), small=found.abs().mean()).backward()
            optimizer.step()
            both = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
            torch.distributed.all_gather(both, torch.rand(1, dtype=torch.float64))
            drawn += step * torch.cat(both)
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
