"""Choose a task's learning rate: equal weights, seeds 0 to 2, the best mean validation score of a few rates.

    python -m benchmarks.arena.rates digits mnist
    python -m benchmarks.arena.rates digits mnist fashion contrastive --optimizer sgd

All seeds and rates of a task train side by side. Judging tasks are trained here too, with equal weights alone.
As in the arena's runs, weights sum to 1 (which SGD feels) and the learning rate falls to 0 along half a cosine. A rate
whose score is not a number loses.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING

import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.arena.tasks import NAMES, get

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from benchmarks.arena.task import Net, Split, Task, Tensors

RATES = {"adam": (3e-4, 1e-3, 3e-3, 1e-2), "sgd": (0.01, 0.03, 0.1, 0.3, 1.0)}
SEEDS = (0, 1, 2)
OFFSET = 1_000_003  # the draws of a seed are not the numbers that made its first parameters


def train(
    task: Task,
    rates: Sequence[float],
    seeds: Sequence[int] = SEEDS,
    weights: Sequence[float] | None = None,
    optimizer: str = "adam",
    device: str = "cpu",
    steps: int | None = None,
) -> Callable[[Split], Tensor]:
    """Train every seed at every rate; what comes back gives the scores of a split, ``(seeds, rates)``."""
    steps = task.steps if steps is None else steps
    data = _stack([task.data(seed) for seed in seeds], device)
    module, parameters = _models(task, seeds, len(rates), device)
    generators = [torch.Generator().manual_seed(OFFSET + seed) for seed in seeds]
    ratios = torch.tensor(weights or [1.0] * len(task.terms), device=device)
    chosen = ratios / ratios.sum()
    lr = torch.tensor(rates, device=device)
    moments = [{name: torch.zeros_like(value) for name, value in parameters.items()} for _ in range(2)]

    def net_of(values: Tensors) -> Net:
        return lambda *inputs: functional_call(module, values, inputs)

    def objective(values: Tensors, data: Tensors, draw: Tensors) -> Tensor:
        return chosen @ task.losses(net_of(values), data, draw)

    gradients = vmap(vmap(grad(objective), in_dims=(0, None, None)))
    for step in range(steps):
        draws = _stack([task.draw(rng) for rng in generators], device)
        now = lr * (1 + math.cos(math.pi * step / steps)) / 2
        _update(parameters, gradients(parameters, data, draws), moments, now, step + 1, optimizer, task.betas)

    def score(split: Split) -> Tensor:
        with torch.no_grad():
            return vmap(vmap(lambda v, d: task.score(net_of(v), d, split), in_dims=(0, None)))(parameters, data)

    return score


def _models(task: Task, seeds: Sequence[int], rates: int, device: str) -> tuple[torch.nn.Module, Tensors]:
    """A module, and the parameters of one per seed, the same at every rate."""
    modules = []
    for seed in seeds:
        torch.manual_seed(seed)
        modules.append(task.model().to(device))
    parameters, _ = stack_module_state(modules)
    return modules[0], {
        name: value.detach()[:, None].repeat(1, rates, *[1] * (value.ndim - 1)) for name, value in parameters.items()
    }


def _stack(many: Sequence[Tensors], device: str) -> Tensors:
    return {name: torch.stack([one[name] for one in many]).to(device) for name in many[0]}


def _update(
    parameters: Tensors,
    gradients: Tensors,
    moments: list[Tensors],
    lr: Tensor,
    step: int,
    optimizer: str,
    betas: tuple[float, float],
) -> None:
    """One step of Adam, or of SGD with momentum 0.9, in place; ``lr`` has one entry per rate."""
    first, second = moments
    for name, value in parameters.items():
        gradient, rate = gradients[name], lr.view(-1, *[1] * (value.ndim - 2))
        if optimizer == "sgd":
            first[name].mul_(0.9).add_(gradient)
            value.sub_(rate * first[name])
            continue
        first[name].lerp_(gradient, 1 - betas[0])
        second[name].lerp_(gradient.square(), 1 - betas[1])
        size = (second[name] / (1 - betas[1] ** step)).sqrt() + 1e-8
        value.sub_(rate * first[name] / (1 - betas[0] ** step) / size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=NAMES, metavar="TASK")
    parser.add_argument("--optimizer", choices=RATES, default="adam")
    parser.add_argument("--rates", type=float, nargs="+", help="instead of the usual ones")
    parser.add_argument("--weights", type=float, nargs="+", help="instead of equal ones, to see that a task trains")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    rates = options.rates or RATES[options.optimizer]
    for task in map(get, options.tasks):
        started = time.perf_counter()
        arguments = (rates, SEEDS, options.weights, options.optimizer, options.device, options.steps)
        scores = train(task, *arguments)("validation").cpu()
        worst = -math.inf if task.higher else math.inf
        means = scores.nan_to_num(worst).mean(0)
        best = int(means.argmax() if task.higher else means.argmin())
        spread = scores.std(0)
        table = "  ".join(f"{rate:g}: {m:.2f} ± {s:.2f}" for rate, m, s in zip(rates, means, spread, strict=True))
        taken = time.perf_counter() - started
        print(f"{task.name}, {task.metric}, {taken:.0f} s\n  {table}\n  best: {rates[best]:g}", flush=True)


if __name__ == "__main__":
    main()
