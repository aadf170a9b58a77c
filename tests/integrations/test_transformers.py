"""The Hugging Face Trainer's own traps, and a real small model: BERT with three terms."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from _problem import DECAY, EXPONENTS_LR, LR, Case, Net, Result, data, optimizer, plain, result, terms
from _tester import Adapter, on_two_processes
from _transformers import Model, StopAfter, arguments, collate
from accelerate import DistributedType, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import trainonce
from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path

CASE = Case(steps=4)
SHARDED = Case(steps=4, clip=0.5, schedule=True)
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "label_names": ["y"], "eval_dataset": data(Case(steps=3))}


def make(folder: Path, case: Case = CASE, *, model: nn.Module | None = None, kind: Any = Trainer, **more: Any) -> Any:
    """A Trainer of the problem. What it does not know of are training arguments."""
    fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    changed = {key: more.pop(key) for key in list(more) if key in fields}
    model = Model(case) if model is None else model
    given = {"decay": DECAY, "weights_lr": EXPONENTS_LR, "train_dataset": data(case), "data_collator": collate}
    return kind(model, arguments(folder, case, **changed), **given | more)


def trained(folder: Path, case: Case = CASE, **more: Any) -> Any:
    trainer = make(folder, case, **more)
    trainer.train()
    return trainer


def exponents(trainer: Any) -> list[float]:
    return trainer.model.criterion.exponents.tolist()


def exponents_in(checkpoint: Path) -> list[float]:
    return load_file(checkpoint / "model.safetensors")["criterion.exponents"].tolist()


# The parameter group


def test_the_exponents_have_a_group_without_weight_decay(tmp_path):
    trainer = trained(tmp_path, learning_rate=LR, weight_decay=0.1)
    assert trainer.args.optim == "adamw_torch_fused"  # the default
    own = trainer.model.criterion.exponents
    holding = [g for g in trainer.optimizer.param_groups if any(p is own for p in g["params"])]
    assert [(g["name"], g["weight_decay"], len(g["params"])) for g in holding] == [("loss_weights", 0.0, 1)]
    assert {g["weight_decay"] for g in trainer.optimizer.param_groups} == {0.1, 0.0}
    assert trainer.lr_scheduler.get_last_lr()[-1] == EXPONENTS_LR


def test_the_default_optimizer_learns_what_the_plain_loop_learns(tmp_path):
    trainer = trained(tmp_path, learning_rate=LR, weight_decay=0.1)
    expected = plain(CASE)  # decays the biases too, which moves the exponents very little
    assert exponents(trainer) == pytest.approx(expected.exponents, abs=1e-2)


def test_a_scheduler_from_before_is_refused(tmp_path):
    model = Model(CASE)
    made = optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0)
    with pytest.raises(RuntimeError, match=r"scheduler was built on this optimizer before attach"):
        trained(tmp_path, model=model, optimizers=(made, schedule))


def test_a_scheduler_after_attaching_by_hand(tmp_path):
    model = Model(CASE)
    made = optimizer(model)
    trainonce.attach(made, model.criterion, decay=DECAY, lr=EXPONENTS_LR)
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0)
    trainer = trained(tmp_path, model=model, optimizers=(made, schedule), decay=None)
    assert exponents(trainer) == pytest.approx(plain(CASE).exponents, abs=1e-6)
    assert model.criterion.attachment is not None  # not the Trainer's to remove


def test_without_decay_someone_must_have_attached(tmp_path):
    with pytest.raises(ValueError, match=r"made without decay="):
        trained(tmp_path, decay=None)


def test_decay_of_what_is_attached_already_is_refused(tmp_path):
    model = Model(CASE)
    made = optimizer(model)
    trainonce.attach(made, model.criterion, decay=DECAY)
    with pytest.raises(RuntimeError, match=r"already attached to this optimizer"):
        trained(tmp_path, model=model, optimizers=(made, None))


def test_training_twice_and_by_a_second_trainer(tmp_path):
    first = trained(tmp_path)
    before = exponents(first)
    first.train()
    again = exponents(first)
    second = trained(tmp_path, model=first.model)
    assert before != again
    assert again != exponents(second)
    assert [g.get("name") for g in first.optimizer.param_groups].count("loss_weights") == 1


def test_the_preset_is_passed_on(tmp_path):
    assert exponents(trained(tmp_path, preset="softplus")) != exponents(trained(tmp_path))


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
    assert [row["step"] for row in rows if "weight/fit" in row] == [2, 4]
    assert ["weight/fit" in row for row in rows if "eval_loss" in row] == [False] * CASE.steps
    assert all(isinstance(value, (int, float)) for row in rows for value in row.values())


def test_evaluation_does_not_disturb(tmp_path):
    alone = trained(tmp_path)
    beside = trained(tmp_path, **EVALUATED)
    assert exponents(alone) == exponents(beside)
    logged = [[row["loss/fit"] for row in t.state.log_history if "loss/fit" in row] for t in (alone, beside)]
    assert logged[0] == logged[1]


# Checkpoints


def test_the_checkpoint_holds_values_and_names(tmp_path):
    trainer = trained(tmp_path, save_strategy="steps", save_steps=CASE.steps)
    saved = load_file(tmp_path / f"checkpoint-{CASE.steps}" / "model.safetensors")
    assert saved["criterion.exponents"].tolist() == exponents(trainer)
    assert b'"even"' in bytes(saved["criterion._extra_state"].tolist())


def test_resuming_is_exact_with_the_default_optimizer(tmp_path):
    case = Case(steps=6, schedule=True)
    whole = trained(tmp_path / "whole", case, learning_rate=LR)
    trained(tmp_path / "parts", case, learning_rate=LR, callbacks=[StopAfter(3)])
    resumed = make(tmp_path / "parts", case, learning_rate=LR)
    resumed.train(resume_from_checkpoint=True)
    assert exponents(resumed) == exponents(whole)


def test_the_best_model_has_its_weights(tmp_path):
    trainer = trained(
        tmp_path,
        learning_rate=LR,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        greater_is_better=True,  # the loss falls, so the first is taken for the best
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
    trainonce.attach(again, alone.criterion, decay=DECAY, lr=EXPONENTS_LR)
    x, y = data(case).tensors
    for step in range(case.steps):
        alone(x[24 * step :][:24], y[24 * step :][:24])["loss"].backward()
        again.step()
        again.zero_grad()
    assert exponents(trainer) == pytest.approx(alone.criterion.exponents.tolist(), abs=1e-6)
    assert trainer.model.net.outer.bias.tolist() == pytest.approx(alone.net.outer.bias.tolist(), abs=1e-6)


def test_bf16(tmp_path):
    trainer = trained(tmp_path, bf16=True, learning_rate=LR)
    assert trainer.model.criterion.exponents.dtype == torch.float32
    assert exponents(trainer) == pytest.approx(exponents(trained(tmp_path, learning_rate=LR)), abs=2e-2)


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
        (Trainer, Net, r"Net holds no CompositeLoss.*submodule of the model"),
        (Trainer, InAList, r"InAList holds no CompositeLoss.*a list does not count"),
        (Trainer, Two, r"holds 2 CompositeLoss modules \('criterion', 'second'\)"),
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


def test_deepspeed_is_refused(tmp_path):
    try:
        with pytest.raises(RuntimeError, match=r"^DeepSpeed is not supported: .* Train with DDP, or with FSDP2"):
            make(tmp_path, kind=UnderDeepSpeed)
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
        decay=DECAY,
        weights_lr=EXPONENTS_LR,
        train_dataset=data(case),
        data_collator=collate,
        optimizers=(optimizer(model), None),
    )
    trainer.train()
    assert exponents(trainer) == pytest.approx(plain(case).exponents, abs=1e-6)


# A real model


class ThreeTerms(transformers.BertPreTrainedModel):
    """Masked words, a class for each sentence, and a contrast between a sentence and its reverse."""

    def __init__(self, config: transformers.BertConfig) -> None:
        super().__init__(config)
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        self.words = nn.Linear(config.hidden_size, config.vocab_size)
        self.classes = nn.Linear(config.hidden_size, 3)
        self.criterion = trainonce.CompositeLoss(["mlm", "classify", "contrast"], init=0.3)
        self.post_init()

    def forward(self, input_ids: Tensor, labels: Tensor, sentence_class: Tensor, **_: Any) -> dict[str, Tensor]:
        states = self.bert(input_ids).last_hidden_state
        reverse = self.bert(input_ids.flip(1)).last_hidden_state
        one, other = normalize(states.mean(1), dim=1), normalize(reverse.mean(1), dim=1)
        loss = self.criterion(
            mlm=cross_entropy(self.words(states).flatten(0, 1), labels.flatten()),
            classify=cross_entropy(self.classes(states[:, 0]), sentence_class),
            contrast=cross_entropy(one @ other.T / 0.2, torch.arange(len(one))),
        )
        return {"loss": loss}


def bert() -> ThreeTerms:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return ThreeTerms(transformers.BertConfig(**sizes, **no_dropout, intermediate_size=64, max_position_embeddings=16))


def sentences(count: int) -> list[dict[str, Tensor]]:
    """Counting words from a random start, two of them masked; the class is the start's."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for start in torch.randint(60, (count,), generator=generator):
        words = (start + torch.arange(12)) % 60 + 4
        labels = torch.full((12,), -100)
        at = torch.randperm(12, generator=generator)[:2]
        labels[at] = words[at]
        made.append({"input_ids": words.index_fill(0, at, 3), "labels": labels, "sentence_class": start % 3})
    return made


