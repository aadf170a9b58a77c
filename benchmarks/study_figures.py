"""Draw the figures of docs/results that are figures of a report, from the kept records.

python benchmarks/study_figures.py docs/results/figures
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from _tables import title_of
from matplotlib.text import Text
from records import open_study

from trainonce import report
from trainonce.report.drawing import render
from trainonce.study import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = Path(__file__).parents[1] / "docs" / "results" / "data"

#: The study and the function of each figure.
FIGURES = {
    "study-distillation-cost-quality": ("study/distillation", report.cost_quality),
    "study-distillation-response-curve": ("study/distillation", report.response_curve),
    "study-digits-cost-quality": ("study/digits", report.cost_quality),
    "study-digits-simplex": ("study/digits", report.simplex),
    "study-burgers-cost-quality": ("study/burgers", report.cost_quality),
    "study-burgers-simplex": ("study/burgers", report.simplex),
    "segmentation-camvid-response-curve": ("segmentation/camvid", report.response_curve),
    "segmentation-streets-response-curve": ("segmentation/streets-sgdw", report.response_curve),
    "depth-nyu-sensitivity": ("depth/nyu", report.sensitivity),
}


def draw(name: str) -> Figure:
    """The figure of that name, with the usual spelling of its metric."""
    study, function = FIGURES[name]
    with open_study(DATA / f"{study}.tar.xz") as folder:
        figure = function(Summary.read(folder))
    for text in figure.findobj(Text):
        text.set_text(title_of(text.get_text()))
    return figure


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        (folder / f"{name}.png").write_bytes(render.png(draw(name)))


if __name__ == "__main__":
    main()
