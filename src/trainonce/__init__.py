"""Learn the weights of your losses in one training run, as in "You Only Train Once" (Sakaridis 2025).

>>> import torch, trainonce
>>> model = torch.nn.Linear(4, 1)
>>> criterion = trainonce.CompositeLoss(["fit", "small"])
>>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
>>> _ = trainonce.attach(optimizer, criterion)
>>> output = model(torch.randn(8, 4))
>>> loss = criterion(fit=((output - 1) ** 2).mean(), small=(model.weight**2).sum())
>>> loss.backward()
>>> _ = optimizer.step()
"""

from typing import TYPE_CHECKING

from trainonce import lazy as _lazy

if TYPE_CHECKING:
    from trainonce import functional as functional
    from trainonce import health as health
    from trainonce import report as report
    from trainonce import study as study
    from trainonce.attachment import Attachment as Attachment
    from trainonce.attachment import attach as attach
    from trainonce.balance import BalancedLoss as BalancedLoss
    from trainonce.composite import CompositeLoss as CompositeLoss
    from trainonce.fixed import FixedLoss as FixedLoss
    from trainonce.fixed import Replay as Replay
    from trainonce.history import History as History
    from trainonce.optim import SGDW as SGDW
    from trainonce.parameters import keep_out as keep_out
    from trainonce.parameters import model_parameters as model_parameters
    from trainonce.weighting import LossWeighting as LossWeighting
else:
    __getattr__, __dir__ = _lazy.exports(
        __name__,
        {
            "SGDW": "optim",
            "Attachment": "attachment",
            "BalancedLoss": "balance",
            "CompositeLoss": "composite",
            "FixedLoss": "fixed",
            "History": "history",
            "LossWeighting": "weighting",
            "Replay": "fixed",
            "attach": "attachment",
            "keep_out": "parameters",
            "model_parameters": "parameters",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "SGDW",
    "Attachment",
    "BalancedLoss",
    "CompositeLoss",
    "FixedLoss",
    "History",
    "LossWeighting",
    "Replay",
    "attach",
    "functional",
    "health",
    "keep_out",
    "model_parameters",
]
