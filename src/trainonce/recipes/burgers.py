"""Burgers' equation, solved by a network that never sees the solution: three terms whose balance matters.

.. math:: u_t + u u_x = \\nu u_{xx}, \\quad u(0, x) = -\\sin \\pi x, \\quad u(t, \\pm 1) = 0, \\quad \\nu = 0.01 / \\pi

- ``initial``, the base: where the solution starts from;
- ``residual``: the equation at points within 0 < t < 1, -1 < x < 1;
- ``boundary``: the solution is 0 at both ends.

u = 0 satisfies residual and boundary; the initial condition excludes it. What follows from it is a shock at x = 0.
The exact solution is known as a quotient of integrals, so nothing is downloaded and nothing but torch is needed.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Generator, Tensor, nn

from trainonce.study import task

if TYPE_CHECKING:
    from trainonce.study import Trial

TERMS = ("initial", "residual", "boundary")
VISCOSITY = 0.01 / math.pi
INSIDE, EDGE = (610, 377), 32  # points in a batch: two neighbouring Fibonacci numbers; at the ends, and at the start
INSTANTS, PLACES = 201, 513  # the grid of which the held-out points are a random choice
VALIDATION, TEST = 5_000, 10_000


# Data


class Part(NamedTuple):
    """Some points, each a time and a place, and the exact solution there, in float64."""

    points: Tensor
    solution: Tensor


class Data(NamedTuple):
    validation: Part
    test: Part


class Batch(NamedTuple):
    """Points to train at, each a time and a place."""

    inside: Tensor
    boundary: Tensor
    initial: Tensor


@functools.cache
def load() -> Data:
    """The held-out points: always the same ones, no point in both parts."""
    instants = torch.linspace(0, 1, INSTANTS, dtype=torch.float64)
    places = torch.linspace(-1, 1, PLACES, dtype=torch.float64)
    order = torch.randperm(INSTANTS * PLACES, generator=torch.Generator().manual_seed(0))
    chosen = torch.cartesian_prod(instants, places)[order[: VALIDATION + TEST]].tensor_split([VALIDATION])
    return Data(*(Part(points, exact(*points.T)) for points in chosen))


def exact(t: Tensor, x: Tensor, nodes: int = 96) -> Tensor:
    r"""The solution by Cole and Hopf, in float64.

    .. math:: u(t, x) = -\frac{\int \sin(\pi y) \, g(y, z) \, dz}{\int g(y, z) \, dz}, \quad
        g(y, z) = e^{-z^2} e^{-\cos(\pi y) / 2 \pi \nu}, \quad y = x - z \sqrt{4 \nu t}

    :param nodes: Of the Gauss-Hermite quadrature. 96 are exact to rounding up to t = 1.

    >>> exact(torch.tensor([0.5]), torch.tensor([-0.25])).item()  # doctest: +ELLIPSIS
    0.84735...
    """
    z, log_weights = gauss_hermite(nodes)
    t, x = t.double()[:, None], x.double()[:, None]
    y = x - z * (4 * VISCOSITY * t).sqrt()
    # Weights down to e^-170 meet values up to e^50, so all stay logarithms until the quotient is taken.
    shares = (log_weights - torch.cos(math.pi * y) / (2 * math.pi * VISCOSITY)).softmax(1)
    return -(shares * torch.sin(math.pi * y)).sum(1)


@functools.cache
def gauss_hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """The nodes of the quadrature for the weight exp(-z^2), and the logarithms of their weights.

    An eigenvalue solver would also give the weights, but the small ones, which matter here, with no correct digit.
    """
    beside = (torch.arange(1, nodes, dtype=torch.float64) / 2).sqrt()
    z = torch.linalg.eigvalsh(beside.diag(1) + beside.diag(-1))
    previous, current = torch.zeros_like(z), math.pi**-0.25 * torch.exp(-z.square() / 2)
    for k in range(1, nodes):  # the orthonormal Hermite functions
        previous, current = current, z * math.sqrt(2 / k) * current - math.sqrt((k - 1) / k) * previous
    return z, -z.square() - torch.log(nodes * current.square())


def draw(rng: Generator, device: torch.device) -> Batch:
    """Lattices that cover the domain evenly, each at a random offset, so that every point is as likely as any other.

    With as many independent points the error is two to three times as large.
    """
    square, line = lattices(device)
    offset = torch.rand(4, generator=rng).to(device)
    t, x = ((square + offset[:2]) % 1).unbind(1)
    end, start = (line + offset[2]) % 1, (line + offset[3]) % 1
    sides = torch.ones_like(end)
    sides[::2] = -1
    return Batch(
        torch.stack([t, 2 * x - 1], 1),
        torch.stack([end, sides], 1),
        torch.stack([torch.zeros_like(start), 2 * start - 1], 1),
    )


@functools.cache
def lattices(device: torch.device) -> tuple[Tensor, Tensor]:
    """The Fibonacci lattice in the unit square, and equal steps on the unit interval."""
    count, turn = INSIDE
    i = torch.arange(count)
    square = torch.stack([i / count, i * turn % count / count], 1)
    return square.to(device), (torch.arange(EDGE) / EDGE).to(device)


# Model


class Flow(NamedTuple):
    """The network's u, its derivative in x, and u_t - ν u_xx."""

    u: Tensor
    slope: Tensor
    drift: Tensor


