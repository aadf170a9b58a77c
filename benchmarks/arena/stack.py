"""Train S seeds times P points of a task at once, as one batched model in which each model is as if alone."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from benchmarks.arena import gradients
from benchmarks.arena.draws import Draws
from benchmarks.arena.graphs import Replay
from benchmarks.arena.rules import Point, Run, Seen, build
from benchmarks.arena.variant import Variant, factors, learning_rate, make_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.arena.task import Split, Task

MOMENTS = 36  # of a curve, evenly spaced: the ends of the rounds of halving and of ASHA are among them
SCORED_AT_ONCE = 32  # points; the splits are larger than batches


@dataclass(frozen=True)
class Result:
    """What the trainings gave. ``curve`` is the validation score, ``weights`` the weights (divided by their sum)."""

    moments: list[int]
    curve: Tensor  # (S, P, M)
    test: Tensor  # (S, P)
    weights: Tensor  # (S, P, M, K + 1)
    finite: Tensor  # (S, P): whether all parameters are
    seconds: float


class Stack:
    """The state of the trainings: parameters ``(S, P, ...)``, optimizer, rule, draws. ``train`` runs them to the end.

    Each seed's module is made after ``torch.manual_seed(seed)``, and all points of a seed start from it. The learning
    rate falls to 0 along half a cosine. Parameters, the rule's state and the counters are changed in place.

    :param graph: Run the step as a CUDA graph.
    """

    def __init__(
        self,
        task: Task,
        points: Sequence[Point],
        seeds: Sequence[int],
        *,
        variant: Variant | None = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        graph: bool = False,
    ) -> None:
        variant = variant or Variant()
        self.task, self.seeds, self.points = task, tuple(seeds), list(points)
        self.device, self.dtype = torch.device(device), dtype
        self.steps = variant.steps or task.steps
        self._lr = variant.lr or learning_rate(task, variant.optimizer)
        self.lr = torch.tensor(self._lr, device=self.device, dtype=torch.float32 if self._on_gpu else dtype)
        self._make_models()
        self.data = self._stack([task.data(seed) for seed in self.seeds])
        run = Run(self.seeds, len(task.terms), self.steps, self.lr, self.device, dtype)
        self.rule = build(self.points, run)
        self._scale = run.tensor(factors(task, variant))
        trained = [*self.parameters.values(), *self.rule.parameters()]
        self.optimizer = make_optimizer(variant.optimizer, trained, self.lr if self._on_gpu else self._lr, task.betas)
        self.draws = Draws(task.draw, self.seeds, self._move)
        self.step = torch.zeros((), dtype=torch.long, device=self.device)
        self._position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.weights = run.full(len(self.points), run.terms, 0.0)
        self._prepare_measuring(run)
        self._losses = self._mapped(lambda net, data, draw: task.losses(net, data, draw))
        self._held_out = self._mapped(lambda net, data, draw: task.held_out(net, data, draw))
        steps_of = {kind: lambda kind=kind: self._step(kind) for kind in (False, True)}
        captured = graph and self._on_gpu
        self._run: dict[bool, Callable[[], None]] = {k: Replay(f) if captured else f for k, f in steps_of.items()}

    # What is made once

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def _make_models(self) -> None:
        modules = []
        for seed in self.seeds:
            torch.manual_seed(seed)
            modules.append(self.task.model())
        count = len(self.points)
        start = self._stack([{n: p.detach() for n, p in module.named_parameters()} for module in modules])
        self.parameters = {
            name: value.unsqueeze(1).repeat(1, count, *(1,) * (value.dim() - 1)).requires_grad_()
            for name, value in start.items()
        }
        self.buffers = self._stack([dict(module.named_buffers()) for module in modules])
        self.module = modules[0].to(self.device)  # its own values are not used

    def _move(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

    def _stack(self, parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return {name: self._move(torch.stack([part[name] for part in parts])) for name in parts[0]}

    def _mapped(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """A function of a net as one of stacked parameters, buffers and more, for all seeds and points at once."""

        def alone(parameters: Any, buffers: Any, *more: Any) -> Tensor:
            return function(lambda *args: functional_call(self.module, (parameters, buffers), args), *more)

        def mapped(parameters: Any, *more: Any) -> Tensor:
            inner = vmap(alone, in_dims=(0, None, *(None for _ in more)))
            return vmap(inner, in_dims=(0, 0, *(0 for _ in more)))(parameters, self.buffers, *more)

        return mapped

    def _prepare_measuring(self, run: Run) -> None:
        due = self.rule.due()
        self._measures: list[bool] = due.any(1).tolist()
        self._due = due.to(self.device, self.dtype)
        names = list(self.parameters)
        prefixes = {"all": self.task.shared, "last": self.task.last}
        self._where = {p: [i for i, n in enumerate(names) if n.startswith(prefixes[p])] for p in self.rule.places}
        for place, found in self._where.items():
            if not found:
                raise ValueError(f"No parameter of {self.task.name} begins with any of {prefixes[place]}.")
        self._shared = sorted(set().union(*self._where.values())) if self._where else []
        shape = self.parameters.values()
        self.held_out_mean = (
            {str(i): torch.zeros_like(p, requires_grad=False) for i, p in enumerate(shape) if i in self._shared}
            if self.rule.held_out
            else None
        )
        self._measured = run.tensor([0.0] * len(self.points))
        self._held_mean = self.rule.held_mean()

    # A step

    def _set_lr(self) -> None:
        """Along half a cosine, from the counter on the device; optimizers on the CPU want a plain number."""
        self.lr.copy_(self._lr * (1 + torch.cos(math.pi * self.step.to(self.lr.dtype) / self.steps)) / 2)
        if not self._on_gpu:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr.item()

    def _step(self, measure: bool) -> None:
        self._set_lr()
        parameters = list(self.parameters.values())
        draw = self.draws.at(self._position)
        losses = self._losses(self.parameters, self.data, draw) * self._scale
        each, measurement = None, None
        if measure:
            self._follow_held_out(draw)
            each = gradients.of_each_term(losses, parameters)
            measurement = gradients.measure(each, self._where, self.held_out_mean)
        with torch.no_grad():
            seen = Seen(self.step, losses.detach(), measurement)
            self.rule.observe(seen)
            self.weights.copy_(self.rule.weights())
            if each is not None:
                found = gradients.combine(each, self.weights, parameters)
        if each is None:
            found = torch.autograd.grad(losses, parameters, self.weights, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            trained = [*parameters, *self.rule.parameters()]
            for parameter, gradient in zip(trained, [*found, *self.rule.gradients(seen)], strict=True):
                parameter.grad = gradient.contiguous()  # fused kernels want the parameter's own layout
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.rule.after_step()
            self.step.add_(1)
            self._position.add_(1)

    def _follow_held_out(self, draw: Mapping[str, Tensor]) -> None:
        if self.held_out_mean is None:
            return
        shared = [list(self.parameters.values())[i] for i in self._shared]
        loss = self._held_out(self.parameters, self.data, draw).sum()
        found = torch.autograd.grad(loss, shared, allow_unused=True)
        due = self._due.index_select(0, self.step.view(1)).squeeze(0)
        first = due * (self._measured == 0)
        with torch.no_grad():
            gradients.follow(self.held_out_mean, found, 1 - due * (1 - self._held_mean), first)
            self._measured.add_(due)

    # The training

    def train(
        self, say: Callable[[str], None] = lambda text: None, after: Callable[[int], None] = lambda step: None
    ) -> Result:
        """All steps, with the validation score read at the moments and the test score at the end.

        ``after`` is called after each step with how many have been made.
        """
        began, moments = time.perf_counter(), moments_of(self.steps)
        curve, weights, left = [], [], 0
        for step in range(self.steps):
            if left == 0:
                self.draws.fill(self.steps - step)
                self._position.zero_()
                left = self.draws.length
            self._run[self._measures[step]]()
            left -= 1
            after(step + 1)
            if step + 1 in moments:
                curve.append(self.score("validation"))
                weights.append(self.weights / self.weights.sum(-1, keepdim=True))
                say(f"{self.task.name}: step {step + 1} of {self.steps}, {time.perf_counter() - began:.0f} s")
        test = self.score("test").cpu()
        finite = torch.stack([p.detach().isfinite().flatten(2).all(-1) for p in self.parameters.values()]).all(0)
        return Result(
            moments,
            torch.stack(curve, dim=-1).cpu(),
            test,
            torch.stack(weights, dim=2).cpu(),
            finite.cpu(),
            time.perf_counter() - began,
        )

    @torch.no_grad()
    def take_from(self, points: Tensor) -> None:
        """Let every model go on from the state of another of its seed: ``points[s, p]`` says from which."""
        of_rules = [value for rule in self.rule.rules for value in vars(rule).values()]
        of_steps = [value for state in self.optimizer.state.values() for value in state.values()]
        held_out = [] if self.held_out_mean is None else [*self.held_out_mean.values()]
        for value in [*self.parameters.values(), *of_rules, *of_steps, *held_out]:
            if isinstance(value, Tensor) and value.shape[:2] == points.shape:
                index = points.reshape(*points.shape, *(1,) * (value.dim() - 2)).expand_as(value)
                value.copy_(value.gather(1, index))

    @torch.no_grad()
    def score(self, split: Split) -> Tensor:
        """The metric of every model, ``(S, P)``."""
        mapped = self._mapped(lambda net, data: self.task.score(net, data, split))
        parts = []
        for start in range(0, len(self.points), SCORED_AT_ONCE):
            some = {name: p.detach()[:, start : start + SCORED_AT_ONCE] for name, p in self.parameters.items()}
            parts.append(mapped(some, self.data))
        return torch.cat(parts, dim=1)


def moments_of(steps: int) -> list[int]:
    """After how many steps the validation score is read; the last is the end."""
    return sorted({max(1, round(steps * (i + 1) / MOMENTS)) for i in range(MOMENTS)})
