"""A small BERT with three losses, built from its configuration, and sentences to train it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers
from _problem import DECAY, EXPONENTS_LR, Case
from _transformers import arguments
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import trainonce
from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path


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
    callbacks, decay, model = more.pop("callbacks", None), more.pop("decay", DECAY), more.pop("model", None)
    return Trainer(
        bert() if model is None else model,
        arguments(folder, case, **options | more),
        decay=decay,
        weights_lr=None if decay is None else EXPONENTS_LR,
        train_dataset=sentences(8 * steps),
        callbacks=callbacks,
    )
