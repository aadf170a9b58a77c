"""Draw the exponents of every run with learned weights over its steps, one line a seed, from the kept records.

python benchmarks/trajectories.py docs/results/data/segmentation/camvid invariance FIGURE.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainonce.report.drawing import labels, style
from trainonce.report.drawing.labels import Label
from trainonce.study.store import Store
from trainonce.study.weightings import Learned

COLOURS = (*style.TERMS, style.COLOURS["learned"], "#8C564B")


def main() -> None:
    folder, term, figure = sys.argv[1:4]
    records = Store(Path(folder), writable=False).read()
    runs: dict[Learned, list[dict]] = {}
    for line in (Path(folder) / "histories.jsonl").read_text().splitlines():
        history = json.loads(line)
        weighting = records[history["key"]].weighting
        if isinstance(weighting, Learned):
            runs.setdefault(weighting, []).append(history)
    with style.panel(None) as axes:
        ends = []
        for number, (weighting, histories) in enumerate(sorted(runs.items(), key=lambda run: named(run[0]))):
            colour = COLOURS[number % len(COLOURS)]  # the same in the pictures of all terms
            for history in histories:
                axes.plot(history["step"], history[f"exponent/{term}"], color=colour, linewidth=1.2)
            ended = sorted(last(history, term) for history in histories)
            ends.append(Label(histories[0]["step"][-1], ended[len(ended) // 2], named(weighting), colour))
        longest = max(history["step"][-1] for histories in runs.values() for history in histories)
        axes.set_xlim(0, longest)
        axes.locator_params(axis="x", nbins=4)
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= longest * 1.02])
        style.grid_lines(axes)
        labels.place_at_ends(axes, ends)
        fewest, most = min(map(len, runs.values())), max(map(len, runs.values()))
        seeds = f"{most}" if fewest == most else f"{fewest} to {most}"
        style.head(axes, f"Exponent of {term}", f"one line a seed, {seeds} of each setting; base 0", "optimizer step")
    style.root(axes).savefig(figure, dpi=160)


def last(history: dict, term: str) -> float:
    return history[f"exponent/{term}"][-1]


def named(weighting: Learned) -> str:
    preset = "" if weighting.preset == "paper" else f", {weighting.preset}"
    return f"ε {weighting.init:.2g}, ρ {weighting.decay:g}, lr {weighting.lr:g}{preset}"  # noqa: RUF001


if __name__ == "__main__":
    main()
