"""All figures, one line each, in the order of the page: functions that also work in a notebook.

Each takes a :class:`~trainonce.study.Summary` and, to be part of a larger figure, the axes to draw on, and returns
the figure. It raises :class:`~trainonce.report.NothingToDrawError`, which says what is missing, if the study lacks
the data. To add a figure, write a file like ``cost_quality.py`` and import its function here, at its place on the page.
"""

# The order of these lines is the order on the page.
# isort: off
from trainonce.report.figures.cost_quality import cost_quality as cost_quality
from trainonce.report.figures.differences import differences as differences
from trainonce.report.figures.seeds import seeds as seeds
from trainonce.report.figures.ratios import ratios as ratios
from trainonce.report.figures.exponents import exponents as exponents
from trainonce.report.figures.alignment import alignment as alignment
from trainonce.report.figures.response_curve import response_curve as response_curve
from trainonce.report.figures.heat_map import heat_map as heat_map
from trainonce.report.figures.simplex import simplex as simplex
from trainonce.report.figures.parallel_coordinates import parallel_coordinates as parallel_coordinates
from trainonce.report.figures.loss import loss as loss
from trainonce.report.figures.progress import progress as progress
from trainonce.report.figures.sensitivity import sensitivity as sensitivity
from trainonce.report.figures.sensitivity_ratios import sensitivity_ratios as sensitivity_ratios
from trainonce.report.figures.drives import drives as drives
# isort: on

from trainonce.report.catalogue import collect as _collect

CATALOGUE = _collect(globals())
