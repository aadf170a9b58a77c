"""A physics-informed network for a damped string: u_tt + 0.4 u_t = u_xx / 4, for x in (0, 1).

The string starts at rest as a sine and is held at both ends. There are three losses: the initial
state (the base, since u = 0 solves everything else), the residual of the equation, the boundary.
Gradient balance keeps the gradients of the others about as strong as the base's. (On this small
problem equal weights do as well.)

    python examples/pinn.py

It trains for some seconds on a CPU and prints losses, coefficients, and the relative error.
"""

import math

import torch
from torch import nn

import trainonce

SPEED, DAMPING, END = 0.5, 0.2, 2.0


def exact(x, t):
    frequency = math.sqrt((math.pi * SPEED) ** 2 - DAMPING**2)
    swing = torch.cos(frequency * t) + DAMPING / frequency * torch.sin(frequency * t)
    return torch.sin(math.pi * x) * torch.exp(-DAMPING * t) * swing


def derivative(u, x):
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


def losses(u, points=128):
    """The three terms on newly drawn points."""
    x = torch.rand(points, 1, requires_grad=True)
    t = (END * torch.rand(points, 1)).requires_grad_()
    inside = u(x, t)
    u_x, u_t = derivative(inside, x), derivative(inside, t)
    residual = derivative(u_t, t) + 2 * DAMPING * u_t - SPEED**2 * derivative(u_x, x)

    zero = torch.zeros(points, 1, requires_grad=True)
    start = u(x, zero)
    position, velocity = start - exact(x, zero), derivative(start, zero)
    side = torch.randint(2, (points, 1)).float()
    return {
        "initial": position.square().mean() + velocity.square().mean(),
        "residual": residual.square().mean(),
        "boundary": u(side, t).square().mean(),
    }


def main(steps=1500):
    torch.manual_seed(0)
    layers = [nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)]
    net = nn.Sequential(*layers)

    def u(x, t):
        return net(torch.cat([2 * x - 1, t - 1], dim=1))

    criterion = trainonce.BalancedLoss(["initial", "residual", "boundary"])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    trainonce.attach(optimizer, criterion)
    for step in range(1, steps + 1):
        terms = losses(u)
        optimizer.zero_grad()
        criterion(terms).backward()
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            print(f"step {step}:", *(f"{term} {loss.item():.5f}" for term, loss in terms.items()))

    print(criterion)
    x, t = torch.rand(2000, 1), END * torch.rand(2000, 1)
    with torch.no_grad():
        error = (u(x, t) - exact(x, t)).norm() / exact(x, t).norm()
    print(f"relative error: {100 * error:.2f} %")


if __name__ == "__main__":
    main()
