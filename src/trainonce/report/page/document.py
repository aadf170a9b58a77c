"""The whole page: one HTML file that needs no other file and no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report import export
from trainonce.report.drawing import render
from trainonce.report.page import markup, sections
from trainonce.report.page.stylesheet import CSS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from trainonce.report.catalogue import Drawing
    from trainonce.study.summary import Summary

#: Content security policy: the page may not fetch anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(
    summary: Summary,
    content: Mapping[str, Any],
    drawings: Sequence[Drawing],
    lacking: Sequence[str],
    unused: int = 0,
    pictures: str = "",
) -> str:
    """Return the whole page.

    :param content: The data to embed; of very many trials, all but the trials, which are in ``summary.json``.
    :param lacking: Why figures were left out, one sentence each.
    :param unused: How many records belong to other plans or to earlier versions of the task.
    :param pictures: The pictures that trials saved, as HTML.
    """

    def part(name: str, title: str, before: str, after: str = "") -> str:
        mine = [drawing for drawing in drawings if drawing.part == name]
        shown = [_figure(drawing, i == 0 and name == "comparison") for i, drawing in enumerate(mine)]
        inside = before + (f'<div class="figures">{"".join(shown)}</div>' if shown else "") + after
        return f'<section id="part-{name}"><h2>{title}</h2>{inside}</section>' if inside else ""

    left_out = markup.paragraph(f"Left out: {' '.join(lacking)}" if lacking else "", "quiet")
    body = [
        sections.opening(summary),
        part("comparison", "The comparison", sections.comparison(summary)),
        part("ratios", "The ratios", ""),
        part("losses", "The losses", ""),
        part("pictures", "Pictures", pictures),
        part("sensitivity", "Sensitivity", ""),
        part("controls", "Controls", sections.controls(summary)),
        part("diagnostics", "Diagnostics", sections.health(summary), left_out),
        part(
            "protocol",
            "How the study was run",
            sections.protocol(summary, unused),
            sections.all_trials(summary) + markup.paragraph(FILES, "quiet"),
        ),
    ]
    data = content if len(summary.trials) <= sections.LISTED else {k: v for k, v in content.items() if k != "trials"}
    title = f"{markup.escape(summary.task.name)}: ways to weigh losses compared"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{title}</title>\n<link rel="icon" href="data:,">\n<style>{CSS}</style></head>\n'
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
