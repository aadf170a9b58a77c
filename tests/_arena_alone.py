"""One model of the arena's toy task in plain PyTorch, to compare a stack with."""

import math

import torch
from _arena_toy import TOY

from benchmarks.arena.draws import OFFSET


def wide(tensors):
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}


class Alone:
    """A seed's model, data and draws. ``losses`` draws the next batch and sets the learning rate of its step."""

    def __init__(self, seed, steps=TOY.steps):
        self._steps, self._step = steps, 0
        torch.manual_seed(seed)
        self.model = TOY.model().double()
        self.data = wide(TOY.data(seed))
        self._generator = torch.Generator().manual_seed(OFFSET + seed)

    def losses(self):
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * (1 + math.cos(math.pi * self._step / self._steps)) / 2
        self._step += 1
        self.draw = wide(TOY.draw(self._generator))
        return TOY.losses(self.model, self.data, self.draw)

    def optimizer(self, more=(), name="adam"):
        trained = [*self.model.parameters(), *more]
        self._lr = TOY.lr if name == "adam" else TOY.sgd_lr
        if name == "adam":
            self._optimizer = torch.optim.Adam(trained, lr=self._lr, betas=TOY.betas)
        else:
            self._optimizer = torch.optim.SGD(trained, lr=self._lr, momentum=0.9)
        return self._optimizer

    def shared_gradient(self, loss, place="trunk."):
        """The gradient of a loss at the shared parameters, as one vector."""
        shared = [p for name, p in self.model.named_parameters() if name.startswith(place)]
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, shared, retain_graph=True)])


def distance(stack, at, point, model):
    """The largest difference between a model of the stack and a module."""
    return max((stack.parameters[n][at, point] - p).abs().max().item() for n, p in model.named_parameters())
