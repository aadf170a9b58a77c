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
from _problem import Case, Result, plain

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
    assert found.exponents == pytest.approx(expected.exponents, rel=adapter.tolerance, abs=adapter.tolerance)
    assert found.model == pytest.approx(expected.model, rel=10 * adapter.tolerance, abs=10 * adapter.tolerance)


# The checks: each a sentence for the table


def same_as_the_plain_loop(adapter: Adapter, folder: Path) -> None:
    case = case_of(adapter)
    assert_same(adapter.train(folder, case), plain(case), adapter)


def accumulation(adapter: Adapter, folder: Path) -> None:
    case = case_of(adapter, accumulate=3, steps=4)
    assert_same(adapter.train(folder, case), plain(case), adapter)


def clipping_leaves_the_exponents_out(adapter: Adapter, folder: Path) -> None:
    case = case_of(adapter, clip=0.05)
    assert_same(adapter.train(folder, case), plain(case), adapter)


def schedules_reach_the_exponents(adapter: Adapter, folder: Path) -> None:
    case = case_of(adapter, schedule=True)
    assert_same(adapter.train(folder, case), plain(case), adapter)


def saved_and_resumed(adapter: Adapter, folder: Path) -> None:
    case = case_of(adapter)
    assert_same(adapter.interrupted(folder, case, after=3), plain(case), adapter)


def every_term_is_logged(adapter: Adapter, folder: Path) -> None:
    logged = adapter.train(folder, case_of(adapter)).logged
    wanted = {"loss/fit", "loss/even", "weight/fit", "weight/small", "exponent/small", "exponent/even", "reference"}
    assert wanted <= set(logged), set(logged)
    assert all(torch.tensor(values).isfinite().all() for values in logged.values())


def two_processes_match_one(adapter: Adapter, folder: Path) -> None:
    case = case_of(adapter)
    ranks = on_two_processes(adapter, folder, case)
    assert ranks[0].exponents == ranks[1].exponents
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
    same_as_the_plain_loop,
    accumulation,
    clipping_leaves_the_exponents_out,
    schedules_reach_the_exponents,
    saved_and_resumed,
    every_term_is_logged,
    two_processes_match_one,
    a_missing_package_gets_the_pip_line,
)


# Two processes


def on_two_processes(adapter: Adapter, folder: Path, case: Case) -> list[Result]:
    """The same training started by torchrun; each process writes what it ended with."""
    given = dataclasses.asdict(case) | {"dtype": str(case.dtype).removeprefix("torch.")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(HERE / "_worker.py"), adapter.module, str(folder), json.dumps(given)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return [Result(**json.loads((folder / f"rank{rank}.json").read_text())) for rank in range(2)]
