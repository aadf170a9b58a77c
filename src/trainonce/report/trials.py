"""The trials of a study on its page: their warnings, failures and divergences, and the table of all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trainonce.report import markup
from trainonce.report.numbers import decimal_places, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.record import Record
    from trainonce.study.summary import Summary
    from trainonce.study.trial_rows import TrialRow


FAILED, DIVERGED = 30, 200  # trials that are listed; the first ones come with their tracebacks
LISTED = 1000  # trials on the page, in the table and in its data


def health(summary: Summary) -> str:
    """Return warnings by kind, failed trials with their errors, and diverged trials."""
    trials = summary.trials
    failed = [trial for trial in trials if trial.record.status == "failed"]
    diverged = [trial for trial in trials if trial.record.status == "diverged" and trial.last]
    found = _warnings([trial.record for trial in trials if trial.last]) + _failed(failed) + _diverged(diverged)
    return found or markup.paragraph("No warnings, no failures, no divergence.")


def _warnings(records: Sequence[Record]) -> str:
    counts = Counter(warning for record in records for warning in record.warnings)
    kinds: dict[str, list[tuple[str, int]]] = {}
    for warning, count in counts.most_common():
        kind = warning_kind(warning)
        kinds.setdefault(kind, []).append((warning.removeprefix(f"{kind}: "), count))
    parts = []
    for kind, messages in kinds.items():
        total = sum(any(warning_kind(w) == kind for w in record.warnings) for record in records)
        shown = "".join(
            f"<li>{markup.escape(message)} <span class=quiet>({count_trials(n)})</span></li>"
            for message, n in messages[:3]
        )
        more = f"<li class=quiet>and {len(messages) - 3} more like these</li>" if len(messages) > 3 else ""
        parts.append(f"<h3>{markup.escape(kind or 'Warning')}, {count_trials(total)}</h3><ul>{shown}{more}</ul>")
    return "".join(parts)


def _failed(trials: Sequence[TrialRow]) -> str:
    if not trials:
        return ""
    again = sum(not trial.last for trial in trials)
    note = f" {again} of them ran again later." if again else ""
    parts = [f"<h3>Failed, {count_trials(len(trials))}</h3>", markup.paragraph(f"They will run again.{note}", "quiet")]
    for trial in trials[:FAILED]:
        error = trial.record.error or {}
        title = f"{_name(trial)}: {error.get('type', 'error')}: {error.get('message', 'the process ended')}"
        parts.append(markup.details(title, f"<pre>{markup.escape(error.get('traceback') or 'no traceback')}</pre>"))
    return "".join([*parts, _more(len(trials) - FAILED)])


def _diverged(trials: Sequence[TrialRow]) -> str:
    if not trials:
        return ""
    shown = "".join(f"<li>{markup.escape(_name(trial))}</li>" for trial in trials[:DIVERGED])
    what = markup.paragraph("They ended with a metric that is not finite. It counts as their result.", "quiet")
    head = f"<h3>Diverged, {count_trials(len(trials))}</h3>"
    return f"{head}{what}<ul>{shown}</ul>{_more(len(trials) - DIVERGED)}"


def _name(trial: TrialRow) -> str:
    return f"{', '.join(trial.plans)}, {trial.record.rule.label}, seed {trial.record.seed}"


def _more(count: int) -> str:
    """Return how many of a list are not shown, if any."""
    return markup.paragraph(f"And {count_trials(count)} more, in trials.csv." if count > 0 else "", "quiet")


def count_trials(count: int) -> str:
    return f"{count} trial{'s' * (count != 1)}"


def warning_kind(warning: str) -> str:
    """Return the kind that a recorded warning begins with, or nothing if it has none.

    >>> warning_kind("Settled: at 0.1 of the steps"), warning_kind("The weights were not finite: some loss was not.")
    ('Settled', '')
    """
    first = warning.partition(" ")[0]
    return first.removesuffix(":") if first.endswith(":") else ""


def all_trials(summary: Summary) -> str:
    """Return the table of all trials, which opens on a click; of very many, the first."""
    task, trials, decimals = summary.task, summary.trials, decimal_places(summary)
    rows = [["plan", "rule", "seed", "status", task.select_key, task.report_key, "last ratios", "seconds"]]
    for users, record, last in trials[:LISTED]:
        values = [record.metrics.get(key) for key in (task.select_key, task.report_key)]
        rows.append(
            [
                ", ".join(users),
                record.rule.label,
                str(record.seed),
                record.status if last else f"{record.status}, ran again",
                *("" if value is None else number(value, decimals) for value in values),
                " : ".join(f"{ratio:.3g}" for ratio in record.ratios),
                f"{record.seconds:.1f}",
            ]
        )
    of = f"{LISTED:,} of {len(trials):,}" if len(trials) > LISTED else str(len(trials))
    shown = markup.details(f"All trials ({of})", markup.table(rows, "all trials", words=True))
    visible = "quiet" if len(trials) > LISTED else "on-paper"
    return f'{shown}<p class="{visible}">All trials are listed in trials.csv.</p>'
