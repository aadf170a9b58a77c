"""Small trainings whose numbers must stay as they are: golden.json holds them.

``python tests/_golden_runs.py [PART OF A NAME ...]`` records anew those whose name holds one of the parts, or all. A
change that is meant to move them does so in its own commit, and says why.
"""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")  # before torch: as in conftest.py

import dataclasses
import json
import math
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

GOLDEN = Path(__file__).with_name("golden.json")
TERMS = ("fit", "far", "size", "bend")
STEPS = 60
READ = (0, 1, 9, 29, 35, 44, 46, 59)  # the steps at whose call the coefficients are noted
BATCH = 8


class Rules:
    """How a rule is made, attached and read. What was recorded first came from other rules with these three methods."""

    def paper(self, optimizer: Any, terms: Any, dtype: torch.dtype, **settings: Any) -> Any:
        rate = {} if "travel" in settings else {"lr": "model"}
        criterion = trainonce.CompositeLoss(terms, **{"init": 0.1, "decay": 2.0} | rate | settings).to(dtype)
        trainonce.attach(optimizer, criterion)
        return criterion

    def balance(self, optimizer: Any, terms: Any, dtype: torch.dtype, **settings: Any) -> Any:
        """From nothing, with a coefficient of the base of 1 / (K + 1): a power of two here, so scaling is exact."""
        criterion = trainonce.BalancedLoss(terms, scale=1 / len(terms), **settings).to(dtype)
        trainonce.attach(optimizer, criterion)
        return criterion

    def read(self, criterion: Any) -> dict[str, Tensor]:
        """The coefficients, and what training has moved: exponents or alignment."""
        found = {"coefficients": criterion.coefficients()}
        if isinstance(criterion, trainonce.CompositeLoss):
            found["exponents"] = criterion.exponents.detach().clone()
        elif criterion.validation is not None:
            logged = criterion.log_dict()
            found["alignment"] = torch.stack([logged[f"alignment/{term}"] for term in criterion.terms[1:]])
        return found


