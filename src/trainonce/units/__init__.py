"""Gradient units: each term divided by a norm of its gradient, so that the losses' own scales do not matter."""

from trainonce.units.meter import UnitMeter as UnitMeter
from trainonce.units.meter import saved_units as saved_units
from trainonce.units.ranks import Ranks as Ranks
from trainonce.units.settings import GradientUnits as GradientUnits
from trainonce.units.settings import HeldOut as HeldOut
