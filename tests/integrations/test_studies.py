"""Studies whose tasks train with a framework: a LightningModule that holds the criterion, the Hugging Face Trainer."""

from __future__ import annotations

from functools import partial

import lightning as L
import pytest
import torch
from _lightning import quiet
from _problem import BATCH, TERMS, WEIGHT_DECAY, Case, Net, data, terms
from _transformers import arguments, collate
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

import trainonce
from trainonce.integrations.lightning import LossWeights
from trainonce.integrations.transformers import Trainer
from trainonce.study import Study, layout, task
from trainonce.study.peers import PEERS
from trainonce.study.store import Store

PLANS = ["yoto", "balance", "uniform", "grid(0.1,1)", "replay", "final", *PEERS]
STEPS = 4


def fit_loss(net):
    x, y = data(Case(steps=2)).tensors
    return terms(net(x), y)["fit"]


def fit_error(net):
    with torch.no_grad():
        return fit_loss(net).item()


def metrics(net):
    return {"validation/error": fit_error(net), "test/error": fit_error(net)}


class Module(L.LightningModule):
    def __init__(self, net, criterion, attach):
        super().__init__()
        self.net, self.criterion, self.attach = net, criterion, attach

    def training_step(self, batch, index):
        return self.criterion(terms(self.net(batch[0]), batch[1]))

    def validation_step(self, batch, index):
        self.log("error", terms(self.net(batch[0]), batch[1])["fit"])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02, weight_decay=WEIGHT_DECAY)
        self.attach(optimizer)
        schedule = lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Report(L.Callback):
    def __init__(self, trial):
        self.trial = trial

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.trial.report(trainer.global_step, error=trainer.callback_metrics["error"])


@task(terms=TERMS, metric="error", direction="minimize")
def with_lightning(trial, *, steps=STEPS, epochs=2, clip=0.1):
    """The common problem as a LightningModule."""
    loader = DataLoader(data(Case(steps=steps // epochs)), BATCH)
    net = Net()
    module = Module(net, trial.criterion(validation=partial(fit_loss, net)), trial.attach)
    trainer = L.Trainer(
        accelerator=trial.device.type,
        devices=1 if trial.device.index is None else [trial.device.index],
        max_epochs=epochs,
        gradient_clip_val=clip,
        callbacks=[LossWeights(), Report(trial)],
        default_root_dir=trial.dir,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with quiet():
        trainer.fit(module, loader, loader)
    return metrics(module.net)


class Model(nn.Module):
    def __init__(self, net, criterion):
        super().__init__()
        self.net, self.criterion = net, criterion

    def forward(self, x, y):
        return {"loss": self.criterion(terms(self.net(x), y))}


@task(terms=TERMS, metric="error", direction="minimize")
def with_trainer(trial, *, steps=STEPS):
    """The common problem by the Hugging Face Trainer."""
    case = Case(steps=steps, clip=0.1, schedule=True)
    net = Net()
    model = Model(net, trial.criterion(validation=partial(fit_loss, net)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=WEIGHT_DECAY)
    trial.attach(optimizer)
    args = arguments(trial.dir, case, seed=trial.seed, logging_strategy="no")
    Trainer(model, args, train_dataset=data(case), data_collator=collate, optimizers=(optimizer, None)).train()
    return metrics(model.net)


def study(made, folder, plans, seeds):
    comparison = Study(made, folder, seeds=seeds)
    for plan in plans:
        comparison.add(plan)
    return comparison.run(workers=0, device="cpu", show=False)


#: What a study writes: the framework leaves nothing beside it.
FILES = {layout.RECORDS, layout.MANIFEST, layout.CLAIMS, layout.TRIALS, layout.LOGS, layout.WORKERS}


@pytest.mark.parametrize("made", [with_lightning, with_trainer], ids=["lightning", "transformers"])
def test_a_study_trains_under_every_plan(tmp_path, made):
    summary = study(made, tmp_path, PLANS, seeds=1)
    records = Store(tmp_path).read_all()
    assert {r.rule.label: r.error for r in records if r.status != "done"} == {}
    assert {row.plan for row in summary.rows} == set(PLANS)
    assert len({row.chosen.mean for row in summary.rows}) > len(PLANS) / 2  # the weights had a say
    uniform = next(r for r in records if r.rule.label == "1 : 1 : 1")
    assert uniform.coefficients == pytest.approx([1 / 3] * 3)
    for record in records:
        history = trainonce.History.load(tmp_path / layout.TRIALS / record.key / layout.HISTORY)
        assert len(history.coefficients()) == STEPS
    assert {path.name for path in tmp_path.iterdir()} <= FILES


def test_lightning_reports_each_validation(tmp_path):
    study(with_lightning, tmp_path, ["uniform"], seeds=1)
    records = Store(tmp_path).read_all()
    uniform = next(r for r in records if r.rule.label == "1 : 1 : 1")
    assert [step for step, _ in uniform.reports] == [2, 4]
    assert uniform.reports[-1][1]["error"] == pytest.approx(uniform.metrics["validation/error"], rel=1e-5)
