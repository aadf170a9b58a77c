"""Draw the figure of the README, cost against quality on three tasks, from the records of the studies.

python benchmarks/front_figure.py docs/results/data/study/{distillation,digits,burgers}.tar.xz \\
    --out docs/figures/cost_quality.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from records import open_study

from trainonce.report.drawing.plans import expected_best
from trainonce.report.drawing.style import COLOURS
from trainonce.study import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The plans that are drawn, as the kept records name them: name in the figure, colour, marker, size.
LOOK = {
    "one-shot": ("one run, learned weights", COLOURS["rule"], "*", 17),
    "uniform": ("equal weights", COLOURS["fixed"], "s", 7),
    "uw": ("uncertainty weighting", COLOURS["peer"], "^", 8),
    "asha": ("successive halving", COLOURS["search"], "v", 8),
    "tpe": ("TPE", COLOURS["search"], "o", 7),
    "grid": ("best of the grid", "#1a1c20", "D", 7),
}
#: Of each task its title, and the range of the metric: the grid's cheapest end would hide the differences.
TASKS = {
    "distillation": ("Distillation, 2 terms", (77, 83)),
    "digits": ("Few labels (digits), 3 terms", (70, 86)),
    "burgers": ("PINN (Burgers), 3 terms", (-2, 85)),
}


def draw(axes: Axes, summary: Summary) -> None:
    """One task: each plan by its cost and its mean result with one standard deviation; the grid's expected line."""
    line = expected_best(summary)
    axes.plot([cost for cost, _ in line], [value for _, value in line], color="#a8adb5", linewidth=1.6, zorder=1)
    cheap = 0
    for plan, (_, colour, marker, size) in LOOK.items():
        row = next((row for row in summary.ranked if _is(row.plan, plan)), None)
        if row is None:
            continue
        beside = 1.0
        if row.cost < 1.1 and plan != "one-shot":
            cheap += 1
            beside = (1.22, 0.82)[cheap - 1]  # plans of equal cost stand side by side
        mean, deviation = row.chosen.mean, row.chosen.standard_deviation
        place = row.cost * beside
        axes.errorbar(place, mean, deviation, color=colour, linewidth=1.2, alpha=0.75, zorder=2)
        axes.plot(place, mean, marker, color=colour, markersize=size, zorder=4 if plan == "one-shot" else 3)
    axes.set_xscale("log")
    axes.set_xlim(0.62, 40)
    axes.set_xticks([1, 3, 10, 25], ["1", "3", "10", "25"])
    axes.minorticks_off()
    title, limits = TASKS[summary.task.name]
    axes.set_title(title, fontsize=11, loc="left", fontweight="bold")
    axes.set_ylim(limits)
    better = "higher" if summary.task.direction == "maximize" else "lower"
    axes.set_ylabel(f"test {summary.task.metric}, {summary.task.unit} ({better} is better)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e7e9ec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)


def _is(name: str, plan: str) -> bool:
    """Whether it is the plan: of the grid and the searches with any settings, of the others with the task's own."""
    return name == plan or (plan in ("grid", "asha", "tpe") and name.startswith((f"{plan}(", f"{plan}-")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    figure = Figure(figsize=(11, 3.7), layout="constrained")
    panels = figure.subplots(1, len(given.studies))
    for axes, study in zip(panels, given.studies, strict=True):
        with open_study(study) as folder:
            draw(axes, Summary.read(folder))
    figure.supxlabel("cost: full trainings", fontsize=9)
    handles = [
        axes.plot([], [], marker, color=colour, markersize=0.8 * size, label=name)[0]
        for name, colour, marker, size in LOOK.values()
    ]
    handles += axes.plot([], [], color="#a8adb5", linewidth=1.6, label="part of the grid, on average")
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8.5,
                  handletextpad=0.3, columnspacing=1.2)  # fmt: skip
    given.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(given.out, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
