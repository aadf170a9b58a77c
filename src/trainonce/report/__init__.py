"""The report of a study: its answer and table as text, one HTML page that opens with the answer, and its figures.

>>> from trainonce import report
>>> report.write("nowhere")
Traceback (most recent call last):
FileNotFoundError: There is no study in nowhere.

``print(report.text(summary))`` shows what the command prints. In a notebook each figure is a function of a
:class:`~trainonce.study.Summary`, such as
``report.cost_quality(summary)``; ``axes=`` draws it on given axes. A figure that the study lacks the data for raises
:class:`NothingToDrawError`, which says what is missing.
"""

from trainonce.report.build import write as write
from trainonce.report.build import write_data as write_data
from trainonce.report.drawing.style import NothingToDrawError as NothingToDrawError
from trainonce.report.figures import *  # noqa: F403 the list of figures is there, and only there
from trainonce.report.table import text as text
