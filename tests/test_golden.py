"""Both rules give the numbers that were recorded, and give them again when a run is interrupted."""

from __future__ import annotations

import io
import json
import os

import pytest
import torch
import torch.distributed as dist
from _golden_runs import GOLDEN, RUNS, STEPS, Training, numbers

RECORDED = json.loads(GOLDEN.read_text())
ALONE = [name for name, run in RUNS.items() if not run.ranks]
ON_RANKS = [name for name, run in RUNS.items() if run.ranks]
RESUMED = [
    "paper: SGDW, 4 terms",
    "paper: AdamW, absent terms",
    "paper: SGDW, GradScaler",
    "paced: SGDW, 4 terms",
    "paced: AdamW fused, GradScaler",
    "balance: AdamW, 4 terms",
    "balance: SGD, absent terms",
    "aligned: SGD, 4 terms",
    "aligned: AdamW, steps unknown",
]

# Other CPUs round differently: to the last bit on the machine that recorded, elsewhere as close as rounding allows.
EXACT = os.environ.get("TRAINONCE_EXACT") == "1"
CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.float64: {"rtol": 1e-12, "atol": 1e-12}}


def assert_as_recorded(name: str, found: dict[str, list[float]]) -> None:
    expected, dtype = RECORDED[name], RUNS[name].dtype
    assert found.keys() == expected.keys()
    if EXACT:
        assert found == expected
    for key in expected:
        pair = (torch.tensor(values, dtype=torch.float64) for values in (found[key], expected[key]))
        torch.testing.assert_close(*pair, **CLOSE[dtype], msg=lambda text, key=key: f"{key}: {text}")


def test_every_run_is_recorded() -> None:
    assert list(RECORDED) == list(RUNS)


@pytest.mark.parametrize("name", ALONE)
def test_as_recorded(name: str) -> None:
    assert_as_recorded(name, numbers(name))


@pytest.mark.dist
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("name", ON_RANKS)
def test_as_recorded_on_two_ranks(ranks, name: str) -> None:
    first, second = ranks(numbers, name)
    assert first | {"loss": second["loss"]} == second  # each has losses of its own, and the same weights
    assert_as_recorded(name, first)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_is_the_same(name: str) -> None:
    whole = Training(RUNS[name]).train()
    before, file = Training(RUNS[name]), io.BytesIO()
    before.train(range(STEPS // 2))
    torch.save(before.states(), file)
    after = Training(RUNS[name])
    file.seek(0)
    after.load(torch.load(file))
    found = after.train(range(STEPS // 2, STEPS))
    assert f"coefficients {STEPS - 1}" in found
    assert found == {key: values for key, values in whole.items() if key in found}
