"""Draw the figures of docs/results that are figures of a report, from the kept records.

python benchmarks/study_figures.py docs/results/figures
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from _tables import METRICS
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
    "depth-nyu-sensitivity": ("depth/nyu", report.sensitivity),
}


def spell_metrics(figure: Figure) -> None:
    """Write metrics with their usual spelling, as in mIoU."""
    for text in figure.findobj(Text):
        for name, title in METRICS.items():
            text.set_text(text.get_text().replace(name, title))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (study, draw) in FIGURES.items():
        with open_study(DATA / f"{study}.tar.xz") as unpacked:
            figure = draw(Summary.read(unpacked))
        spell_metrics(figure)
        (folder / f"{name}.png").write_bytes(render.png(figure))


if __name__ == "__main__":
    main()
