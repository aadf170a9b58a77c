"""All figures, in the order of the page: one function each, usable in a notebook.

Each takes a :class:`~trainonce.study.Summary` and, if it is to be part of a larger figure, the axes to draw on, and
returns the figure. Where the study lacks what it needs it raises :class:`NothingToDrawError`, which says what.
"""

from __future__ import annotations

from trainonce.report.drawing.style import NothingToDrawError as NothingToDrawError
from trainonce.report.figures.cost_quality import cost_quality as cost_quality
from trainonce.report.figures.dynamics import drives as drives
from trainonce.report.figures.dynamics import exponents as exponents
from trainonce.report.figures.dynamics import loss as loss
from trainonce.report.figures.dynamics import progress as progress
from trainonce.report.figures.dynamics import weights as weights
from trainonce.report.figures.heat_map import heat_map as heat_map
from trainonce.report.figures.per_seed import differences as differences
from trainonce.report.figures.per_seed import seeds as seeds
from trainonce.report.figures.response_curve import response_curve as response_curve
from trainonce.report.figures.sensitivity import sensitivity as sensitivity
from trainonce.report.figures.sensitivity import sensitivity_weights as sensitivity_weights
from trainonce.report.figures.simplex import parallel_coordinates as parallel_coordinates
from trainonce.report.figures.simplex import simplex as simplex
