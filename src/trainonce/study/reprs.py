"""How a study and its summary show themselves: as text at the prompt, as a table in a notebook."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from trainonce.study import sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainonce.study.study import Study
    from trainonce.study.summary import Summary

WIDTH = 100
NOTHING = "No trial has ended yet."


def summary_text(summary: Summary) -> str:
    """The sentence with the result, and the table that the command prints."""
    if not summary.rows:
        return f"{_title(summary.task.name, summary.task.about)}\n{NOTHING}"
    return f"{textwrap.fill(sentences.sentence(summary), WIDTH)}\n\n{sentences.text_table(summary)}"


def summary_html(summary: Summary) -> str:
    """The same for a notebook."""
    if not summary.rows:
        return f"<p>{_escape(_title(summary.task.name, summary.task.about))} {NOTHING}</p>"
    head, *rows = sentences.table(summary)
    return (
        f"<p>{_escape(sentences.sentence(summary))}</p>"
        f"<table><thead><tr>{_cells(head, 'th')}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{_cells(row)}</tr>' for row in rows)}</tbody></table>"
        + "".join(f"<p>{_escape(note)}</p>" for note in sentences.notes(summary))
    )


def study_text(study: Study) -> str:
    """What the study is about, how far it is and where it is."""
    width = max(map(len, facts := _facts(study)))
    lines = [
        textwrap.fill(f"  {name:<{width}}  {value}", WIDTH, subsequent_indent=" " * (width + 4))
        for name, value in facts.items()
    ]
    return "\n".join([f"Study of {_title(study.task.name, study.task.about)}", *lines])


def study_html(study: Study) -> str:
    """The same for a notebook."""
    rows = "".join(f"<tr><th>{_escape(name)}</th>{_cells([value])}</tr>" for name, value in _facts(study).items())
    return f"<p>Study of {_escape(_title(study.task.name, study.task.about))}</p><table><tbody>{rows}</tbody></table>"


def _facts(study: Study) -> dict[str, str]:
    keys = {key for item in study.items() for key in item.keys}
    records = study.store.read()
    statuses = Counter(records[key].status for key in keys if key in records)
    ended = sum(statuses.values()) - statuses["failed"]
    apart = ", ".join(f"{statuses[s]} {s}" for s in ("pruned", "diverged", "failed") if statuses[s])
    return {
        "plans": ", ".join(plan.name for plan in study.plans) or "none; add some, such as study.add('yoto')",
        "seeds": _seeds(study.seeds),
        "trials": f"{ended} of {len(keys)} done{f' ({apart})' if apart else ''}",
        "folder": str(study.store.shown),
    }


def _title(name: str, about: str) -> str:
    return f"{name}: {about}" if about else name


def _seeds(seeds: Sequence[int]) -> str:
    together = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))


def _cells(values: Iterable[str], tag: str = "td") -> str:
    return "".join(f"<{tag}>{_escape(value)}</{tag}>" for value in values)


_escape = html.escape
