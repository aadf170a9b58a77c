"""A character language model of a made-up language: the next character, the one after it, z-loss.

- ``next``, the base: cross-entropy of the next character given the last 16;
- ``second``: that of the character after it, through a head of its own;
- ``z``: the mean square of the logarithm of the next character's normaliser, which keeps the logits near 0.

Sentences come from a small probabilistic grammar with invented words. Subject and verb agree in number, also across a
relative clause. The language is the same for all seeds, the text is not.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Split, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, cross_entropy, mlp

if TYPE_CHECKING:
    from collections.abc import Sequence

TERMS = ("next", "second", "z")
ALPHABET = " .abdeghiklmnoprstu"
SIZES = {"train": 12_000, "validation": 4_000, "test": 12_000}  # characters
CONTEXT, BATCH = 16, 256


# The language


@functools.cache
def words(kind: str, count: int) -> list[str]:
    """Invented words of one to three syllables, no two the same."""
    rng, made = generator(f"charlm/{kind}", 0), dict[str, None]()
    while len(made) < count:
        syllables = 1 + _choose([3, 4, 2], rng)
        made["".join("bdgklmnprt"[_below(10, rng)] + "aeiou"[_below(5, rng)] for _ in range(syllables)) + "n"] = None
    return list(made)


def sentence(rng: Generator) -> str:
    many = _below(2, rng)
    return f"{noun_phrase(many, rng)} {verb_phrase(many, rng)}. "


def noun_phrase(many: int, rng: Generator) -> str:
    """A noun, in the plural with an s, and one time in four a relative clause whose verb agrees with it."""
    noun = _word(words("noun", 40), rng) + "s" * many
    article = ("a", "some")[many] if _below(2, rng) else "the"
    clause = f" that {verb_phrase(many, rng)}" if _below(4, rng) == 0 else ""
    return f"{article} {noun}{clause}"


def verb_phrase(many: int, rng: Generator) -> str:
    """A verb, in the singular with an s, and every other time an object."""
    verb = _word(words("verb", 20), rng) + "s" * (1 - many)
    return f"{verb} {noun_phrase(_below(2, rng), rng)}" if _below(2, rng) else verb


def _word(among: Sequence[str], rng: Generator) -> str:
    """The nth word is n times as rare as the first."""
    return among[_choose([1 / (n + 1) for n in range(len(among))], rng)]


def _below(count: int, rng: Generator) -> int:
    return int(torch.randint(count, (), generator=rng))


def _choose(weights: Sequence[float], rng: Generator) -> int:
    """By a number from 0 to the sum of the weights, so that it does not depend on how torch samples."""
    left = sum(weights) * float(torch.rand((), generator=rng))
    for i, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return i
    return len(weights) - 1


# The task


def data(seed: int) -> Tensors:
    """Texts as numbers of characters, and the table that turns a number into its column."""
    rng = generator("charlm", seed)
    made: Tensors = {"columns": torch.eye(len(ALPHABET))}
    for part, size in SIZES.items():
        text = ""
        while len(text) < size:
            text += sentence(rng)
        made[part] = torch.tensor([ALPHABET.index(letter) for letter in text[:size]])
    return made


def model() -> nn.Module:
    letters = len(ALPHABET)
    trunk = mlp(CONTEXT * letters, 128, 128, last=True)
    return Parts(trunk=trunk, next=nn.Linear(128, letters), second=nn.Linear(128, letters))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(SIZES["train"] - CONTEXT - 1, (BATCH,), generator=rng),
        "held": torch.randint(SIZES["validation"] - CONTEXT, (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    text, places = data["train"], draw["batch"]
    features = net(context(data, text, places), "trunk")
    logits = net(features, "next")
    return torch.stack(
        [
            cross_entropy(logits, text[places + CONTEXT]),
            cross_entropy(net(features, "second"), text[places + CONTEXT + 1]),
            logits.logsumexp(-1).square().mean(),
        ]
    )


def held_out(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    return next_character(net, data, data["validation"], draw["held"])


def score(net: Net, data: Tensors, split: Split) -> Tensor:
    """The perplexity: e to the mean cross-entropy."""
    text = data[split]
    return next_character(net, data, text, torch.arange(len(text) - CONTEXT, device=text.device)).exp()


def next_character(net: Net, data: Tensors, text: Tensor, places: Tensor) -> Tensor:
    return cross_entropy(net(context(data, text, places), "trunk", "next"), text[places + CONTEXT])


def context(data: Tensors, text: Tensor, places: Tensor) -> Tensor:
    """The 16 characters from each place on, one column per character."""
    window = places[:, None] + torch.arange(CONTEXT, device=places.device)
    return data["columns"][text[window]].flatten(1)


TASK = Task(
    name="charlm",
    terms=TERMS,
    metric="perplexity of the next character",
    higher=False,
    steps=1000,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 4.16, 2.26, 1.91, 1.84.
    lr=1e-2,
    shared=("trunk.",),
    last=("trunk.2.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out,
    score=score,
)