class Model(nn.Module):
    """A small network with tanh, from time and place to u."""

    def __init__(self, width: int = 24, depth: int = 4) -> None:
        super().__init__()
        sizes = [2, *[width] * depth, 1]
        self.layers = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))
        for layer in self._linear():
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, points: Tensor) -> Tensor:
        *hidden, last = self._linear()
        h = _centred(points)
        for layer in hidden:
            h = layer(h).tanh()
        u: Tensor = last(h)
        return u[:, 0]

    def flow(self, points: Tensor) -> Flow:
        """u and what the equation needs of its derivatives, carried forward through the layers with the values.

        For D = ∂_t - ν ∂_xx the chain rule reads D f(h) = f'(h) Dh - ν f''(h) h_x^2. So D goes forward as one
        derivative does, and one backward pass gives the gradients: two thirds of the time of differentiating u twice.
        """
        first, *others = self._linear()
        h = first(_centred(points))
        slope = first.weight[:, 1].expand_as(h)
        drift = (2 * first.weight[:, 0]).expand_as(h)  # time is doubled when it is centred
        for layer in others:
            value = h.tanh()
            rise = 1 - value * value
            drift = rise * torch.addcmul(drift, value * slope, slope, value=2 * VISCOSITY)  # tanh'' = -2 tanh tanh'
            slope = rise * slope
            h, slope, drift = layer(value), slope @ layer.weight.T, drift @ layer.weight.T
        return Flow(h[:, 0], slope[:, 0], drift[:, 0])

    def _linear(self) -> list[nn.Linear]:
        return cast("list[nn.Linear]", list(self.layers))


def _centred(points: Tensor) -> Tensor:
    """Time from -1 to 1, as the place is."""
    return torch.stack([2 * points[:, 0] - 1, points[:, 1]], 1)


# Losses


def losses(model: Model, batch: Batch) -> dict[str, Tensor]:
    """The three terms, each the mean square of what should be 0."""
    n, m = len(batch.inside), len(batch.boundary)
    u, slope, drift = model.flow(torch.cat(batch))  # one pass for all three
    inside, boundary, initial = u.tensor_split([n, n + m])
    residual = drift[:n] + inside * slope[:n]
    return {
        "initial": (initial - beginning(batch.initial[:, 1])).square().mean(),
        "residual": residual.square().mean(),
        "boundary": boundary.square().mean(),
    }


def beginning(x: Tensor) -> Tensor:
    """u at t = 0."""
    return -torch.sin(math.pi * x)


# Metrics


@torch.no_grad()
def error(model: nn.Module, part: Part) -> float:
    """The distance from the exact solution, in per cent of that solution, both as root mean squares."""
    u = model(part.points.float()).double()
    return 100 * float((u - part.solution).norm() / part.solution.norm())


# Task


# Chosen on the validation part with seeds 100 to 102; lr also with 103 to 105, and with 0 to 2 in view. At the ratios
# 1 : 1 : 10: lr, best of 0.01, 0.015, 0.02, 0.03; betas, best of (0.9, 0.999), (0.9, 0.99), (0.9, 0.9), (0.95, 0.95),
# (0.98, 0.98), where the first, torch's default, leaves 26 % of error, the last three 3 to 4 %; width and depth, best
# of 16 x 4, 20 x 4, 20 x 5, 24 x 4, 32 x 3. init, decay and the exponents' rate are the arena's for equations.
@task(
    terms=TERMS,
    metric="error",
    direction="minimize",
    unit="%",
    margin=1.0,
    yoto={"init": 1.0, "decay": 20.0, "lr": "model"},
    seconds=7.0,
)
def burgers(trial: Trial, *, steps: int = 1500, lr: float = 2e-2) -> dict[str, float]:
    """Burgers' equation by a physics-informed network: initial condition, residual, boundary."""
    device = trial.device
    data = Data(*(Part(*(column.to(device) for column in part)) for part in load()))
    rng = torch.Generator().manual_seed(trial.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)
        model = Model().to(device)
    known = Part(*(column.float() for column in data.validation))
    criterion = trial.criterion(validation=lambda: (model(known.points) - known.solution).square().mean())
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.95, 0.95), fused=True)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in trial.loop([model, schedule, rng]):
        optimizer.zero_grad()
        criterion(losses(model, draw(rng, device))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, steps // 27) == 0:
            trial.report(step + 1, error=error(model, data.validation))
    return {"validation/error": error(model, data.validation), "test/error": error(model, data.test)}
