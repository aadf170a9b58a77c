"""The tables and the figure of wall time against the number of trials, from the records of ``executors.py``.

python benchmarks/executors_table.py docs/results/data/executors-{cpu,h200}.jsonl.xz --figure executors.png
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _tables import markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure

    Row = dict[str, Any]

NAMES = {"one-by-one": "one process after the other", "processes": "processes", "ray": "Ray", "stacked": "stacked"}
MARKS = {"one-by-one": "s", "processes": "o", "ray": "^", "stacked": "*"}


def read(paths: Iterable[Path]) -> list[Row]:
    return [json.loads(line) for path in paths for line in lzma.open(path, "rt", encoding="utf-8")]


def table(rows: Sequence[Row], device: str, task: str = "digits") -> str:
    """Seconds by number of trials and executor, and how many times faster a stack is than processes in turn.

    Where the processes were not run, their time is that of the most trials that were, in proportion, and marked.
    """
    found = times(rows, device, task)
    trials = sorted({count for of_executor in found.values() for count in of_executor})
    shown = [executor for executor in NAMES if executor in found]
    body = []
    for count in trials:
        alone, guessed = one_by_one(found, count)
        cells = [seconds(found[executor].get(count)) for executor in shown]
        if guessed:
            cells[shown.index("one-by-one")] = f"about {seconds(alone)}"
        stacked = found["stacked"].get(count)
        body.append([f"{count}", *cells, f"{alone / stacked:.1f}" if stacked else ""])
    return markdown([["trials", *(NAMES[executor] for executor in shown), "ratio"], *body], "r" * (len(shown) + 2))


def times(rows: Sequence[Row], device: str, task: str) -> dict[str, dict[int, float]]:
    """Seconds by executor and number of trials."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["device"], row["task"]) == (device, task):
            found.setdefault(row["executor"], {})[row["trials"]] = row["seconds"]
    return found


def one_by_one(found: dict[str, dict[int, float]], trials: int) -> tuple[float, bool]:
    """The time of processes one after the other, and whether it is a guess."""
    known = found["one-by-one"]
    most = max(known)
    return (known[trials], False) if trials in known else (known[most] / most * trials, True)


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def devices(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["device"] for row in rows))


def draw(rows: Sequence[Row], task: str = "digits") -> Figure:
    from matplotlib.figure import Figure

    from trainonce.report.drawing.style import COLOURS

    colours = dict(zip(NAMES, ("#1a1c20", COLOURS["fixed"], COLOURS["search"], COLOURS["rule"]), strict=True))
    shown = devices(rows)
    figure = Figure(figsize=(4.6 * len(shown), 3.8), layout="constrained")
    for axes, device in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        found = times(rows, device, task)
        for executor in NAMES:
            line = sorted(found.get(executor, {}).items())
            if line:
                x, y = zip(*line, strict=True)
                axes.plot(x, y, MARKS[executor] + "-", color=colours[executor], label=NAMES[executor])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([1, 8, 32, 128, 512], ["1", "8", "32", "128", "512"])
        axes.set_yticks([1, 10, 100, 1000], ["1 s", "10 s", "100 s", "1000 s"])
        axes.set_title(device, loc="left", fontsize=10)
        axes.set_xlabel("trials")
        axes.set_xlim(0.8, 640)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("wall time")
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--figure", type=Path)
    asked = parser.parse_args()
    rows = read(asked.records)
    for device in devices(rows):
        for task in dict.fromkeys(row["task"] for row in rows if row["device"] == device):
            print(f"{task}, {device}\n\n{table(rows, device, task)}\n")
    if asked.figure:
        draw(rows).savefig(asked.figure, dpi=150)


if __name__ == "__main__":
    main()
