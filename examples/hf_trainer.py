"""The Hugging Face Trainer: a small BERT that names a text's topic and fills in masked words.

The texts are drawn from two Markov chains, one a topic, so there is nothing to download. The
criterion is a part of the model; `trainonce.integrations.transformers.Trainer` attaches it.

    pip install ".[hf]"
    python examples/hf_trainer.py

It trains for some seconds on a CPU and prints the Trainer's logs with every loss and
coefficient, then the coefficients and the accuracy on new texts.
"""

import tempfile

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertModel, BertPreTrainedModel, TrainingArguments, set_seed

import trainonce
from trainonce.integrations.transformers import Trainer

WORDS, LENGTH, MASK = 16, 12, 0


class BertForTwoTasks(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.words = nn.Linear(config.hidden_size, config.vocab_size)
        self.topics = nn.Linear(config.hidden_size, 2)
        self.criterion = trainonce.CompositeLoss(["topic", "words"], lr=1e-2)
        self.post_init()

    def forward(self, input_ids, labels, topic):
        states = self.bert(input_ids).last_hidden_state
        logits = self.topics(states.mean(1))
        words = cross_entropy(self.words(states).flatten(0, 1), labels.flatten())
        return {
            "loss": self.criterion(topic=cross_entropy(logits, topic), words=words),
            "logits": logits,
        }


def texts(count, chains):
    """Texts of which every sixth word is masked: the input, the words to fill in, the topic."""
    topic = torch.randint(2, (count,))
    words = [torch.randint(1, WORDS, (count,))]
    for _ in range(LENGTH - 1):
        words.append(torch.multinomial(chains[topic, words[-1]], 1).squeeze(1))
    words = torch.stack(words, dim=1)
    masked = torch.rand(words.shape) < 1 / 6
    columns = words.masked_fill(masked, MASK), words.masked_fill(~masked, -100), topic
    names = ("input_ids", "labels", "topic")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def main(steps=300):
    set_seed(0)
    chains = (3 * torch.randn(2, WORDS, WORDS)).softmax(-1)
    chains[:, :, MASK] = 0  # no text contains the mask
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForTwoTasks(BertConfig(vocab_size=WORDS, num_hidden_layers=2, **sizes))
    train, new = texts(4096, chains), texts(512, chains)
    options = {"weight_decay": 0.1, "per_device_train_batch_size": 32, "logging_steps": 50}
    options |= {"report_to": "none", "disable_tqdm": True, "dataloader_pin_memory": False}
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, max_steps=steps, learning_rate=3e-3, **options)
        trainer = Trainer(model, args, train_dataset=train)
        trainer.train()
        logits = torch.as_tensor(trainer.predict(new).predictions)
    print(model.criterion)
    right = logits.argmax(1) == torch.stack([text["topic"] for text in new])
    print(f"accuracy on new texts: {100 * right.float().mean():.1f} %")


if __name__ == "__main__":
    main()
