"""The report of a study: one HTML page that opens with the answer, and its figures, one function each.

>>> from trainonce import report
>>> report.write("nowhere")
Traceback (most recent call last):
FileNotFoundError: There is no study in nowhere.

In a notebook each figure is ``report.cost_quality(summary)`` and the like, of a
:class:`~trainonce.study.Summary`; ``axes=`` draws it on given axes. A figure that the study lacks the data for raises
:class:`NothingToDrawError`, which says what is missing.
"""

from trainonce.report.build import write as write
from trainonce.report.figures import NothingToDrawError as NothingToDrawError
from trainonce.report.figures import cost_quality as cost_quality
from trainonce.report.figures import differences as differences
from trainonce.report.figures import drives as drives
from trainonce.report.figures import exponents as exponents
from trainonce.report.figures import heat_map as heat_map
from trainonce.report.figures import loss as loss
from trainonce.report.figures import parallel_coordinates as parallel_coordinates
from trainonce.report.figures import progress as progress
from trainonce.report.figures import response_curve as response_curve
from trainonce.report.figures import seeds as seeds
from trainonce.report.figures import sensitivity as sensitivity
from trainonce.report.figures import sensitivity_weights as sensitivity_weights
from trainonce.report.figures import simplex as simplex
from trainonce.report.figures import weights as weights

__all__ = [
    "NothingToDrawError",
    "cost_quality",
    "differences",
    "drives",
    "exponents",
    "heat_map",
    "loss",
    "parallel_coordinates",
    "progress",
    "response_curve",
    "seeds",
    "sensitivity",
    "sensitivity_weights",
    "simplex",
    "weights",
    "write",
]
