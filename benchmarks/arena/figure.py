"""Draw cost against mean regret of every rule and search, one panel for each group of tasks.

python -m benchmarks.arena.figure docs/results/data/arena/{judged,halving,judging}.jsonl.xz --out arena.png
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from benchmarks.arena import records, split, tasks
from benchmarks.arena.score import Row, score
from trainonce.report.drawing.style import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

OURS, PRINTED, FIXED = COLOURS["rule"], COLOURS["control"], COLOURS["fixed"]
PEER, SEARCH = COLOURS["peer"], COLOURS["search"]
#: The setting of halving that the judging tasks judged; its first round was shorter, and no start had a seat.
JUDGED_ROUNDS = "rounds=0.0277778/0.111111/0.333333 seat=False"
#: Of each rule that is drawn: its name in the figure, colour and marker.
LOOK = {
    "units": ("gradient balance", OURS, "o"),
    "units travel=4": ("balance, aligned", OURS, "s"),
    "halving": ("halving of it, no longer there", OURS, "*"),
    f"halving {JUDGED_ROUNDS}": ("the same, first setting", OURS, "p"),
    "printed": ("the paper's rule, init 1", PRINTED, "P"),
    "printed init=0.1": ("the paper's rule, init 0.1", PRINTED, "X"),
    "uniform": ("equal weights", FIXED, "s"),
    "uw": ("uncertainty weighting", PEER, "^"),
    "dwa": ("DWA", PEER, "<"),
    "gradnorm": ("GradNorm", PEER, "v"),
    "config": ("ConFIG", PEER, ">"),
    "upgrad": ("UPGrad", PEER, "d"),
    "famo": ("FAMO", PEER, "h"),
    "asha trials=27": ("ASHA, 27 points", SEARCH, "v"),
    "random search trials=20": ("random search, 20 points", SEARCH, "o"),
    "tpe trials=20": ("TPE, 20 points", SEARCH, "^"),
    "best grid point": ("best of the grid", "#1a1c20", "D"),
}
TICKS = (0, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def draw(rows: Sequence[Row], groups: dict[str, tuple[str, ...]]) -> Figure:
    figure = Figure(figsize=(5.2 * len(groups), 4.4), layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (title, names) in zip(panels, groups.items(), strict=True):
        _draw(axes, [row for row in rows if row.variant == "adam" and row.task in names])
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("cost, in trainings")
    panels[0].set_ylabel("mean regret against the best grid point")
    shown = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    labels = [label for label, _, _ in LOOK.values() if label in shown]
    panels[-1].legend(
        [shown[label] for label in labels], labels, fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1)
    )
    return figure


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.rule].append(row)
    single = [rule for rule in LOOK if rule in found and _mean(found[rule], "cost") < 1.01]
    for rule, (label, colour, marker) in LOOK.items():
        if rule in found:
            # rules of equal cost stand side by side
            beside = 0.86 + 0.28 * single.index(rule) / max(1, len(single) - 1) if rule in single else 1.0
            place, regret = _mean(found[rule], "cost") * beside, _mean(found[rule], "regret")
            size = 13 if marker == "*" else 7
            axes.plot(place, regret, marker, color=colour, markersize=size, label=label, clip_on=False)
    axes.axhline(0, color="#c9cdd3", linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(0.8, 30)
    axes.set_xticks([1, 2, 5, 10, 25], ["1", "2", "5", "10", "25"])
    axes.set_yscale("symlog", linthresh=0.5, linscale=1.6)
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)


def _mean(rows: Sequence[Row], name: str) -> float:
    return statistics.fmean(getattr(row, name) for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FIGURE")
    options = parser.parse_args(arguments)
    rows = score([r for file in options.files for r in records.read(file)], lambda name: tasks.get(name).higher)
    groups = {"15 development tasks": (*split.CHOOSING, *split.JUDGED), "8 held-out tasks": split.JUDGING}
    draw(rows, groups).savefig(options.out, dpi=150)


if __name__ == "__main__":
    main()
