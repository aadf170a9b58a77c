"""The Trainer with a small BERT of three losses: resumed, and loaded from files, under every rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from _problem import DECAY, EXPONENTS_LR, Case, state_of
from _transformers import StopAfter, arguments
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import trainonce
from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path


def criterion() -> trainonce.CompositeLoss:
    return trainonce.CompositeLoss(["mlm", "classify", "contrast"], init=0.3, decay=DECAY, lr=EXPONENTS_LR)


class ThreeTerms(transformers.BertPreTrainedModel):
    """Masked words, a class for each sentence, and a contrast between a sentence and its reverse."""

    def __init__(self, config: transformers.BertConfig) -> None:
        super().__init__(config)
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        self.words = nn.Linear(config.hidden_size, config.vocab_size)
        self.classes = nn.Linear(config.hidden_size, 3)
        self.criterion = criterion()
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
    callbacks, model = more.pop("callbacks", None), more.pop("model", None)
    return Trainer(
        bert() if model is None else model,
        arguments(folder, case, **options | more),
        train_dataset=sentences(8 * steps),
        callbacks=callbacks,
    )


RULES = {
    "CompositeLoss": criterion,
    "BalancedLoss": lambda: trainonce.BalancedLoss({"mlm": 1.0, "classify": 0.3, "contrast": 0.1}),
    "FixedLoss": lambda: trainonce.FixedLoss({"mlm": 1.0, "classify": 2.0, "contrast": 5.0}),
}


class WithRule(ThreeTerms):
    """The rule is named in the configuration."""

    def __init__(self, config: transformers.BertConfig) -> None:
        super().__init__(config)
        self.criterion = RULES[config.rule]()


def of_rule(rule: str) -> WithRule:
    config = bert().config
    config.rule = rule
    torch.manual_seed(0)
    return WithRule(config)


@pytest.mark.parametrize("rule", RULES)
def test_bert_learns_resumes_and_is_loaded(tmp_path, rule):
    whole = bert_trainer(tmp_path / "whole", steps=20, model=of_rule(rule))
    whole.train()
    rows = [row for row in whole.state.log_history if "loss/mlm" in row]
    assert rows[-1]["loss/mlm"] < rows[0]["loss/mlm"]
    assert all(set(row) >= {"loss/classify", "coefficient/contrast", "ratio/classify", "reference"} for row in rows)
    bert_trainer(tmp_path / "parts", steps=20, model=of_rule(rule), callbacks=[StopAfter(9)]).train()
    resumed = bert_trainer(tmp_path / "parts", steps=20, model=of_rule(rule))
    resumed.train(resume_from_checkpoint=True)
    moved = rule != "FixedLoss"
    assert (state_of(resumed.model.criterion) != state_of(RULES[rule]())) is moved
    assert state_of(resumed.model.criterion) == state_of(whole.model.criterion)
    assert torch.equal(resumed.model.words.weight, whole.model.words.weight)
    whole.save_model(str(tmp_path / "own"))
    loaded = WithRule.from_pretrained(tmp_path / "own").criterion
    assert state_of(loaded) == state_of(whole.model.criterion)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES)
def test_a_model_from_a_checkpoint_without_criterion_starts_at_the_start(tmp_path, rule, dtype):
    config = of_rule(rule).config
    transformers.BertForMaskedLM(config).to(dtype).save_pretrained(tmp_path)
    loaded = WithRule.from_pretrained(tmp_path)
    assert loaded.bert.embeddings.word_embeddings.weight.dtype == dtype
    assert state_of(loaded.criterion) == state_of(RULES[rule]())
    assert all(parameter.requires_grad for parameter in loaded.criterion.parameters())


def test_label_smoothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^label_smoothing_factor has the Trainer compute a loss of its own"):
        bert_trainer(tmp_path, label_smoothing_factor=0.1)


class Unweighted(ThreeTerms):
    """Before it had a criterion."""

    def __init__(self, config: transformers.BertConfig) -> None:
        super().__init__(config)
        self.criterion = nn.Identity()

    def forward(self, input_ids: Tensor, labels: Tensor, **_: Any) -> dict[str, Tensor]:  # type: ignore[override]
        words = self.words(self.bert(input_ids).last_hidden_state)
        return {"loss": cross_entropy(words.flatten(0, 1), labels.flatten())}


def test_a_checkpoint_from_before_the_criterion_is_gone_on_from(tmp_path):
    given = arguments(tmp_path, Case(steps=6), learning_rate=5e-3, save_strategy="steps", save_steps=3)
    before = transformers.Trainer(
        Unweighted(bert().config), given, train_dataset=sentences(48), callbacks=[StopAfter(3)]
    )
    before.train()
    trainer = bert_trainer(tmp_path, steps=6, model=of_rule("BalancedLoss"), lr_scheduler_type="constant")
    with pytest.warns(trainonce.health.NoSavedState):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert trainer.state.global_step == 6
    assert trainer.model.criterion.step == 3
