"""The checks that every adapter goes through. An adapter says how it trains the problem; all else is common."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from _problem import MOVING, RULES, TERMS, Case, Result, plain

HERE = Path(__file__).parent


class Adapter:
    """How one framework trains the problem. Subclasses live in ``_<name>.py`` as ``ADAPTER``."""

    name: str  # in the table
    module: str  # of this folder
    packages: tuple[str, ...]  # without which it cannot run
    extra: str  # of pip
    integration: str  # the module of trainonce.integrations
    dtype = torch.float32
    tolerance = 1e-6

    def train(self, folder: Path, case: Case) -> Result:
        """Train for the whole case; ``folder`` is for whatever the framework writes."""
        raise NotImplementedError

    def interrupted(self, folder: Path, case: Case, after: int) -> Result:
        """Train ``after`` steps, save as the framework saves, start anew from that with fresh objects, and finish."""
        raise NotImplementedError


def case_of(adapter: Adapter, **more: object) -> Case:
    return Case(dtype=adapter.dtype, **more)  # type: ignore[arg-type]


def assert_same(found: Result, expected: Result, adapter: Adapter) -> None:
    near = {"rel": 10 * adapter.tolerance, "abs": 10 * adapter.tolerance}
    assert found.coefficients == pytest.approx(expected.coefficients, **near)
    assert found.model == pytest.approx(expected.model, **near)


# The checks: each a sentence for the table


def every_rule_trains_as_in_the_plain_loop(adapter: Adapter, folder: Path) -> None:
    found = {}
    for rule in RULES:
        case = case_of(adapter, rule=rule)
        found[rule] = adapter.train(folder, case)
        assert_same(found[rule], plain(case), adapter)
    assert len({tuple(one.model) for one in found.values()}) > 2  # the rule had a say


def accumulation(adapter: Adapter, folder: Path) -> None:
    for rule in MOVING:
        case = case_of(adapter, rule=rule, accumulate=3, steps=4)
        assert_same(adapter.train(folder, case), plain(case), adapter)


def clipping_leaves_out_what_the_rule_trains(adapter: Adapter, folder: Path) -> None:
    for rule in MOVING:
        case = case_of(adapter, rule=rule, clip=0.05)
        assert_same(adapter.train(folder, case), plain(case), adapter)


def schedules_reach_what_the_rule_trains(adapter: Adapter, folder: Path) -> None:
    for rule in MOVING:
        case = case_of(adapter, rule=rule, schedule=True)
        assert_same(adapter.train(folder, case), plain(case), adapter)


def saved_and_resumed_bit_for_bit(adapter: Adapter, folder: Path) -> None:
    """In the middle of the rise of the terms, too."""
    for rule in (*MOVING, "Replay"):
        case = case_of(adapter, rule=rule, steps=12)
        whole, resumed = adapter.train(folder / "whole", case), adapter.interrupted(folder / rule, case, after=5)
        assert (resumed.coefficients, resumed.model) == (whole.coefficients, whole.model)


def evaluation_with_gradients_moves_nothing(adapter: Adapter, folder: Path) -> None:
    for rule in MOVING:
        case = case_of(adapter, rule=rule, evaluate=True)
        assert_same(adapter.train(folder, case), plain(case), adapter)


def every_term_is_logged(adapter: Adapter, folder: Path) -> None:
    for rule, more in zip(MOVING, ("exponent/even", "alignment/even", "log/even"), strict=True):
        case = case_of(adapter, rule=rule)
        found = adapter.train(folder, case)
        both = {f"{kind}/{term}" for kind in ("loss", "coefficient") for term in TERMS}
        assert both | {"ratio/small", more, "reference"} <= set(found.logged), set(found.logged)
        assert all(torch.tensor(values).isfinite().all() for values in found.logged.values())
        last = [found.logged[f"coefficient/{term}"][-1] for term in TERMS]
        assert last == pytest.approx(found.coefficients, rel=1e-5)


def two_processes_match_one(adapter: Adapter, folder: Path) -> None:
    for rule in MOVING:
        case = case_of(adapter, rule=rule)
        ranks = on_two_processes(f"{adapter.module}.ADAPTER.train", folder, case)
        assert ranks[0].coefficients == ranks[1].coefficients
        for found in ranks:
            assert_same(found, plain(case), adapter)


def a_missing_package_gets_the_pip_line(adapter: Adapter, folder: Path) -> None:
    hide = "; ".join(f"sys.modules[{package!r}] = None" for package in adapter.packages)
    code = f"import sys; {hide}; import trainonce.integrations.{adapter.integration}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: ")
    assert "pip install" in last
    assert f"trainonce[{adapter.extra}]" in last


CHECKS = (
    every_rule_trains_as_in_the_plain_loop,
    accumulation,
    clipping_leaves_out_what_the_rule_trains,
    schedules_reach_what_the_rule_trains,
    saved_and_resumed_bit_for_bit,
    evaluation_with_gradients_moves_nothing,
    every_term_is_logged,
    two_processes_match_one,
    a_missing_package_gets_the_pip_line,
)


# Two processes


def on_two_processes(train: str, folder: Path, case: Case) -> list[Result]:
    """Start a function of this folder, ``module.name``, by torchrun; each process writes what it returned."""
    given = dataclasses.asdict(case) | {"dtype": str(case.dtype).removeprefix("torch.")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(HERE / "_worker.py"), train, str(folder), json.dumps(given)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return [Result(**json.loads((folder / f"rank{rank}.json").read_text())) for rank in range(2)]
