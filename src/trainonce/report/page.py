"""The whole page: one HTML file that needs no other file and no network; its sections of text and tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from trainonce.report import export, headline, markup, numbers, table, trials
from trainonce.report.drawing import plans, render
from trainonce.study.plans import PLANS
from trainonce.study.summary import MARGIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from trainonce.report.catalogue import Drawing
    from trainonce.study.summary import Row, Summary

#: Content security policy: the page may not fetch anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(
    summary: Summary,
    content: Mapping[str, Any],
    drawings: Sequence[Drawing],
    lacking: Sequence[str],
    pictures: str = "",
) -> str:
    """Return the whole page.

    :param content: The data to embed; of very many trials, all but the trials, which are in ``summary.json``.
    :param lacking: Why figures were left out, one sentence each.
    :param pictures: The pictures that trials saved, as HTML.
    """

    def part(name: str, title: str, before: str, after: str = "") -> str:
        mine = [drawing for drawing in drawings if drawing.part == name]
        shown = [_figure(drawing, i == 0 and name == "comparison") for i, drawing in enumerate(mine)]
        inside = before + (f'<div class="figures">{"".join(shown)}</div>' if shown else "") + after
        return f'<section id="part-{name}"><h2>{title}</h2>{inside}</section>' if inside else ""

    left_out = markup.paragraph(f"Left out: {' '.join(lacking)}" if lacking else "", "quiet")
    body = [
        opening(summary),
        part("comparison", "The comparison", comparison(summary)),
        part("ratios", "The ratios", ""),
        part("losses", "The losses", ""),
        part("pictures", "Pictures", pictures),
        part("sensitivity", "Sensitivity", ""),
        part("controls", "Controls", controls(summary)),
        part("diagnostics", "Diagnostics", trials.health(summary), left_out),
        part(
            "protocol",
            "How the study was run",
            protocol(summary),
            trials.all_trials(summary) + markup.paragraph(FILES, "quiet"),
        ),
    ]
    data = content if len(summary.trials) <= trials.LISTED else {k: v for k, v in content.items() if k != "trials"}
    title = f"{markup.escape(summary.task.name)}: ways to weigh losses compared"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{title}</title>\n<link rel="icon" href="data:,">\n<style>{_style()}</style></head>\n'
        f"<body><main>\n{chr(10).join(filter(None, body))}\n</main>\n"
        f'<script type="application/json" id="trainonce-data">{markup.script_data(export.to_json(data))}</script>\n'
        "</body></html>\n"
    )


FILES = "Every figure is in figures/ as SVG and PNG; summary.json and trials.csv, beside this page, hold the numbers."


def _figure(drawing: Drawing, first: bool) -> str:
    still = f'<div class="still">{render.inline(drawing.svg, drawing.title)}</div>'
    return (
        f'<figure id="{drawing.name}"{" class=first" if first else ""}>{still}'
        f"<figcaption>{markup.text(drawing.caption)}</figcaption></figure>"
    )


def _style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


# Sections


def opening(summary: Summary) -> str:
    """Return the task, the answer in one sentence, and the evidence for it."""
    task = summary.task
    about = f" — {markup.escape(task.about)}" if task.about else ""
    first, stop, rest = headline.sentence(summary).partition(". ")
    parts = filter(None, map(markup.paragraph, (first + stop.rstrip(), rest)))
    answer = f'<div class="answer">{" ".join(parts)}</div>'
    evidence = markup.paragraph(headline.evidence(summary), "evidence")
    return f"<header><h1><b>{markup.escape(task.name)}</b>{about}</h1>{answer}{evidence}</header>"


def comparison(summary: Summary) -> str:
    """Return the table of plans, what its columns mean, and the plans without a result."""
    if not summary.ranked:
        return markup.paragraph(plans.NO_RESULT) + _plans_without_result(summary)
    classes = {
        number: "rule" if row.kind == "rule" else "reference"
        for number, row in enumerate(summary.ranked, start=1)
        if row.kind == "rule" or row is summary.reference
    }
    task = summary.task
    seeds = max(len(row.chosen.report) for row in summary.ranked)
    notes = [
        "± is one standard deviation over the seeds." if seeds > 1 else "One seed: there is no standard deviation."
    ]
    if summary.reference is not None:
        plan, is_set = summary.reference.plan, summary.reference.kind == "set"
        best = f"the point of {plan} that is best" if is_set else f"in each seed the trial of {plan} that is best"
        notes.append(
            f"* The reference: {best} on {task.select}. Differences are to the reference, on the same seeds, and "
            "positive where the plan is better."
        )
        notes += [f"Beaten by: how many points of {plan} do better on {task.report}."] if is_set else []
    notes.append("Trainings: full trainings per seed, including paused and failed ones; seconds: their time.")
    return (
        markup.table(table.cells(summary), "comparison of the plans", classes, ratios=["ratios"])
        + markup.paragraph(" ".join(notes), "quiet")
        + "".join(markup.paragraph(notice) for notice in table.notices(summary))
        + markup.paragraph(headline.details(summary))
        + _plans_without_result(summary)
    )


def _plans_without_result(summary: Summary) -> str:
    """Return the plans that have trials and no result."""
    rows = summary.without_result
    texts = [f"{row.plan}: {', '.join(f'{count} {status}' for status, count in row.counts.items())}" for row in rows]
    return markup.paragraph(f"Plans without a result: {'; '.join(texts)}." if texts else "")


def controls(summary: Summary) -> str:
    """Return the table of the controls, each against the plan whose coefficients it uses."""
    decimals = numbers.decimal_places(summary)
    rows = [row for row in summary.rows if row.kind == "control" and row.chosen.report]
    if not rows:
        return ""
    metric = f"{summary.task.report} {summary.task.metric}"
    lines = [["control", "what it is", metric, "of the plan", "difference to it [95 %]"]]
    for row in rows:
        run = _run_of(summary, row)
        difference = numbers.interval(summary.compare(row, run), decimals) if run else ""
        result = numbers.mean_and_deviation(row.chosen, decimals)
        lines.append([row.plan, _about(row), result, run.plan if run else "", difference])
    read = (
        "If a control does as well as the plan whose coefficients it uses, then their values matter, and not that they "
        "follow the losses of the same training. A positive difference means that the control is better."
    )
    return markup.table(lines, "controls", words=True) + markup.paragraph(read, "quiet")


def _run_of(summary: Summary, control: Row) -> Row | None:
    """Return the plan whose coefficients a control uses, if the study has it."""
    of = getattr(control.chosen.rule, "of", None)
    return next((row for row in plans.rules(summary) if row.chosen.rule == of), None)


def protocol(summary: Summary) -> str:
    """Return how the study was run, so that a reader can judge and repeat it."""
    task, records = summary.task, [trial.record for trial in summary.trials]
    margin = f"{numbers.amount(summary.margin)}{f' {task.unit}' if task.unit else ''}"
    anchor = summary.anchor.plan if summary.anchor else "the reference"
    source = "given by the task" if task.margin is not None else f"{MARGIN:.0%} of the mean of {anchor}"
    statuses = Counter(trial.record.status for trial in summary.trials if trial.last)
    versions = Counter(", ".join(f"{k} {v}" for k, v in record.versions.items()) for record in records)
    facts: list[tuple[str, object]] = [
        ("terms", f"{task.terms[0]} (base), {', '.join(task.terms[1:])}"),
        ("metric", f"{task.metric}{f' in {task.unit}' if task.unit else ''}, {task.direction}"),
        ("chosen on", f"{task.select}: the only split that chooses, in a set and in a search"),
        ("reported on", f"{task.report}: never used to choose"),
        ("margin", f"{margin}, {source}: a plan that is worse by less than this counts as not worse"),
        ("seeds", ", ".join(map(str, sorted({r.seed for r in records}))) or "none"),
        ("settings", ", ".join(f"{k} = {v}" for k, v in task.settings.items()) or "none"),
        ("trials", ", ".join(f"{n} {status}" for status, n in statuses.items()) or "none"),
        ("devices", ", ".join(sorted({r.device for r in records})) or "unknown"),
        ("versions", "; ".join(versions) or "unknown"),
        ("cost", "full trainings per seed; paused and failed trials count for the part that ran"),
        ("±", "one standard deviation over the seeds; intervals are Student's, of differences on the same seeds"),
        (
            "losses",
            "shown term by term, each without its coefficient; their sum is never compared, since coefficients differ",
        ),
    ]
    if unused := len(summary.records) - len(summary.trials):
        facts.append(
            (
                "not used",
                f"{trials.count_trials(unused)} of other plans or of an earlier version of the task in the folder",
            )
        )
    lines = [[row.plan, _about(row)] for row in summary.rows]
    table = markup.table([["plan", "what it is"], *lines], "the plans", words=True) if lines else ""
    return markup.definitions(facts) + table


def _about(row: Row) -> str:
    """Return what a plan is, in a line; nothing for the plan of another version of trainonce."""
    file, _, name = plans.base_name(row.plan).rpartition(":")
    known = PLANS.get(name)
    return f"{name} of {file}" if file else known.about if known else ""
