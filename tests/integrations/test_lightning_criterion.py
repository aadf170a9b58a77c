"""LossWeights finds the criterion wherever a module holds it, moves it and saves it."""

from __future__ import annotations

import warnings

import pytest
import torch
from _lightning import HIDDEN, columns, quiet
from _lightning_modules import (
    PLACES,
    InAList,
    Module,
    batches,
    criterion,
    exponents_group,
    fit,
    start,
    trainer_of,
)
from _problem import plain
from _tester import (
    assert_same,
    case_of,
    evaluation_with_gradients_moves_nothing,
    on_two_processes,
    saved_and_resumed_bit_for_bit,
)
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from trainonce.integrations.lightning import LossWeights

# Finding


@pytest.mark.parametrize("kind", PLACES)
def test_the_criterion_is_found_and_trained_wherever_it_lies(kind):
    module, usual = kind(), Module()
    group = exponents_group(fit(module))
    fit(usual)
    assert group["params"][0] is module.chosen().exponents
    assert group["weight_decay"] == 0
    assert not torch.equal(module.chosen().exponents, start())
    assert torch.equal(module.chosen().exponents, usual.criterion.exponents)


def test_a_module_without_a_criterion_is_one_sentence():
    class Without(Module):
        def make(self):
            pass

    with pytest.raises(ValueError, match=r"found no criterion in Without\. Make one in its __init__"):
        fit(Without())


class Two(Module):
    def make(self):
        self.first, self.others = criterion(), [criterion()]

    def chosen(self):
        return self.others[0]


def test_two_criteria_are_one_sentence_that_names_them():
    with pytest.raises(ValueError, match=r"Two holds 2 criteria, 'first', 'others\[0\]', .* criterion='first'"):
        fit(Two())


@pytest.mark.parametrize("by", ["name", "object"])
def test_one_of_two_criteria_is_chosen(by):
    module = Two()
    fit(module, LossWeights(criterion="others[0]" if by == "name" else module.others[0]))
    assert torch.equal(module.first.exponents, start())
    assert not torch.equal(module.others[0].exponents, start())


def test_two_callbacks_serve_two_criteria(tmp_path):
    class Both(Two):
        def training_step(self, batch, index):
            return self.first(self.losses(batch)) + self.others[0](self.losses(batch))

    each = [LossWeights(criterion=name, prefix=f"{name}/") for name in ("first", "others[0]")]
    module = Both()
    trainer = fit(module, *each, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert [g.get("name") for g in trainer.optimizers[0].param_groups] == [None, "loss_weights", "loss_weights_2"]
    assert torch.equal(module.first.exponents, module.others[0].exponents)
    assert {"first/reference", "others[0]/reference"} <= set(columns(tmp_path))
    assert "configure_optimizers" not in vars(module)


def test_the_copies_of_save_hyperparameters_do_not_count():
    class Given(Module):
        def __init__(self, loss):
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Lightning's own: the argument is a module
                self.save_hyperparameters()

        def make(self):
            pass

        def chosen(self):
            return self.hparams.loss

    module = Given(criterion())
    fit(module)
    assert not torch.equal(module.hparams.loss.exponents, start())


# A criterion in a list


def test_a_hidden_criterion_is_converted_with_the_module():
    module = InAList()
    with quiet():
        trainer_of(LossWeights(), precision="64-true", max_steps=1).fit(module, batches())
    assert module.chosen().exponents.dtype == torch.float64


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", [Module, InAList])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true"])
def test_on_a_gpu_the_criterion_is_where_the_module_is(kind, precision):
    class Seen(kind):
        def training_step(self, batch, index):
            assert self.chosen().exponents.device == self.device
            return super().training_step(batch, index)

    module = Seen()
    fit(module, accelerator="gpu", devices=1, precision=precision)
    assert module.chosen().exponents.dtype == torch.float32
    assert module.chosen().exponents.device == module.device
    assert not torch.equal(module.chosen().exponents.cpu(), start())


@pytest.mark.parametrize("check", [saved_and_resumed_bit_for_bit, evaluation_with_gradients_moves_nothing])
def test_a_hidden_criterion_is_as_any(tmp_path, check):
    check(HIDDEN, tmp_path)


@pytest.mark.parametrize("name", ["HIDDEN", "BY_HAND"])
def test_hidden_or_optimized_by_hand_on_two_processes(tmp_path, name):
    """By hand under a DDP in which a parameter used outside forward is an error."""
    case = case_of(HIDDEN, schedule=True)
    ranks = on_two_processes(f"_lightning.{name}.train", tmp_path, case)
    assert ranks[0].coefficients == ranks[1].coefficients
    assert_same(ranks[0], plain(case), HIDDEN)


def test_a_hidden_criterion_is_loaded_for_a_test_alone(tmp_path):
    trained, fresh = InAList(), InAList()
    fit(trained).save_checkpoint(tmp_path / "kept.ckpt", weights_only=False)
    with quiet():
        trainer_of(LossWeights()).test(fresh, batches(), ckpt_path=tmp_path / "kept.ckpt", weights_only=False)
    assert torch.equal(fresh.chosen().exponents, trained.chosen().exponents)


def test_weights_alone_would_lose_a_hidden_criterion(tmp_path):
    saving = ModelCheckpoint(tmp_path, save_weights_only=True)
    with pytest.raises(ValueError, match=r"The criterion 'all_losses\[0\]' .* save_weights_only=True would lose it"):
        fit(InAList(), LossWeights(), saving, enable_checkpointing=True)