def bert_trainer(folder: Path, steps: int = 6, **more: Any) -> Any:
    case = Case(steps=steps)
    options = {"learning_rate": 5e-3, "weight_decay": 0.1, "max_grad_norm": 1.0, "lr_scheduler_type": "linear"}
    callbacks = more.pop("callbacks", None)
    return Trainer(
        bert(),
        arguments(folder, case, **options | more),
        decay=DECAY,
        weights_lr=EXPONENTS_LR,
        train_dataset=sentences(8 * steps),
        callbacks=callbacks,
    )


def test_bert_learns_and_resumes(tmp_path):
    whole = bert_trainer(tmp_path / "whole", steps=20)
    whole.train()
    rows = [row for row in whole.state.log_history if "loss/mlm" in row]
    assert rows[-1]["loss/mlm"] < rows[0]["loss/mlm"]
    assert all(set(row) >= {"loss/classify", "weight/contrast", "exponent/classify", "reference"} for row in rows)
    assert max(abs(a - b) for a, b in zip(exponents(whole), bert().criterion.exponents.tolist(), strict=True)) > 0.1
    bert_trainer(tmp_path / "parts", steps=20, callbacks=[StopAfter(9)]).train()
    resumed = bert_trainer(tmp_path / "parts", steps=20)
    resumed.train(resume_from_checkpoint=True)
    assert exponents(resumed) == exponents(whole)
    assert torch.equal(resumed.model.words.weight, whole.model.words.weight)


