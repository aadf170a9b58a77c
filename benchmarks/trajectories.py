"""Draw the exponents of every run of the paper's rule over its steps, one line per seed, from the kept records.

python benchmarks/trajectories.py docs/results/data/segmentation/camvid.tar.xz invariance FIGURE.png
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from _tables import label_of
from records import open_study, read_histories

from trainonce.report.drawing import labels, render, style, titles
from trainonce.report.drawing.labels import Label
from trainonce.study.store import Store

if TYPE_CHECKING:
    from trainonce.study.rules import Rule

COLOURS = (*style.TERMS, style.COLOURS["rule"], "#8C564B")


def main() -> None:
    study, term, figure = sys.argv[1:4]
    with open_study(study) as folder:
        records, histories = Store(folder, writable=False).read(), read_histories(folder)
    runs: dict[Rule, list[dict]] = {}
    for history in histories:
        rule = records[history["key"]].rule
        if rule.trains:
            runs.setdefault(rule, []).append(history)
    several_rates = len({rule.settings["lr"] for rule in runs}) > 1
    names = {rule: label_of(rule, lr=several_rates) for rule in runs}
    with style.panel(None) as axes:
        ends = []
        for number, rule in enumerate(sorted(runs, key=names.__getitem__)):
            colour = COLOURS[number % len(COLOURS)]  # the same in the pictures of all terms
            for history in runs[rule]:
                axes.plot(history["step"], history[f"exponent/{term}"], color=colour, linewidth=1.2)
            ended = sorted(history[f"exponent/{term}"][-1] for history in runs[rule])
            ends.append(Label(runs[rule][0]["step"][-1], ended[len(ended) // 2], names[rule], colour))
        longest = max(history["step"][-1] for histories in runs.values() for history in histories)
        axes.set_xlim(0, longest)
        axes.locator_params(axis="x", nbins=4)
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= longest * 1.02])
        style.grid_lines(axes)
        labels.place_at_ends(axes, ends)
        fewest, most = min(map(len, runs.values())), max(map(len, runs.values()))
        seeds = f"{most} for each setting" if fewest == most else f"{fewest} to {most} each"
        above = f"one line per seed, {seeds}; the base term stays at 0"
        titles.head(axes, f"Exponent of {term}", above, "optimizer step")
    with open(figure, "wb") as file:
        file.write(render.png(style.root(axes)))


if __name__ == "__main__":
    main()