class Net(nn.Module):
    """A body of two layers that all terms share, and a head for each of two targets; it returns the losses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh())
        self.head, self.other = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        features = self.body(x)
        out, other = self.head(features), self.other(features)
        return {
            "fit": (out - y).square().mean(),
            "far": 5 * (other - y.square()).abs().mean(),
            "size": 0.2 * features.square().mean(),
            "bend": 2 * (out + other).pow(4).mean(),
        }


def batch(number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A batch; on one of several ranks its part of it, of which the second is larger."""
    x = torch.randn(BATCH, 3, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    x[BATCH // 2 :] *= 1.5
    y = x.sum(1, keepdim=True).sin()
    if dist.is_initialized():
        part = slice(dist.get_rank() * BATCH // 2, (dist.get_rank() + 1) * BATCH // 2)
        x, y = x[part], y[part]
    return x.to(dtype), y.to(dtype)


# Which terms some batches lack


def complete(step: int) -> tuple[str, ...]:
    return ()


def some(step: int) -> tuple[str, ...]:
    return {3: ("far", "bend"), 5: ("fit",)}.get(step % 7, ())


def everything(step: int) -> tuple[str, ...]:
    return TERMS if step % 10 == 4 else some(step)


def until(first: int, term: str, step: int) -> tuple[str, ...]:
    """The term is there from step ``first`` on."""
    return (term,) if step < first else ()


@dataclasses.dataclass(frozen=True)
class Run:
    rule: str  # a method of Rules
    optimizer: Callable[..., torch.optim.Optimizer]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    terms: int = 4
    cosine: bool = False
    micro: int = 1  # batches a step
    lacks: Callable[[int], tuple[str, ...]] = complete
    freeze: tuple[int, int] | None = None  # the step before which it freezes, and that before which it goes on
    validation: bool = False
    closure: bool = False
    scaler: bool = False  # GradScaler, with an infinite loss at step 20
    ranks: bool = False
    dtype: torch.dtype = torch.float32


class Training:
    def __init__(self, run: Run, rules: Any = None) -> None:
        self.run, self.rules = run, rules or Rules()
        self.net = Net().to(run.dtype)
        self.model = DistributedDataParallel(self.net) if dist.is_initialized() else self.net
        self.optimizer = run.optimizer(self.net.parameters())
        settings = dict(run.settings)
        if run.validation:
            x, y = batch(1000, run.dtype)
            settings["validation"] = lambda: self.net(x, y)["fit"]
        make = getattr(self.rules, run.rule)
        self.criterion = make(self.optimizer, TERMS[: run.terms], run.dtype, **settings)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR
        self.scheduler = schedule(self.optimizer, STEPS) if run.cosine else None
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10) if run.scaler else None
        self.noted: dict[int, dict[str, Tensor]] = {}
        self.loss = math.nan

    def train(self, steps: Iterable[int] = range(STEPS)) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", trainonce.health.HealthWarning)
            for step in steps:
                self._step(step)
        return self.result()

    def _step(self, step: int) -> None:
        if self.run.freeze is not None:
            first, end = self.run.freeze
            if step == first:
                self.criterion.freeze()
            if step == end:
                self.criterion.unfreeze()
        if self.run.closure:
            self.optimizer.step(lambda: self._gradients(step))
        elif self.scaler is not None:
            self._gradients(step)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self._gradients(step)
            self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()

    def _gradients(self, step: int) -> Tensor:
        self.optimizer.zero_grad()
        lacks = self.run.lacks(step)
        for part in range(self.run.micro):
            losses = self.model(*batch(self.run.micro * step + part, self.run.dtype))
            losses = {name: None if name in lacks else losses[name] for name in TERMS[: self.run.terms]}
            if self.scaler is not None and step == 20:
                losses["far"] = losses["far"] * math.inf
            total = self.criterion(losses)
            mean = total / self.run.micro
            (mean if self.scaler is None else self.scaler.scale(mean)).backward()
        if step in READ:
            self.noted[step] = self.rules.read(self.criterion)
        self.loss = total.item()
        return total

    def result(self) -> dict[str, Any]:
        """Numbers that JSON holds; those of float32 have the digits that give the same float32 back."""
        found: dict[str, Any] = {"loss": [self.loss]}
        found["model"] = [p.detach().flatten()[-1].item() for p in self.net.parameters()]
        for step, values in self.noted.items():
            found |= {f"{name} {step}": value.tolist() for name, value in values.items()}
        if self.run.rule == "paper":
            found["exponents end"] = self.criterion.exponents.tolist()
        digits = 9 if self.run.dtype == torch.float32 else 17
        return {name: [float(f"{value:.{digits}g}") for value in values] for name, values in found.items()}

    def states(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self._parts()]

    def load(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self._parts(), states, strict=True):
            part.load_state_dict(state)

    def _parts(self) -> list[Any]:
        parts = (self.net, self.optimizer, self.criterion, self.scheduler, self.scaler)
        return [part for part in parts if part is not None]


def numbers(name: str, rules: Any = None) -> dict[str, Any]:
    """The numbers of a run, on a rank as in one process."""
    return Training(RUNS[name], rules).train()


SGDW = partial(trainonce.SGDW, lr=0.05, momentum=0.9, weight_decay=0.01)
SGD = partial(torch.optim.SGD, lr=0.05)
NESTEROV = partial(torch.optim.SGD, lr=0.03, momentum=0.9, nesterov=True)
ADAM = partial(torch.optim.Adam, lr=0.02, foreach=True)
ADAMW = partial(torch.optim.AdamW, lr=0.02, weight_decay=0.1)
OPTIMIZERS = {"AdamW": ADAMW, "Adam foreach": ADAM, "SGD nesterov": NESTEROV}

PAPER = {
    "SGDW, 2 terms": Run("paper", SGDW, cosine=True, terms=2),
    "SGDW, 4 terms": Run("paper", SGDW, cosine=True),
    "SGDW, float64": Run("paper", SGDW, cosine=True, dtype=torch.float64),
    "SGDW, softplus, 2 terms": Run("paper", SGDW, {"regularizer": ("softplus",)}, cosine=True, terms=2),
    "SGDW, softplus, 4 terms": Run("paper", SGDW, {"regularizer": ("softplus",)}, cosine=True),
    "SGDW, own lr": Run("paper", SGDW, {"lr": 0.02}, cosine=True),
    "SGDW, init of each": Run("paper", SGDW, {"init": {"far": 0.02, "size": 3.0, "bend": 0.5}}, cosine=True),
    "SGDW, scale": Run("paper", partial(SGDW, lr=0.005), {"scale": 11.0, "lr": 0.02}, cosine=True),
    **{name: Run("paper", optimizer) for name, optimizer in OPTIMIZERS.items()},
    **{f"{name}, accumulation": Run("paper", optimizer, micro=3) for name, optimizer in OPTIMIZERS.items()},
    **{f"{name}, absent terms": Run("paper", optimizer, lacks=some) for name, optimizer in OPTIMIZERS.items()},
    "AdamW, empty batches": Run("paper", ADAMW, lacks=everything),
    # Without momentum first: what momentum does while frozen is a matter of its own.
    "SGD, freeze": Run("paper", SGD, freeze=(30, 45)),
    **{f"{name}, freeze": Run("paper", optimizer, freeze=(30, 45)) for name, optimizer in OPTIMIZERS.items()},
    "SGDW, GradScaler": Run("paper", SGDW, scaler=True),
    "AdamW fused, GradScaler": Run("paper", partial(ADAMW, fused=True), scaler=True),
    "SGD, closure": Run("paper", partial(SGD, momentum=0.9, lr=0.03), closure=True),
    "SGDW, two ranks": Run("paper", SGDW, cosine=True, ranks=True),
    "AdamW, two ranks, accumulation": Run("paper", ADAMW, micro=3, ranks=True),
}
BALANCE = {
    "SGD, 2 terms": Run("balance", SGD, terms=2),
    "SGD, 4 terms": Run("balance", SGD),
    "AdamW, 2 terms": Run("balance", ADAMW, terms=2),
    "AdamW, 4 terms": Run("balance", ADAMW),
    "SGD, float64": Run("balance", SGD, dtype=torch.float64),
    "SGD, accumulation": Run("balance", SGD, micro=3),
    "AdamW, accumulation": Run("balance", ADAMW, micro=3),
    "SGD, at the last layer": Run("balance", SGD, {"at": "last"}),
    "SGD, absent terms": Run("balance", SGD, lacks=some),
    "AdamW, absent terms": Run("balance", ADAMW, lacks=some),
    "AdamW, absent terms, 2 terms": Run("balance", ADAMW, lacks=some, terms=2),
    "SGD, a term from step 5 on": Run("balance", SGD, lacks=partial(until, 5, "size")),
    "SGD, a term from step 36 on": Run("balance", SGD, lacks=partial(until, 36, "size")),  # no step that measures
    "SGD, freeze": Run("balance", SGD, freeze=(30, 45)),
    "AdamW, freeze": Run("balance", ADAMW, freeze=(30, 45)),
}
ALIGNED = {
    "SGD, 2 terms": Run("balance", SGD, {"steps": STEPS}, terms=2, validation=True),
    "SGD, 4 terms": Run("balance", SGD, {"steps": STEPS}, validation=True),
    "SGD, float64": Run("balance", SGD, {"steps": STEPS}, validation=True, dtype=torch.float64),
    "AdamW, 4 terms": Run("balance", ADAMW, {"steps": STEPS}, validation=True),
    "AdamW, steps unknown, 2 terms": Run("balance", ADAMW, terms=2, validation=True),
    "AdamW, steps unknown": Run("balance", ADAMW, validation=True),
    "SGD, accumulation": Run("balance", SGD, {"steps": STEPS}, micro=3, validation=True),
}
PACED = {
    "SGDW, 4 terms": Run("paper", SGDW, {"travel": 0.2}, cosine=True),
    "AdamW, absent terms": Run("paper", ADAMW, {"travel": 0.2}, lacks=some),
    "SGD, freeze": Run("paper", SGD, {"travel": 0.2}, freeze=(30, 45)),
    "AdamW fused, GradScaler": Run("paper", partial(ADAMW, fused=True), {"travel": 0.2}, scaler=True),
    "SGD, accumulation": Run("paper", SGD, {"travel": 0.2}, micro=3),
    "SGDW, two ranks": Run("paper", SGDW, {"travel": 0.2}, cosine=True, ranks=True),
}
RUNS: dict[str, Run] = {
    f"{group}: {name}": run
    for group, runs in {"paper": PAPER, "paced": PACED, "balance": BALANCE, "aligned": ALIGNED}.items()
    for name, run in runs.items()
}


def record(parts: Iterable[str] = (), run: Callable[[str], dict[str, Any]] = numbers) -> None:
    """Write the numbers of the runs whose name holds one of the parts to golden.json, and keep the others."""
    from _two_ranks import TwoRanks

    parts = tuple(parts) or ("",)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    with TwoRanks() as ranks:
        for name in [name for name in RUNS if any(part in name for part in parts)]:
            golden[name] = ranks(run, name)[0] if RUNS[name].ranks else run(name)
    lines = ",\n".join(f"{json.dumps(name)}: {_lines(golden[name])}" for name in RUNS)
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")


def _lines(values: dict[str, list[float]]) -> str:
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in values.items()) + "\n}"


if __name__ == "__main__":
    import _golden_runs  # under this name the ranks find it, too

    _golden_runs.record(sys.argv[1:])