def test_bert_from_pretrained(tmp_path):
    trainer = bert_trainer(tmp_path)
    trainer.train()
    trainer.save_model(str(tmp_path / "own"))
    assert ThreeTerms.from_pretrained(tmp_path / "own").criterion.exponents.tolist() == exponents(trainer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_from_a_checkpoint_without_criterion_starts_at_the_start(tmp_path, dtype):
    base = transformers.BertForMaskedLM(bert().config).to(dtype)
    base.save_pretrained(tmp_path)
    loaded = ThreeTerms.from_pretrained(tmp_path)
    assert loaded.bert.embeddings.word_embeddings.weight.dtype == dtype
    assert loaded.criterion.exponents.dtype == torch.float32
    assert loaded.criterion.exponents.tolist() == bert().criterion.exponents.tolist()
    assert loaded.criterion.exponents.requires_grad


@pytest.mark.parametrize("saved", [["mlm", "contrast", "classify"], ["classify", "mlm", "contrast"]])
def test_a_model_of_other_terms_is_refused(tmp_path, saved):
    other = bert()
    other.criterion = trainonce.CompositeLoss(saved)
    other.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"this criterion's (are|is)"):
        ThreeTerms.from_pretrained(tmp_path)


class Unweighted(ThreeTerms):
    """Before it had a criterion."""

    def __init__(self, config: transformers.BertConfig) -> None:
        super().__init__(config)
        self.criterion = nn.Identity()

    def forward(self, input_ids: Tensor, labels: Tensor, **_: Any) -> dict[str, Tensor]:  # type: ignore[override]
        words = self.words(self.bert(input_ids).last_hidden_state)
        return {"loss": cross_entropy(words.flatten(0, 1), labels.flatten())}


