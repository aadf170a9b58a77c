"""Small depth networks, and images for them."""

import torch

from trainonce.recipes.depth.model.network import UniDepth

CPU = torch.device("cpu")


def images(*size, batch=2):
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))


def small(**more):
    torch.manual_seed(0)
    return UniDepth("vit-tiny", 32, 2, (1, 1, 1), **more)
