"""LossWeights with schedulers, several optimizers and gradient clipping."""

from __future__ import annotations

import math

import pytest
import torch
from _lightning import columns
from _lightning_modules import (
    RETURNED,
    STEPS,
    Module,
    balance,
    batches,
    exponents_group,
    fit,
    half,
    start,
)
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.optim import lr_scheduler as schedules

from trainonce.integrations.lightning import LossWeights

# Schedulers and what configure_optimizers returns


@pytest.mark.parametrize("returned", RETURNED)
def test_schedulers_reach_the_exponents_whatever_is_returned(returned):
    module = Module(RETURNED[returned], lr=0.5)
    trainer = fit(module, LossWeights(), max_steps=-1, max_epochs=3, validate=batches(1), num_sanity_val_steps=0)
    model, own = trainer.optimizers[0].param_groups
    assert own["params"][0] is module.criterion.exponents
    assert own["lr"] == pytest.approx(10 * model["lr"])
    assert (model["lr"] == 0.05) == (returned == "optimizer")


class Foreign:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, epoch=None):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Stepping(Module):
    def lr_scheduler_step(self, scheduler, metric):
        scheduler.step()


def test_a_scheduler_of_another_package_is_one_sentence():
    with pytest.raises(RuntimeError, match="Foreign is not a torch scheduler and was built before"):
        fit(Stepping(lambda made: ([made], [Foreign(made)])))


@pytest.mark.parametrize("foreign", [False, True])
def test_a_rule_that_trains_nothing_takes_any_scheduler(foreign):
    class Balanced(Stepping):
        def make(self):
            self.criterion = balance()

    module = Balanced(lambda made: ([made], [Foreign(made) if foreign else schedules.LambdaLR(made, [half])]))
    trainer = fit(module)
    assert len(trainer.optimizers[0].param_groups) == 1
    assert module.criterion.step == STEPS


# Several optimizers


class Pair(Module):
    """As a GAN: two networks, two optimizers, each with a schedule, stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(4, 2)

    def training_step(self, batch, index):
        first, second = self.optimizers()
        self.toggle_optimizer(first)
        first.zero_grad()
        self.manual_backward(self.other(batch[0]).square().mean())
        first.step()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        second.zero_grad()
        self.manual_backward(self.criterion(self.losses(batch)))
        self.clip_gradients(second, gradient_clip_val=1e-3, gradient_clip_algorithm="norm")
        second.step()
        self.untoggle_optimizer(second)
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self):
        first = torch.optim.SGD(self.other.parameters(), lr=0.1)
        second = torch.optim.AdamW(self.net.parameters(), lr=0.05, weight_decay=0.1)
        return [first, second], [schedules.LambdaLR(first, half), schedules.LambdaLR(second, half)]


@pytest.mark.parametrize("part", ["net", "net.weight"])
def test_the_optimizer_of_a_named_part_learns_the_weights(part, tmp_path):
    module, usual = Pair(), Module(RETURNED["two lists"])
    logger = CSVLogger(tmp_path)
    trainer = fit(module, LossWeights(optimizer=part), max_steps=2 * STEPS, logger=logger, log_every_n_steps=2)
    assert [len(made.param_groups) for made in trainer.optimizers] == [1, 2]
    usual.configure = lambda made: {
        "optimizer": made,
        "lr_scheduler": {"scheduler": schedules.LambdaLR(made, half), "interval": "step"},
    }
    fit(usual, gradient_clip_val=1e-3)
    assert torch.equal(module.criterion.exponents, usual.criterion.exponents)
    torch.testing.assert_close(module.net.weight, usual.net.weight)
    assert columns(tmp_path)["step"] == [1, 3, 5]


def test_several_optimizers_and_no_name_is_one_sentence():
    with pytest.raises(ValueError, match=r"Pair has 2 optimizers, .* LossWeights\(optimizer='generator'"):
        fit(Pair())


@pytest.mark.parametrize("part", ["generator", "ne"])
def test_a_part_that_nothing_trains_is_one_sentence(part):
    with pytest.raises(ValueError, match=rf"optimizer='{part}' must name a part of Pair .* 0 of 2 hold"):
        fit(Pair(), LossWeights(optimizer=part))


# Clipping


class Steep(Module):
    """One step of plain gradient descent, with gradients far above any clip."""

    def losses(self, batch):
        return {name: 5 * loss for name, loss in super().losses(batch).items()}

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=1.0)


class ClipsItself(Steep):
    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        nn.utils.clip_grad_norm_(self.parameters(), 0.01)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Steep, {"gradient_clip_val": 0.01}),
        (Steep, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
        (ClipsItself, {}),
    ],
)
def test_clipping_is_of_the_model_alone(kind, options):
    clipped, free, begin = kind(), Steep(), Module()
    fit(clipped, max_steps=1, **options)
    fit(free, max_steps=1)
    moved = torch.cat(
        [(a - b).flatten() for a, b in zip(clipped.net.parameters(), begin.net.parameters(), strict=True)]
    )
    size = moved.abs().max() if options.get("gradient_clip_algorithm") == "value" else moved.norm()
    assert size.item() == pytest.approx(0.01, rel=1e-3)
    assert torch.equal(clipped.criterion.exponents, free.criterion.exponents)
    assert not torch.equal(free.criterion.exponents, start())


class SkipsBadBatches(Module):
    """The second batch has no finite loss, and the module takes all gradients away for it."""

    def losses(self, batch):
        found = super().losses(batch)
        return {name: loss * math.nan for name, loss in found.items()} if self.global_step == 1 else found

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        if not nn.utils.clip_grad_norm_(self.parameters(), 1.0).isfinite():
            self.zero_grad()


def test_a_module_that_skips_a_bad_batch_skips_the_exponents_too():
    module = SkipsBadBatches()
    fit(module)
    assert module.criterion.exponents.isfinite().all()
    assert not torch.equal(module.criterion.exponents, start())


@pytest.mark.parametrize("first", ["finder", "weights"])
def test_the_learning_rate_finder_runs_before(first, tmp_path):
    class Found(Module):
        def __init__(self):
            super().__init__()
            self.lr = 0.05

        def configure_optimizers(self):
            return torch.optim.AdamW(self.net.parameters(), lr=self.lr)

    finder = LearningRateFinder(num_training_steps=4)
    callbacks = [finder, LossWeights()] if first == "finder" else [LossWeights(), finder]
    module = Found()
    trainer = fit(module, *callbacks, default_root_dir=tmp_path)
    group = exponents_group(trainer)
    assert group["params"][0] is module.criterion.exponents
    assert not torch.equal(module.criterion.exponents, start())


def test_the_modules_methods_are_put_back():
    def own(*args, **kwargs):
        """Of the instance, not of the class."""

    module, before = Module(RETURNED["two lists"]), schedules.LambdaLR.__init__
    module.clip_gradients = own
    fit(module)
    assert vars(module).pop("clip_gradients") is own

    class Stops(Module):
        def training_step(self, batch, index):
            raise KeyError("stop")

    stopped = Stops()
    with pytest.raises(KeyError, match="stop"):
        fit(stopped)
    assert schedules.LambdaLR.__init__ is before
    for each in (module, stopped):
        assert not {"configure_optimizers", "configure_gradient_clipping", "clip_gradients"} & set(vars(each))
        assert each.criterion.attachment is None
