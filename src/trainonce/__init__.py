"""Learn the weights of your losses in one training run, as in "You Only Train Once" (Sakaridis 2025).

>>> import torch, trainonce
>>> model = torch.nn.Linear(4, 1)
>>> criterion = trainonce.CompositeLoss(["fit", "small"], init=0.1)
>>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
>>> _ = trainonce.attach(optimizer, criterion, decay=2.0)
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
    from trainonce.composite import CompositeLoss as CompositeLoss
    from trainonce.fixed import FixedLoss as FixedLoss
    from trainonce.fixed import ReplayLoss as ReplayLoss
    from trainonce.fixed import replay as replay
    from trainonce.halving import Halving as Halving
    from trainonce.history import History as History
    from trainonce.optim import SGDW as SGDW
    from trainonce.parameters import keep_out as keep_out
    from trainonce.parameters import model_parameters as model_parameters
    from trainonce.units import GradientUnits as GradientUnits
    from trainonce.units import HeldOut as HeldOut
else:
    __getattr__, __dir__ = _lazy.exports(
        __name__,
        {
            "SGDW": "optim",
            "Attachment": "attachment",
            "CompositeLoss": "composite",
            "FixedLoss": "fixed",
            "GradientUnits": "units",
            "Halving": "halving",
            "HeldOut": "units",
            "History": "history",
            "ReplayLoss": "fixed",
            "attach": "attachment",
            "keep_out": "parameters",
            "model_parameters": "parameters",
            "replay": "fixed",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "SGDW",
    "Attachment",
    "CompositeLoss",
    "FixedLoss",
    "GradientUnits",
    "Halving",
    "HeldOut",
    "History",
    "ReplayLoss",
    "attach",
    "functional",
    "health",
    "keep_out",
    "model_parameters",
    "replay",
]
