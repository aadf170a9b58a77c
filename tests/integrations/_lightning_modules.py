"""LightningModules that hold a criterion in many ways, and a short fit."""

from __future__ import annotations

import lightning as L
import torch
from _lightning import quiet
from _problem import plain
from _tester import assert_same, case_of, on_two_processes
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations.lightning import LearnedWeights

TERMS = ("fit", "small")
STEPS = 6


def criterion():
    return trainonce.CompositeLoss(TERMS, init=0.5)


class Module(L.LightningModule):
    """A small model with its criterion as an attribute. ``configure`` stands for the user's configure_optimizers."""

    def __init__(self, configure=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.make()
        self.configure = configure or (lambda made: made)

    def make(self):
        self.criterion = criterion()

    def chosen(self):
        return self.criterion

    def losses(self, batch):
        out = self.net(batch[0])
        return {"fit": (out - 1).square().mean(), "small": out.abs().mean()}

    def training_step(self, batch, index):
        return self.chosen()(self.losses(batch))

    def validation_step(self, batch, index):
        self.chosen()(self.losses(batch))
        self.log("val/reference", self.chosen().reference(self.losses(batch)))

    test_step = validation_step

    def configure_optimizers(self):
        return self.configure(torch.optim.AdamW(self.net.parameters(), lr=0.05, weight_decay=0.1))


class Nested(Module):
    def make(self):
        self.parts = nn.ModuleDict({"loss": nn.ModuleList([criterion()])})

    def chosen(self):
        return self.parts["loss"][0]


class InAList(Module):
    def make(self):
        self.all_losses = [criterion()]

    def chosen(self):
        return self.all_losses[0]


class InADict(Module):
    def make(self):
        self.all_losses = {"train": (criterion(), None)}

    def chosen(self):
        return self.all_losses["train"][0]


class Deeper(Module):
    """In a plain list of a part, inside another module."""

    def make(self):
        self.net.hidden = [nn.ModuleDict({"loss": criterion()})]

    def chosen(self):
        return self.net.hidden[0]["loss"]


class MadeInSetup(Module):
    def make(self):
        pass

    def setup(self, stage):
        self.criterion = criterion()


PLACES = [Module, Nested, InAList, InADict, Deeper, MadeInSetup]


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(8 * count, 4, generator=generator)), 8)


def trainer_of(*callbacks, **options):
    options = {"max_steps": STEPS, "logger": False, "enable_checkpointing": False} | options
    return L.Trainer(
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **options,
    )


def fit(module, *callbacks, resume=None, validate=None, **options):
    trainer = trainer_of(*callbacks or [LearnedWeights(decay=1.0)], **options)
    with quiet():
        trainer.fit(module, batches(), validate, ckpt_path=resume, weights_only=False if resume else None)
    return trainer


def exponents_group(trainer, index=0):
    (group,) = [g for g in trainer.optimizers[index].param_groups if g.get("name") == "loss_weights"]
    return group


def start():
    return criterion().exponents.detach()


def on_two_ranks(kind, folder, monkeypatch):
    """An adapter that is not its module's ADAPTER, from a module of its own."""
    (folder / "other_adapter.py").write_text(f"from _lightning import {kind.__name__}\nADAPTER = {kind.__name__}()")
    monkeypatch.syspath_prepend(folder)
    adapter = kind()
    adapter.module = "other_adapter"
    case = case_of(adapter, schedule=True)
    ranks = on_two_processes(adapter, folder, case)
    assert ranks[0].exponents == ranks[1].exponents
    assert_same(ranks[0], plain(case), adapter)


# What configure_optimizers returns


def half(step):
    return 0.5**step


class Late(schedules.LRScheduler):
    """A user's own: it counts the groups in its first lines, as torch's do."""

    def __init__(self, optimizer):
        self.count = len(optimizer.param_groups)
        super().__init__(optimizer)

    def get_lr(self):
        return [base * half(self.last_epoch) for base in self.base_lrs[: self.count]]


RETURNED = {
    "optimizer": lambda made: made,
    "list": lambda made: [made],
    "two lists": lambda made: ([made], [schedules.LambdaLR(made, half)]),
    "dict": lambda made: {"optimizer": made, "lr_scheduler": schedules.ExponentialLR(optimizer=made, gamma=0.5)},
    "nested dict": lambda made: {"optimizer": made, "lr_scheduler": {"scheduler": Late(made), "interval": "step"}},
    "list of dicts": lambda made: [{"optimizer": made, "lr_scheduler": schedules.StepLR(made, 1, 0.5)}],
    "sequence": lambda made: (
        [made],
        [schedules.SequentialLR(made, [schedules.ConstantLR(made), schedules.LambdaLR(made, half)], [1])],
    ),
    "chain": lambda made: ([made], [schedules.ChainedScheduler([schedules.LambdaLR(made, half)])]),
    "one cycle": lambda made: ([made], [schedules.OneCycleLR(made, [0.05, 0.5], total_steps=9)]),
    "plateau": lambda made: {
        "optimizer": made,
        "lr_scheduler": schedules.ReduceLROnPlateau(made, patience=0, factor=0.5, mode="max", threshold=1e9),
        "monitor": "val/reference",
    },
}
