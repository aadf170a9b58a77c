"""The Trainer with a real model: resumed, loaded from files, of other terms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from _bert import ThreeTerms, bert, bert_trainer, sentences
from _problem import Case
from _transformers import StopAfter, arguments
from _transformers_runs import exponents
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainonce


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


class Weighted(ThreeTerms):
    """With fixed weights."""

    weights = (1.0, 2.0, 5.0)

    def __init__(self, config):
        super().__init__(config)
        self.criterion = trainonce.FixedLoss(dict(zip(self.criterion.terms, self.weights, strict=True)))


class OtherWeights(Weighted):
    weights = (1.0, 1.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fixed_weights_are_the_model_s_own_unless_the_checkpoint_has_some(tmp_path, dtype):
    transformers.BertForMaskedLM(bert().config).to(dtype).save_pretrained(tmp_path / "base")
    alone = Weighted.from_pretrained(tmp_path / "base").criterion
    assert alone.weights.tolist() == [0.125, 0.25, 0.625]
    assert alone.exponents.exp().tolist() == pytest.approx([2, 5])
    OtherWeights(bert().config).to(dtype).save_pretrained(tmp_path / "own")
    assert Weighted.from_pretrained(tmp_path / "own").criterion.weights.tolist() == [0.25, 0.25, 0.5]


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
