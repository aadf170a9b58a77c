"""Draw the paper's Fig. 2: exponents and weights of the paper's rule from several starts, from a study or its records.

python benchmarks/starts.py docs/results/data/depth/nyu.tar.xz FIGURE.png [PLAN]

Above: each exponent over the steps, and the first two against each other, from a ring at the start to a dot at the end.
Below: the weights over the steps. One line per seed; the colour is the value of the sweep, by default the first one's.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from records import open_study

from trainonce.report.drawing import curves, render, style, sweeps
from trainonce.study import Summary

if TYPE_CHECKING:
    from torch import Tensor

    from trainonce.study.record import Record

#: The part of the colour map that can be told from white.
DARKEST, LIGHTEST = 0.0, 0.88


def draw(summary: Summary, plan: str | None = None) -> Figure:
    """Draw the runs of a sweep."""
    row, (base, *rest) = sweeps.find(summary, plan), summary.task.terms
    if len(rest) < 2:
        raise ValueError(
            f"The plane needs two auxiliary terms or more; the task {summary.task.name!r} has {base}, {rest[0]}."
        )
    found = sweeps.values(row)
    shades = torch.linspace(DARKEST, LIGHTEST, len(found)).tolist()
    colours = [mpl.colormaps["viridis"](shade) for shade in shades]
    with style.panel(None):
        figure = Figure(figsize=(3.3 * (1 + len(rest)), 5.6), layout="constrained")
        above, below = figure.subplots(2, 1 + len(rest))
        for (_, outcome), colour in zip(found, colours, strict=True):
            for record in outcome.records.values():
                steps, exponents = read(summary, record)
                weights = torch.cat([torch.zeros(1, len(steps)), exponents]).softmax(0)
                for axes, values in zip([*above[:-1], *below], [*exponents, *weights[1:], weights[0]], strict=True):
                    axes.plot(steps, values, color=colour, linewidth=1.3)
                x, y = exponents[0], exponents[1]
                above[-1].plot(x, y, color=colour, linewidth=1.3, gid="path")
                above[-1].plot(x[0], y[0], "o", color=colour, markerfacecolor="none", markersize=7, gid="start")
                above[-1].plot(x[-1], y[-1], "o", color=colour, markersize=7, gid="end")
        for axes, term in zip(above[:-1], rest, strict=True):
            axes.set_title(f"exponent of {term}", loc="left", fontsize=10.5)
        for axes, term in zip(below, [*rest, base], strict=True):
            axes.set_title(f"weight of {term}", loc="left", fontsize=10.5)
            axes.set(ylim=(0, 1), xlabel="optimizer step")
        above[-1].set_title("the two exponents", loc="left", fontsize=10.5)
        above[-1].set(xlabel=f"exponent of {rest[0]}", ylabel=f"exponent of {rest[1]}")
        above[-1].axline((0, 0), slope=1, color=style.INK, linewidth=0.7, alpha=0.4, zorder=1)
        for axes in (*above, *below):
            style.grid_lines(axes)
        handles = [Line2D([], [], color=colour, linewidth=2) for colour in colours]
        names = [f"{sweeps.setting(row)} {value:g}" for value, _ in found]
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def read(summary: Summary, record: Record) -> tuple[list[float], Tensor]:
    """Return the steps and the exponents of a run, one row per auxiliary term, with those after the last step."""
    columns, rest = curves.read_history(summary, record), summary.task.terms[1:]
    if columns is None:
        raise ValueError(f"The trial {record.key} has no history, which the figure is drawn from.")
    over_steps = torch.stack([columns[f"exponent/{term}"] for term in rest])
    last = torch.tensor([[math.log(ratio)] for ratio in record.ratios[1:]])
    return [*columns["step"].tolist(), columns["step"][-1].item() + 1], torch.cat([over_steps, last], 1)


def main() -> None:
    study, file, *plan = sys.argv[1:]
    try:
        with open_study(study) as folder:
            figure = draw(Summary.read(folder), *plan)
    except ValueError as reason:
        sys.exit(str(reason))
    with open(file, "wb") as out:
        out.write(render.png(figure))


if __name__ == "__main__":
    main()
