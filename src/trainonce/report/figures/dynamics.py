"""Figures over steps: weights, exponents, what moved them, each loss, and the metric on the way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing import curves, labels, style
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.style import COLOURS, DASHES, INK, TERMS, NothingToDrawError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.report.drawing.curves import Curve
    from trainonce.study.summary import Outcome, Row, Summary

STEPS = "optimizer step"
NO_HISTORY = "The histories of the trials are not in the folder: figures over steps that need them are left out."


def weights(summary: Summary, axes: Axes | None = None) -> Figure:
    """The learned weights over steps, one line a term: mean over the seeds, with the range of the seeds."""
    return _of_terms(summary, axes, "weight", summary.task.terms, "Learned weights", "weight λ; they sum to 1")


def exponents(summary: Summary, axes: Axes | None = None) -> Figure:
    """The learned exponents over steps, one line an auxiliary term; the base term's is 0."""
    above = "exponent μ, 0 for the base"
    return _of_terms(summary, axes, "exponent", summary.task.terms[1:], "Learned exponents", above)


def _of_terms(summary: Summary, axes: Axes | None, column: str, terms: Sequence[str], title: str, above: str) -> Figure:
    row = _learned(summary)
    runs = curves.histories(summary, row.chosen)
    found = {term: curves.curve(runs, f"{column}/{term}") for term in terms}
    if not any(found.values()):
        raise NothingToDrawError(NO_HISTORY)
    with style.panel(axes) as axes:
        ends = []
        for term, line in found.items():
            number = summary.task.terms.index(term)
            colour, dash = TERMS[number % len(TERMS)], DASHES[number // len(TERMS) % len(DASHES)]
            if line is not None:
                _draw(axes, line, colour, dash, f"{column} {term}")
                ends.append(Label(line.steps[-1], line.mean[-1], style.short(term, 24), colour))
        if column == "weight":
            axes.set_ylim(0, None)
        elif axes.get_ylim()[0] < 0 < axes.get_ylim()[1]:
            axes.axhline(0, color=INK, linewidth=0.8, alpha=0.5)
        _finish(axes, ends, title, f"{above}; {_band(len(runs))}")
    return style.root(axes)


def drives(summary: Summary, term: str | None = None, axes: Axes | None = None) -> Figure:
    """What moved an exponent: what the losses and what the decay have added up to, step by step.

    :param term: An auxiliary term, by default the first.
    """
    term = term or summary.task.terms[1]
    parts = {"losses": "empirical", "decay": "decay", "both": "both"}
    runs = [dict(run) for run in curves.histories(summary, _learned(summary).chosen)]
    for run in runs:
        width = run["step"][1] - run["step"][0] if len(run["step"]) > 1 else 1.0
        for part in ("empirical", "decay"):
            if f"{part}/{term}" in run:
                run[f"sum/{part}/{term}"] = _summed(run[f"{part}/{term}"], width)
        run[f"sum/both/{term}"] = [
            a + b for a, b in zip(run.get(f"sum/empirical/{term}", []), run.get(f"sum/decay/{term}", []), strict=False)
        ]
    found = {name: curves.curve(runs, f"sum/{part}/{term}") for name, part in parts.items()}
    if not any(line is not None and line.mean for line in found.values()):
        raise NothingToDrawError(NO_HISTORY)
    with style.panel(axes) as axes:
        ends = []
        looks = {"losses": ("#2E86C8", DASHES[1]), "decay": ("#009E73", DASHES[2]), "both": (COLOURS["learned"], "-")}
        for name, line in found.items():
            if line is not None:
                _draw(axes, line, *looks[name], f"drive {name}")
                ends.append(Label(line.steps[-1], line.mean[-1], name, looks[name][0], name == "both"))
        axes.axhline(0, color=INK, linewidth=0.8, alpha=0.5)
        _finish(axes, ends, f"What moved the exponent of {term}", f"change since the start; {_band(len(runs))}")
    return style.root(axes)


def _summed(values: Sequence[float], width: float) -> list[float]:
    """The sum up to each point; thinned values stand for ``width`` steps each."""
    total, found = 0.0, []
    for value in values:
        total += (0.0 if math.isnan(value) else value) * width
        found.append(total)
    return found


def loss(summary: Summary, term: str | None = None, axes: Axes | None = None) -> Figure:
    """One term's unweighted loss over steps: learned weights, the reference, and every other fixed choice in grey.

    :param term: By default the base.
    """
    term = term or summary.task.terms[0]

    def line(outcome: Outcome) -> Curve | None:
        return curves.curve(curves.histories(summary, outcome), f"loss/{term}")

    return _against_grid(summary, axes, line, f"Loss: {term}", "unweighted", NO_HISTORY)


def progress(summary: Summary, axes: Axes | None = None) -> Figure:
    """The selecting metric as the trials reported it on their way."""

    def line(outcome: Outcome) -> Curve | None:
        return curves.reported(summary, outcome)

    task = summary.task
    unit = f", {task.unit}" if task.unit else ""
    lacking = "The trials reported nothing on their way: call trial.report in the task to see it."
    return _against_grid(summary, axes, line, f"On the way: {task.select} {task.metric}{unit}", "as reported", lacking)


def _against_grid(
    summary: Summary, axes: Axes | None, line: Callable[[Outcome], Curve | None], title: str, what: str, lacking: str
) -> Figure:
    ours, reference = summary.one_shot, summary.reference
    learned = line(ours.chosen) if ours else None
    best = line(reference.chosen) if reference else None
    others = [o for row in summary.rows if row.kind == "set" for o in row.outcomes]
    grey = [c for o in others if (reference is None or o is not reference.chosen) and (c := line(o)) is not None]
    if learned is None and best is None and not grey:
        raise NothingToDrawError(lacking)
    with style.panel(axes) as axes:
        ends = []
        for curve in grey:
            axes.plot(curve.steps, curve.mean, color=COLOURS["set"], linewidth=0.9, alpha=0.7, gid="fixed weights")
        if grey:
            middle = sorted(grey, key=lambda c: c.mean[-1])[len(grey) // 2]
            ends.append(Label(middle.steps[-1], middle.mean[-1], f"{len(grey)} fixed weights", COLOURS["set"]))
        if best is not None and reference is not None:
            _draw(axes, best, INK, "-", "reference", band=False)
            ends.append(Label(best.steps[-1], best.mean[-1], f"best of {style.bare(reference.plan)}", INK))
        if learned is not None:
            _draw(axes, learned, COLOURS["learned"], "-", "learned")
            ends.append(Label(learned.steps[-1], learned.mean[-1], "learned", COLOURS["learned"], True))
        drawn = [c for c in (learned, best, *grey) if c is not None]
        logarithmic = _scale(axes, drawn)
        band = _band(learned.seeds) if learned is not None else "means over the seeds"
        _finish(axes, ends, title, f"{what}{', logarithmic' if logarithmic else ''}; {band}")
    return style.root(axes)


def _scale(axes: Axes, drawn: Sequence[Curve]) -> bool:
    """Limits that show what most runs do; logarithmic where the values span more than a factor of 20."""
    values = sorted(v for c in drawn for v in (*c.mean, *(c.low if c is drawn[0] else ())) if math.isfinite(v))
    if not values:
        return False
    low, high = values[0], values[-1]
    if low > 0 and high / low > 20:
        floor = max(low, values[len(values) // 100] / 3)
        axes.set_yscale("log")
        axes.set_ylim(floor / 1.25, high * 1.25)
        powers = range(math.floor(math.log10(floor)), math.ceil(math.log10(high)) + 1)
        every = max(1, len(powers) // 6)
        steps = (1, 2, 5) if high < 200 * floor else (1,)
        ticks = [
            m * 10.0**p for p in list(powers)[::every] for m in steps if floor / 1.25 <= m * 10.0**p <= high * 1.25
        ]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.set_yticks([], minor=True)
        return True
    axes.set_ylim(*style.widen([low, high], 0.05))
    return False


def _draw(axes: Axes, line: Curve, colour: str, dash: object, name: str, band: bool = True) -> None:
    if band and line.seeds > 1:
        axes.fill_between(line.steps, line.low, line.high, color=colour, alpha=0.22, linewidth=0, gid=f"band {name}")
    axes.plot(line.steps, line.mean, color=colour, linestyle=dash, linewidth=2, zorder=3, gid=name)


def _finish(axes: Axes, ends: Sequence[Label], title: str, above: str) -> None:
    longest = max(float(line.get_xdata()[-1]) for line in axes.lines if str(line.get_gid() or ""))  # type: ignore[index, arg-type]
    axes.set_xlim(0, longest)
    style.grid_lines(axes)
    ticks = [t for t in axes.get_xticks() if 0 <= t <= longest]
    axes.set_xticks(ticks, [f"{t:,.0f}".replace(",", " ") if t == int(t) else f"{t:g}" for t in ticks])
    labels.at_ends(axes, ends)
    style.head(axes, title, above, STEPS)


def _band(seeds: int) -> str:
    return f"mean and range of {seeds} seeds" if seeds > 1 else "one seed"


def _learned(summary: Summary) -> Row:
    if summary.one_shot is None:
        raise NothingToDrawError("This study has no run with learned weights.")
    return summary.one_shot
