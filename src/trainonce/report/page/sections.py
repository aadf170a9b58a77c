"""The sections of the page that are text and tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainonce.report.drawing import plans
from trainonce.report.page import markup
from trainonce.study import sentences
from trainonce.study.plans import PLANS
from trainonce.study.summary import MARGIN

if TYPE_CHECKING:
    from trainonce.study.summary import Row, Summary


def opening(summary: Summary) -> str:
    """Return the task, the answer in one sentence, and the evidence for it."""
    task = summary.task
    about = f" — {markup.escape(task.about)}" if task.about else ""
    answer = markup.paragraph(sentences.sentence(summary), "answer")
    evidence = markup.paragraph(sentences.evidence(summary), "evidence")
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
        notes.append(
            f"* The reference: the point of {summary.reference.plan} that is best on {task.select}. Differences are to "
            "the reference, on the same seeds, and positive where the plan is better. Beaten by: how many points of "
            f"{summary.reference.plan} do better on {task.report}."
        )
    notes.append("Trainings: full trainings per seed, including pruned and failed ones; seconds: their time.")
    return (
        markup.table(sentences.table(summary), "comparison of the plans", classes, ratios=["ratios"])
        + markup.paragraph(" ".join(notes), "quiet")
        + "".join(markup.paragraph(notice) for notice in sentences.notices(summary))
        + markup.paragraph(sentences.details(summary))
        + _plans_without_result(summary)
    )


def _plans_without_result(summary: Summary) -> str:
    """Return the plans that have trials and no result."""
    rows = summary.without_result
    texts = [f"{row.plan}: {', '.join(f'{count} {status}' for status, count in row.counts.items())}" for row in rows]
    return markup.paragraph(f"Plans without a result: {'; '.join(texts)}." if texts else "")


def controls(summary: Summary) -> str:
    """Return the table of the controls, each against the plan whose coefficients it uses."""
    decimals = sentences.decimal_places(summary)
    rows = [row for row in summary.rows if row.kind == "control" and row.chosen.report]
    if not rows:
        return ""
    metric = f"{summary.task.report} {summary.task.metric}"
    lines = [["control", "what it is", metric, "of the plan", "difference to it [95 %]"]]
    for row in rows:
        run = _run_of(summary, row)
        difference = sentences.interval(summary.compare(row, run), decimals) if run else ""
        result = sentences.mean_and_deviation(row.chosen, decimals)
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


def health(summary: Summary) -> str:
    """Return warnings by kind, failed trials with their errors, and diverged trials."""
    trials = summary.trials
    counts = Counter(warning for trial in trials if trial.last for warning in trial.record.warnings)
    kinds: dict[str, list[tuple[str, int]]] = {}
    for warning, count in counts.most_common():
        kind = sentences.warning_kind(warning)
        kinds.setdefault(kind, []).append((warning.removeprefix(f"{kind}: "), count))
    parts = []
    for kind, messages in kinds.items():
        total = sum(
            any(sentences.warning_kind(w) == kind for w in trial.record.warnings) for trial in trials if trial.last
        )
        shown = "".join(
            f"<li>{markup.escape(message)} <span class=quiet>({_trials(n)})</span></li>" for message, n in messages[:3]
        )
        more = f"<li class=quiet>and {len(messages) - 3} more like these</li>" if len(messages) > 3 else ""
        parts.append(f"<h3>{markup.escape(kind or 'Warning')}, {_trials(total)}</h3><ul>{shown}{more}</ul>")
    failed = [trial for trial in trials if trial.record.status == "failed"]
    if failed:
        again = sum(not trial.last for trial in failed)
        note = f" {again} of them ran again later." if again else ""
        parts.append(
            f"<h3>Failed, {_trials(len(failed))}</h3>" + markup.paragraph(f"They will run again.{note}", "quiet")
        )
        for trial in failed[:FAILED]:
            error = trial.record.error or {}
            title = f"{', '.join(trial.plans)}, {trial.record.rule.label}, seed {trial.record.seed}: "
            title += f"{error.get('type', 'error')}: {error.get('message', 'the process ended')}"
            parts.append(markup.details(title, f"<pre>{markup.escape(error.get('traceback') or 'no traceback')}</pre>"))
        parts.append(_more(len(failed) - FAILED))
    diverged = [trial for trial in trials if trial.record.status == "diverged" and trial.last]
    if diverged:
        named = diverged[:DIVERGED]
        names = [f"{', '.join(t.plans)}, {t.record.rule.label}, seed {t.record.seed}" for t in named]
        shown = "".join(f"<li>{markup.escape(name)}</li>" for name in names)
        parts.append(
            f"<h3>Diverged, {_trials(len(diverged))}</h3>"
            + markup.paragraph("They ended with a metric that is not finite. It counts as their result.", "quiet")
            + f"<ul>{shown}</ul>"
            + _more(len(diverged) - DIVERGED)
        )
    return "".join(parts) or markup.paragraph("No warnings, no failures, no divergence.")


FAILED, DIVERGED = 30, 200  # trials that are listed; the first ones come with their tracebacks


def _more(count: int) -> str:
    """Return how many of a list are not shown, if any."""
    return markup.paragraph(f"And {_trials(count)} more, in trials.csv." if count > 0 else "", "quiet")


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def protocol(summary: Summary, unused: int) -> str:
    """Return how the study was run, so that a reader can judge and repeat it."""
    task, trials = summary.task, summary.trials
    records = [trial.record for trial in trials]
    margin = f"{sentences.amount(summary.margin)}{f' {task.unit}' if task.unit else ''}"
    anchor = summary.anchor.plan if summary.anchor else "the reference"
    source = "given by the task" if task.margin is not None else f"{MARGIN:.0%} of the mean of {anchor}"
    statuses = Counter(trial.record.status for trial in trials if trial.last)
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
        ("cost", "full trainings per seed; pruned and failed trials count for the part that ran"),
        ("±", "one standard deviation over the seeds; intervals are Student's, of differences on the same seeds"),
        (
            "losses",
            "shown term by term, each without its coefficient; their sum is never compared, since coefficients differ",
        ),
    ]
    if unused:
        facts.append(
            ("not used", f"{_trials(unused)} of other plans or of an earlier version of the task in the folder")
        )
    lines = [[row.plan, _about(row)] for row in summary.rows]
    table = markup.table([["plan", "what it is"], *lines], "the plans", words=True) if lines else ""
    return markup.definitions(facts) + table


def all_trials(summary: Summary) -> str:
    """Return the table of all trials, which opens on a click; of very many, the first."""
    task, trials, decimals = summary.task, summary.trials, sentences.decimal_places(summary)
    rows = [["plan", "rule", "seed", "status", task.select_key, task.report_key, "last ratios", "seconds"]]
    for users, record, last in trials[:LISTED]:
        values = [record.metrics.get(key) for key in (task.select_key, task.report_key)]
        rows.append(
            [
                ", ".join(users),
                record.rule.label,
                str(record.seed),
                record.status if last else f"{record.status}, ran again",
                *("" if value is None else sentences.number(value, decimals) for value in values),
                " : ".join(f"{ratio:.3g}" for ratio in record.ratios),
                f"{record.seconds:.1f}",
            ]
        )
    of = f"{LISTED:,} of {len(trials):,}" if len(trials) > LISTED else str(len(trials))
    table = markup.details(f"All trials ({of})", markup.table(rows, "all trials", words=True))
    return (
        table + f'<p class="{"quiet" if len(trials) > LISTED else "on-paper"}">All trials are listed in trials.csv.</p>'
    )


LISTED = 1000  # trials on the page, in the table and in its data


def _about(row: Row) -> str:
    """Return what a plan is, in a line; nothing for the plan of another version of trainonce."""
    file, _, name = plans.base_name(row.plan).rpartition(":")
    known = PLANS.get(name)
    return f"{name} of {file}" if file else known.about if known else ""
