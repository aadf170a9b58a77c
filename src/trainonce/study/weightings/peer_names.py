"""TorchJD's weighting methods by the names of their plans. Without TorchJD and torch: `trainonce plans` lists them."""

from __future__ import annotations

from typing import NamedTuple


class PeerType(NamedTuple):
    """A scalarizer of TorchJD as a plan: its class, and what it is, in a line."""

    scalarizer: str
    about: str


#: The peers by the name of their plan.
PEERS = {
    "uw": PeerType("UW", "uncertainty weighting"),
    "imtl-l": PeerType("IMTLL", "impartial multi-task learning, on losses (IMTL-L)"),
    "dwa": PeerType("DWA", "dynamic weight average (temperature, epoch in steps)"),
    "famo": PeerType("FAMO", "fast adaptive multitask optimization (FAMO), a batch late"),
    "geometric": PeerType("GeometricMean", "the geometric mean of the losses"),
    "random-weights": PeerType("Random", "new random weights in every step"),
}

#: Scalarizers of TorchJD that are no plan, and why.
LEFT_OUT = {
    "Mean": "it is the plan 'uniform'",
    "Sum": "it is the plan 'uniform' with a larger learning rate",
    "Constant": "it is the plan 'fixed'",
    "COSMOS": "it needs a preference between the losses, which is what a search looks for",
    "PBI": "it needs a preference between the losses, which is what a search looks for",
    "STCH": "its smoothing and reference point are in the losses' units, so they would have to be searched too",
}
