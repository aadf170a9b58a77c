"""The Hugging Face Trainer's own traps: groups, clipping, logs, evaluation, checkpoints, accumulation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from _problem import EXPONENTS_LR, INIT, LR, MOVING, Case, Net, data, optimizer, plain, terms
from _transformers import CASE, EVALUATED, Model, arguments, collate, exponents, exponents_in, make, trained
from accelerate import DistributedType
from accelerate.state import AcceleratorState, PartialState
from torch import Tensor, nn

import trainonce
from trainonce.integrations.transformers import Trainer

# The parameter group


def test_the_exponents_have_a_group_without_weight_decay(tmp_path):
    trainer = trained(tmp_path, learning_rate=LR, weight_decay=0.1)
    assert trainer.args.optim == "adamw_torch_fused"  # the default
    own = trainer.model.criterion.exponents
    holding = [g for g in trainer.optimizer.param_groups if any(p is own for p in g["params"])]
    assert [(g["name"], g["weight_decay"], len(g["params"])) for g in holding] == [("loss_weights", 0.0, 1)]
    assert {g["weight_decay"] for g in trainer.optimizer.param_groups} == {0.1, 0.0}
    assert trainer.lr_scheduler.get_last_lr()[-1] == EXPONENTS_LR


@pytest.mark.parametrize("rule", MOVING)
def test_an_attachment_of_the_users_stays(tmp_path, rule):
    case = Case(rule, steps=4)
    model = Model(case)
    made = optimizer(model)
    own = trainonce.attach(made, model.criterion)
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0)
    trained(tmp_path, case, model=model, optimizers=(made, schedule))
    assert model.criterion.attachment is own
    assert own.steps == case.steps
    assert model.criterion.coefficients().tolist() == pytest.approx(plain(case).coefficients, abs=1e-6)


def test_training_twice_and_by_a_second_trainer(tmp_path):
    history = trainonce.History()
    first = trained(tmp_path, history=history)
    before = exponents(first)
    first.train()
    again = exponents(first)
    second = trained(tmp_path, model=first.model)
    assert before != again
    assert again != exponents(second)
    assert [g.get("name") for g in first.optimizer.param_groups].count("loss_weights") == 1
    assert len(history) == 2 * CASE.steps
    assert first.model.criterion.attachment is None


# Clipping


@pytest.mark.parametrize("clip", [0.0, 1e-3])
def test_the_logged_norm_is_the_models_alone(tmp_path, clip):
    model = Model(CASE)
    x, y = data(CASE).tensors
    model(x[:8], y[:8])["loss"].backward()
    norm = torch.cat([p.grad.flatten() for p in model.net.parameters()]).norm().item()
    assert model.criterion.exponents.grad.norm() > 1e-2 * norm  # or nothing is shown
    model.zero_grad()
    trainer = trained(tmp_path, model=model, max_grad_norm=clip)
    assert trainer.state.log_history[0]["grad_norm"] == pytest.approx(norm, rel=1e-6)


# Logs


def test_terms_are_logged_and_read_back_at_logging_steps_alone(tmp_path, monkeypatch):
    calls = []
    wanted = trainonce.CompositeLoss.log_dict
    monkeypatch.setattr(trainonce.CompositeLoss, "log_dict", lambda self: calls.append(1) or wanted(self))
    trainer = trained(tmp_path, logging_steps=2, **EVALUATED)
    rows = trainer.state.log_history
    assert len(calls) == 2
    assert [row["step"] for row in rows if "coefficient/fit" in row] == [2, 4]
    assert ["coefficient/fit" in row for row in rows if "eval_loss" in row] == [False] * CASE.steps
    assert all(isinstance(value, (int, float)) for row in rows for value in row.values())


def evaluated(trainer, count=20):
    """Evaluate on so many samples, in batches of 8, and return what each term is on average."""
    x, y = (tensor[:count] for tensor in data(Case(steps=3)).tensors)
    found = trainer.evaluate(torch.utils.data.TensorDataset(x, y))
    with torch.no_grad():
        return found, {name: value.item() for name, value in terms(trainer.model.net(x), y).items()}


@pytest.mark.parametrize("count", [20, 24])
def test_an_evaluation_logs_the_mean_of_each_term_over_its_samples(tmp_path, count):
    trainer = trained(tmp_path, label_names=["y"])
    found, expected = evaluated(trainer, count)
    assert {name: found[f"eval_loss/{name}"] for name in expected} == pytest.approx(expected, rel=1e-6)
    coefficients = trainer.model.criterion.coefficients().tolist()
    weighted = sum(c * loss for c, loss in zip(coefficients, expected.values(), strict=True))
    assert found["eval_loss"] == pytest.approx(weighted, rel=1e-6)
    fit, *others = expected.values()
    assert found["eval_reference"] == pytest.approx((fit + INIT * sum(others)) / (1 + 2 * INIT), rel=1e-6)
    assert trainer.state.log_history[-1]["eval_loss/fit"] == found["eval_loss/fit"]
    assert not trainer.model.criterion._forward_pre_hooks


class Sometimes(Model):
    """Its last term is absent from batches of less than 8 samples."""

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"loss": self.criterion(terms(self.net(x), y) | ({} if len(x) == 8 else {"even": None}))}


def test_a_term_that_is_absent_from_a_batch_does_not_count_there(tmp_path):
    trainer = trained(tmp_path, model=Sometimes(CASE), label_names=["y"])
    x, y = data(Case(steps=3)).tensors
    found, expected = evaluated(trainer)
    with torch.no_grad():
        full = terms(trainer.model.net(x[:16]), y[:16])["even"].item()
    assert found["eval_loss/even"] == pytest.approx(full, rel=1e-6)
    assert found["eval_loss/fit"] == pytest.approx(expected["fit"], rel=1e-6)


# Checkpoints


@pytest.mark.parametrize("metric", ["loss", "reference"])
def test_the_best_model_has_its_weights(tmp_path, metric):
    trainer = trained(
        tmp_path,
        learning_rate=LR,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        greater_is_better=True,  # it falls, so the first is taken for the best
        **EVALUATED,
    )
    assert exponents(trainer) == exponents_in(tmp_path / "checkpoint-1")
    assert exponents(trainer) != exponents_in(tmp_path / f"checkpoint-{CASE.steps}")


# Accumulation: whether the Trainer divides depends on the forward's signature


class TakesAnything(Model):
    """``**kwargs`` is what makes the Trainer count items and not divide."""

    def forward(self, x: Tensor, labels: Tensor, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        assert "num_items_in_batch" not in kwargs
        return super().forward(x, labels)


class DividesItself(Model):
    accepts_loss_kwargs = True

    def forward(self, x: Tensor, labels: Tensor, num_items_in_batch: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        share = len(x) / num_items_in_batch
        return {"loss": self.criterion({name: loss * share for name, loss in terms(self.net(x), labels).items()})}


@pytest.mark.parametrize("kind", [TakesAnything, DividesItself])
def test_accumulated_terms_are_means(tmp_path, kind):
    case = Case(steps=3, accumulate=3)
    model = kind(case)
    sgd = torch.optim.SGD(model.parameters(), lr=LR)  # Adam would hide a factor
    trainer = trained(
        tmp_path,
        case,
        model=model,
        optimizers=(sgd, None),
        data_collator=lambda samples: {"x": collate(samples)["x"], "labels": collate(samples)["y"]},
    )
    alone = Model(case)
    again = torch.optim.SGD(alone.parameters(), lr=LR)
    trainonce.attach(again, alone.criterion)
    x, y = data(case).tensors
    for step in range(case.steps):
        alone(x[24 * step :][:24], y[24 * step :][:24])["loss"].backward()
        again.step()
        again.zero_grad()
    assert exponents(trainer) == pytest.approx(alone.criterion.exponents.tolist(), abs=1e-6)
    assert trainer.model.net.outer.bias.tolist() == pytest.approx(alone.net.outer.bias.tolist(), abs=1e-6)


@pytest.mark.parametrize("rule", MOVING)
def test_bf16(tmp_path, rule):
    both = [trained(tmp_path, Case(rule, steps=12), bf16=bf16, learning_rate=LR) for bf16 in (True, False)]
    assert {value.dtype for value in both[0].model.criterion.state_dict().values()} == {torch.float32, torch.uint8}
    narrow, usual = (trainer.model.criterion.coefficients().tolist() for trainer in both)
    assert narrow == pytest.approx(usual, rel=0.05)


# Where the criterion is


class OnTheTrainer(Trainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.weighing = trainonce.CompositeLoss(["fit", "small"])
        super().__init__(*args, **kwargs)


class InAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.criteria = Net(), [trainonce.CompositeLoss(["fit", "small"])]


class Two(Model):
    def __init__(self) -> None:
        super().__init__(CASE)
        self.second = trainonce.CompositeLoss(["fit", "small"])


@pytest.mark.parametrize(
    ("kind", "model", "sentence"),
    [
        (OnTheTrainer, Net, r"'weighing' lies on the Trainer.*submodule of the model"),
        (OnTheTrainer, lambda: Model(CASE), r"'weighing' lies on the Trainer"),
        (Trainer, Net, r"Net holds no criterion.*submodule of the model"),
        (Trainer, InAList, r"InAList holds no criterion.*a list does not count"),
        (Trainer, Two, r"holds 2 criteria \('criterion', 'second'\)"),
    ],
)
def test_where_the_criterion_must_be(tmp_path, kind, model, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, kind=kind, model=model())


class UnderDeepSpeed(Trainer):
    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        PartialState._shared_state["distributed_type"] = DistributedType.DEEPSPEED
        self.accelerator.state.distributed_type = DistributedType.DEEPSPEED


@pytest.mark.parametrize("rule", [*MOVING, "FixedLoss"])
def test_deepspeed_is_refused_where_the_rule_follows_steps(tmp_path, rule):
    try:
        if rule == "FixedLoss":
            make(tmp_path, Case(rule), kind=UnderDeepSpeed)
            return
        with pytest.raises(RuntimeError, match=r"^DeepSpeed is not supported: .* Train with DDP, or with FSDP2"):
            make(tmp_path, Case(rule), kind=UnderDeepSpeed)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


class Both(Trainer, transformers.Seq2SeqTrainer):
    pass


def test_a_trainer_of_another_kind(tmp_path):
    case, model = CASE, Model(CASE)
    given = arguments(tmp_path, case, kind=transformers.Seq2SeqTrainingArguments)
    trainer = Both(
        model,
        given,
        train_dataset=data(case),
        data_collator=collate,
        optimizers=(optimizer(model), None),
    )
    trainer.train()
    assert model.criterion.coefficients().tolist() == pytest.approx(plain(case).coefficients, abs=1e-6)
