"""A plain PyTorch loop with two losses: the frequency of a noisy wave, and the clean wave.

The frequency is what we want to know. Removing the noise is an auxiliary task that shapes the
features of the network. The paper's rule learns the weights of the two losses in the same run.

    python examples/plain_torch.py

It trains for some seconds on a CPU and prints the losses on the way, the coefficients, and the
mean error of the frequency on new waves.
"""

import math

import torch
from torch import nn
from torch.nn.functional import mse_loss

import trainonce


def waves(count):
    """Noisy waves, the same waves without noise, and their frequencies in periods per window."""
    frequency = 2 + 4 * torch.rand(count, 1)
    phase = 2 * math.pi * torch.rand(count, 1)
    clean = torch.sin(2 * math.pi * frequency * torch.linspace(0, 1, 64) + phase)
    return clean + 0.5 * torch.randn_like(clean), clean, frequency


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.frequency, self.wave = nn.Linear(96, 1), nn.Linear(96, 64)

    def forward(self, x):
        features = self.features(x)
        return self.frequency(features), self.wave(features)


def main(steps=1500):
    torch.manual_seed(0)
    model = Net()
    criterion = trainonce.CompositeLoss(["frequency", "wave"])  # first the base
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    trainonce.attach(optimizer, criterion)  # before the scheduler
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    for step in range(1, steps + 1):
        noisy, clean, frequency = waves(64)
        found, wave = model(noisy)
        loss = criterion(frequency=mse_loss(found, frequency), wave=mse_loss(wave, clean))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % max(1, steps // 5) == 0:
            values = criterion.log_dict()
            print(
                f"step {step}:",
                *(f"{term} {values[f'loss/{term}']:.4f}" for term in criterion.terms),
            )

    print(criterion)
    noisy, _, frequency = waves(2000)
    with torch.no_grad():
        error = (model(noisy)[0] - frequency).abs().mean()
    print(f"mean error of the frequency on new waves: {error:.3f}")


if __name__ == "__main__":
    main()
