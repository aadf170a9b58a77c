"""Accelerate with gradient accumulation: a network that learns two functions from noisy values.

The first function is what we want to know. The second is made of the same parts, so it helps to
learn the first. An optimizer step averages the gradients of four micro-batches.

    pip install ".[accelerate]"
    accelerate launch examples/accelerate_accumulation.py

Plain `python` works, too. It trains for some seconds on a CPU and prints the coefficients and
the error of the first function against its values without noise.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations.accelerate import attach


def functions(x):
    """A sum and a difference of the same two parts."""
    one, other = torch.sin(2 * x[:, 0]), x[:, 1] * x[:, 2]
    return torch.stack([one + other, one - other], dim=1)


def main(epochs=20):
    set_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=4)
    x = torch.randn(1024, 8)
    y = functions(x) + 0.5 * torch.randn(len(x), 2)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)

    hidden = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    model = nn.Sequential(hidden, nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    criterion = trainonce.CompositeLoss(["sum", "difference"])
    attach(accelerator, optimizer, criterion)  # before the scheduler and before prepare
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader) // 4)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)

    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                errors = (model(x) - y).square().mean(0)
                accelerator.backward(criterion(errors))  # a vector, in the order of the terms
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    accelerator.print(criterion)
    x = torch.randn(4096, 8, device=accelerator.device)
    with torch.no_grad():
        error = mse_loss(model(x)[:, 0], functions(x)[:, 0]).sqrt()
    accelerator.print(f"error of the sum without noise: {error:.3f}")


if __name__ == "__main__":
    main()