def test_a_checkpoint_from_before_the_criterion_is_gone_on_from(tmp_path):
    usual = {"learning_rate": 5e-3, "lr_scheduler_type": "linear", "save_strategy": "steps", "save_steps": 3}
    given = arguments(tmp_path, Case(steps=6), **usual)
    before = transformers.Trainer(
        Unweighted(bert().config), given, train_dataset=sentences(48), callbacks=[StopAfter(3)]
    )
    before.train()
    trainer = bert_trainer(tmp_path, steps=6)
    with pytest.warns(trainonce.health.NoSavedState), pytest.warns(trainonce.health.NoSavedGroup):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert trainer.state.global_step == 6
    assert exponents(trainer) != bert().criterion.exponents.tolist()


def test_label_smoothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^label_smoothing_factor has the Trainer compute a loss of its own"):
        bert_trainer(tmp_path, label_smoothing_factor=0.1)


# Two processes, with the flags the Trainer gives DDP


class InComputeLoss(Trainer):
    """The criterion is called outside the wrapped module's forward."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        inner = self.accelerator.unwrap_model(model)
        return inner.criterion(terms(model(inputs["x"]), inputs["y"]))


class OnlyNet(Model):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.net(x)


def train_bert(folder: Path) -> Result:
    accumulate = 1 if torch.distributed.is_torchelastic_launched() else 2
    trainer = bert_trainer(folder, per_device_train_batch_size=4, gradient_accumulation_steps=accumulate)
    trainer.train()
    return result(trainer.model, trainer.model.criterion)


def train_in_compute_loss(folder: Path) -> Result:
    model = OnlyNet(CASE)
    trained(folder, model=model, kind=InComputeLoss, optimizers=(optimizer(model), None))
    return result(model.net, model.criterion)


class UnderFSDP2(Trainer):
    """On CPUs Accelerate leaves the plugin aside when it starts, and only there: all after it is its own code."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        state = self.accelerator.state
        state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
        self.is_fsdp_enabled = True


def train_under_fsdp2(folder: Path) -> Result:
    """Stopped, started anew from the checkpoint and finished."""
    make(folder, SHARDED, kind=UnderFSDP2, learning_rate=LR, callbacks=[StopAfter(2)]).train()
    trainer = make(folder, SHARDED, kind=UnderFSDP2, learning_rate=LR)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    return Result(trainer.model.criterion.exponents.full_tensor().tolist(), [])


class Variants(Adapter):
    """Trains what the folder is named after."""

    module = "test_transformers"

    def train(self, folder: Path, case: Case) -> Result:
        named = {"bert": train_bert, "compute_loss": train_in_compute_loss, "fsdp2": train_under_fsdp2}
        return named[folder.name](folder)


ADAPTER = Variants()


def on_two(folder: Path, name: str) -> list[Result]:
    (folder / name).mkdir()
    return on_two_processes(ADAPTER, folder / name, CASE)


def test_bert_on_two_processes_is_one_that_accumulates(tmp_path):
    ranks = on_two(tmp_path, "bert")
    alone = train_bert(tmp_path)
    assert ranks[0] == ranks[1]
    assert ranks[0].exponents == pytest.approx(alone.exponents, abs=1e-5)
    assert ranks[0].model == pytest.approx(alone.model, abs=1e-3)


def test_called_in_compute_loss_on_two_processes(tmp_path):
    ranks = on_two(tmp_path, "compute_loss")
    assert ranks[0] == ranks[1]
    assert ranks[0].exponents == pytest.approx(plain(CASE).exponents, abs=1e-6)


def test_fsdp2_on_two_processes(tmp_path):
    ranks = on_two(tmp_path, "fsdp2")
    assert ranks[0] == ranks[1]
    alone = trained(tmp_path, SHARDED, learning_rate=LR)
    assert ranks[0].exponents == pytest.approx(exponents(alone), abs=1e-6)
