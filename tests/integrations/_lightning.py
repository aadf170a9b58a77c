"""Lightning, in double precision. An epoch is one step of the optimizer, so that a run can stop between any two."""

from __future__ import annotations

import contextlib
import csv
import warnings
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from _problem import BATCH, Case, Net, Result, criterion, data, evaluate, falling, optimizer, result, terms
from _tester import Adapter
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, distributed
from torch.utils.data import DataLoader, Subset

from trainonce.integrations.lightning import LossWeights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainonce import LossWeighting


class Problem(L.LightningModule):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.net, self.criterion = case, Net(case.dtype), criterion(case)

    def chosen(self) -> LossWeighting:
        return self.criterion

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        x, y = batch
        return self.chosen()(terms(self.net(x), y))

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        evaluate(self.net, self.chosen(), self.case)

    def configure_optimizers(self) -> Any:
        made = optimizer(self.net)
        return {"optimizer": made, "lr_scheduler": {"scheduler": falling(made, self.case), "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        samples = BATCH * self.case.accumulate
        part = Subset(data(self.case), range(self.current_epoch * samples, (self.current_epoch + 1) * samples))
        return DataLoader(part, BATCH // self.trainer.world_size)


class InAList(Problem):
    """The criterion where torch does not look."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.losses = [self.criterion]
        del self.criterion

    def chosen(self) -> LossWeighting:
        return self.losses[0]


class ByHand(Problem):
    """Manual optimization: the module calls backward, the optimizer and its schedule itself."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], index: int) -> None:
        made, schedule = self.optimizers(), self.lr_schedulers()
        made.zero_grad()
        self.manual_backward(super().training_step(batch, index))
        made.step()
        schedule.step()


class Lightning(Adapter):
    name = "Lightning"
    module = "_lightning"
    packages = ("lightning", "pytorch_lightning")
    extra = integration = "lightning"
    dtype = torch.float64
    tolerance = 1e-12
    problem: type[Problem] = Problem
    strategy = "ddp"  # of two processes

    def train(self, folder: Path, case: Case) -> Result:
        return self._run(folder, case, case.steps)[1]

    def interrupted(self, folder: Path, case: Case, after: int) -> Result:
        trainer, _ = self._run(folder, case, after)
        trainer.save_checkpoint(folder / "kept.ckpt", weights_only=False)
        return self._run(folder, case, case.steps, folder / "kept.ckpt")[1]

    def _run(self, folder: Path, case: Case, steps: int, resume: Path | None = None) -> tuple[L.Trainer, Result]:
        two = distributed.is_torchelastic_launched()
        problem, logger = self.problem(case), CSVLogger(folder)
        trainer = L.Trainer(
            accelerator="cpu",
            devices=2 if two else 1,
            strategy=self.strategy if two else "auto",
            precision="64-true",
            max_epochs=steps,
            reload_dataloaders_every_n_epochs=1,
            limit_val_batches=1,
            inference_mode=False,
            accumulate_grad_batches=case.accumulate,
            gradient_clip_val=case.clip,
            logger=logger,
            log_every_n_steps=1,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[LossWeights()],
        )
        with quiet():
            other = DataLoader(data(case), BATCH) if case.evaluate else None
            trainer.fit(problem, None, other, ckpt_path=resume, weights_only=False if resume else None)
        logged = columns(folder) if trainer.is_global_zero else {}
        return trainer, result(problem.net, problem.chosen(), **logged)


class LightningInAList(Lightning):
    problem = InAList


class LightningByHand(Lightning):
    problem = ByHand
    strategy = "ddp_find_unused_parameters_true"  # in which a parameter used outside forward is an error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what Lightning says on a small machine, and what torch says of Lightning's own code."""
    with warnings.catch_warnings():
        for message in (".*does not have many workers.*", ".*have no `val_dataloader`.*", ".*LeafSpec.*"):
            warnings.filterwarnings("ignore", message)
        yield


def columns(folder: Path) -> dict[str, list[float]]:
    """What the last CSVLogger in the folder wrote, without the empty cells."""
    last = max(folder.rglob("metrics.csv"), key=lambda path: path.stat().st_mtime)
    with last.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows if row[name]] for name in (rows[0] if rows else ())}


ADAPTER, HIDDEN, BY_HAND = Lightning(), LightningInAList(), LightningByHand()
