"""A variational autoencoder on MNIST, judged by how well its latent space tells the digits apart.

- ``reconstruction``, the base: cross-entropy of the pixels, summed over them;
- ``kl``: the divergence of the posterior from the standard normal distribution.

With equal weights their sum is the negative evidence lower bound; the ratio is the beta of a beta-VAE. No term knows
the digits. The metric is the accuracy of the nearest class mean among the latent means, where the class means are those
of 500 labelled images apart from all others: without the divergence the distances in the latent space mean little, with
too much of it the posterior is the same for all images. The held-out loss is a differentiable stand-in of that metric,
the cross-entropy of the classes with minus half the squared distances as logits.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from benchmarks.arena.data import gather, generator, pool, split
from benchmarks.arena.task import Net, Split, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, accuracy, cross_entropy, mlp

SIDE, LATENT = 14, 10
REFERENCE, TRAIN, VALIDATION, TEST = 500, 3_000, 1_000, 4_000
BATCH = 128


def data(seed: int) -> Tensors:
    everything, rng = pool("mnist", SIDE), generator("beta_vae", seed)
    counts = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
    made = gather(everything, split(everything, rng, REFERENCE, **counts))
    # What takes the mean of each class of the reference.
    return made | {"to_means": F.one_hot(made["labelled_y"], 10).float().T / (REFERENCE // 10)}


def model() -> nn.Module:
    return Parts(encoder=mlp(SIDE**2, 128, 2 * LATENT), decoder=mlp(LATENT, 128, SIDE**2))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(TRAIN, (BATCH,), generator=rng),
        "noise": torch.randn(BATCH, LATENT, generator=rng),
        "held": torch.randint(VALIDATION, (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    images = data["train"][draw["batch"]]
    mean, log_variance = net(images, "encoder").split(LATENT, -1)
    logits = net(mean + (log_variance / 2).exp() * draw["noise"], "decoder")
    reconstruction = (F.softplus(logits) - images * logits).sum(-1).mean()
    kl = (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1).mean() / 2
    return torch.stack([reconstruction, kl])


def held_out(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    held = draw["held"]
    return cross_entropy(closeness(net, data, data["validation"][held]), data["validation_y"][held])


def score(net: Net, data: Tensors, split: Split) -> Tensor:
    return accuracy(closeness(net, data, data[split]), data[f"{split}_y"])


def closeness(net: Net, data: Tensors, images: Tensor) -> Tensor:
    """Minus half the squared distances of images from the class means, in the space of latent means."""
    means = data["to_means"] @ net(data["labelled"], "encoder")[:, :LATENT]
    latent = net(images, "encoder")[:, :LATENT]
    return -(latent[:, None] - means).square().sum(-1) / 2


TASK = Task(
    name="beta_vae",
    terms=("reconstruction", "kl"),
    metric="accuracy of nearest class mean, %",
    higher=True,
    steps=1000,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 46.1, 68.2, 74.4, 73.3.
    lr=3e-3,
    shared=("encoder.",),
    last=("encoder.2.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out,
    score=score,
)
