"""The weights of raw losses, from the exponents and the units: pure functions of a criterion's meter.

``base`` is the weight at which the base is held; None where the weights are learned and have the sum 1, as in the
paper. Were the sum of others held, it would follow the unit of whichever term has the smallest gradient, and so would
the steps of SGD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from trainonce import functional

if TYPE_CHECKING:
    from torch import Tensor

    from trainonce.terms import Present
    from trainonce.units.meter import UnitMeter


def units(meter: UnitMeter) -> Tensor:
    """What each raw loss is divided by, relative to the base."""
    return 1 / nn.functional.pad(meter.ratios(), (1, 0), value=1.0)


def per_unit(meter: UnitMeter, present: Present | None = None) -> Tensor:
    """What each raw loss is multiplied by to be in units: 1 for the base, less for terms that are coming in."""
    factors = nn.functional.pad(meter.factors(), (1, 0), value=1.0)
    return factors if present is None else factors.index_select(0, present.indices)


def of_raw(meter: UnitMeter, exponents: Tensor, base: float | None) -> Tensor:
    """What each raw loss is multiplied by in the sum: its weight in units, per unit."""
    shares = functional.weights(exponents) if base is None else base * nn.functional.pad(exponents, (1, 0)).exp()
    return shares * per_unit(meter)


def version(meter: UnitMeter, exponents: Tensor) -> object:
    """Equal as long as nothing has changed that the weights depend on."""
    parts = (exponents, meter.norms, meter.peaks, meter.risen, meter.asked, meter.raw)
    return tuple((id(part), part._version, part.device) for part in parts)
