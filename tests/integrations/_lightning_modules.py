"""LightningModules that hold a criterion in many ways, and a short fit."""

from __future__ import annotations

import lightning as L
import torch
from _lightning import quiet
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations.lightning import LossWeights

TERMS = ("fit", "small")
STEPS = 6


def criterion(**settings):
    return trainonce.CompositeLoss(TERMS, **{"init": 0.5, "decay": 1.0} | settings)


def balance():
    return trainonce.BalancedLoss(TERMS)


class Module(L.LightningModule):
    """A small model with its criterion as an attribute. ``configure`` stands for the user's configure_optimizers."""

    def __init__(self, configure=None, **settings):
        super().__init__()
        self.settings = settings  # of the rule
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.make()
        self.configure = configure or (lambda made: made)

    def make(self):
        self.criterion = criterion(**self.settings)

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


class Weighting:
    """A plain object, as PINA's."""


class InAnObject(Module):
    def make(self):
        self.weighting = Weighting()
        self.weighting.loss = criterion()

    def chosen(self):
        return self.weighting.loss


class MadeInSetup(Module):
    def make(self):
        pass

    def setup(self, stage):
        self.criterion = criterion()


PLACES = [Module, Nested, InAList, InAnObject, MadeInSetup]


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(8 * count, 4, generator=generator)), 8)


def trainer_of(*callbacks, **options):
    options = {"max_steps": STEPS, "logger": False, "enable_checkpointing": False} | options
    options = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False} | options
    return L.Trainer(callbacks=list(callbacks), **options)


def fit(module, *callbacks, resume=None, validate=None, **options):
    trainer = trainer_of(*callbacks or [LossWeights()], **options)
    with quiet():
        trainer.fit(module, batches(), validate, ckpt_path=resume, weights_only=False if resume else None)
    return trainer


def exponents_group(trainer, index=0):
    (group,) = [g for g in trainer.optimizers[index].param_groups if g.get("name") == "loss_weights"]
    return group


def start():
    return criterion().exponents.detach()


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
    "two lists": lambda made: ([made], [schedules.LambdaLR(made, half)]),
    "dict": lambda made: {"optimizer": made, "lr_scheduler": schedules.ExponentialLR(optimizer=made, gamma=0.5)},
    "nested dict": lambda made: {"optimizer": made, "lr_scheduler": {"scheduler": Late(made), "interval": "step"}},
    "plateau": lambda made: {
        "optimizer": made,
        "lr_scheduler": schedules.ReduceLROnPlateau(made, patience=0, factor=0.5, mode="max", threshold=1e9),
        "monitor": "val/reference",
    },
}
