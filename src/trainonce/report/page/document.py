"""The page: one HTML file that needs nothing else, neither files nor network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report import export
from trainonce.report.drawing import render
from trainonce.report.page import markup, sections
from trainonce.report.page.stylesheet import CSS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from trainonce.report.catalogue import Drawn
    from trainonce.report.export import Listed
    from trainonce.study.summary import Summary

#: Nothing may be fetched, whatever is in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'{}; img-src data:"


def page(
    summary: Summary,
    trials: Sequence[Listed],
    content: Mapping[str, Any],
    drawn: Sequence[Drawn],
    lacking: Sequence[str],
    unused: int = 0,
    live: Mapping[str, str] | None = None,
    library: str = "",
    pictures: str = "",
) -> str:
    """The whole page.

    :param content: What is embedded as data.
    :param lacking: What figures were left out for, in a sentence each.
    :param live: Interactive versions of some figures, by name, as Plotly's JSON; ``library`` is Plotly's source.
    :param pictures: What trials left to look at, as HTML.
    """

    def part(name: str, title: str, before: str, after: str = "") -> str:
        shown = [_figure(d, i == 0 and name == "comparison", live or {}) for i, d in enumerate(_of(drawn, name))]
        inside = before + (f'<div class="figures">{"".join(shown)}</div>' if shown else "") + after
        return f'<section id="part-{name}"><h2>{title}</h2>{inside}</section>' if inside else ""

    left_out = markup.paragraph(f"Left out: {' '.join(lacking)}" if lacking else "", "quiet")
    body = [
        sections.opening(summary),
        part("comparison", "The comparison", sections.comparison(summary)),
        part("weights", "The weights", ""),
        part("losses", "The losses", ""),
        part("pictures", "Pictures", pictures),
        part("sensitivity", "Sensitivity", ""),
        part("controls", "Controls", sections.controls(summary)),
        part("diagnostics", "Diagnostics", sections.health(trials), left_out),
        part(
            "protocol",
            "How it was made",
            sections.protocol(summary, trials, unused),
            sections.all_trials(summary, trials) + markup.paragraph(FILES, "quiet"),
        ),
    ]
    title = f"{markup.raw(summary.task.name)}: learned loss weights compared"
    policy = POLICY.format(" 'unsafe-eval'; worker-src blob:" if library else "")
    scripts = f"<script>{library}</script><script>{LIVE}</script>" if library else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{title}</title>\n<link rel="icon" href="data:,">\n<style>{CSS}</style></head>\n'
        f"<body><main>\n{chr(10).join(filter(None, body))}\n</main>\n"
        f'<script type="application/json" id="trainonce-data">{markup.script_data(export.as_text(content))}</script>\n'
        f"{scripts}</body></html>\n"
    )


FILES = "Every figure is in figures/ as SVG and PNG; summary.json and trials.csv, beside this page, hold the numbers."


def _of(drawn: Sequence[Drawn], part: str) -> list[Drawn]:
    return [d for d in drawn if d.entry.part == part]


def _figure(drawn: Drawn, first: bool, live: Mapping[str, str]) -> str:
    entry = drawn.entry
    still = f'<div class="still">{render.inline(drawn.svg, entry.title)}</div>'
    plot = (
        f'<div class="plot"></div><script type="application/json">{markup.script_data(live[entry.name])}</script>'
        if entry.name in live
        else ""
    )
    return (
        f'<figure id="{entry.name}"{" class=first" if first else ""}>{plot}{still}'
        f"<figcaption>{markup.text(entry.caption)}</figcaption></figure>"
    )


#: Replaces the still figures by interactive ones, in the page's colours; on paper the still ones return.
LIVE = """
(function () {
  const ink = () => getComputedStyle(document.body).color;
  const colours = () => ({"font.color": ink(), "xaxis.gridcolor": "rgba(128,128,128,0.25)",
    "yaxis.gridcolor": "rgba(128,128,128,0.25)", "xaxis.color": ink(), "yaxis.color": ink()});
  const inked = (json) => JSON.parse(json.replaceAll("#010203", ink()));
  const drawn = [];
  for (const figure of document.querySelectorAll("figure")) {
    const plot = figure.querySelector(".plot"), data = figure.querySelector("script");
    if (!plot) continue;
    figure.classList.add("ready");
    const draw = () => {
      const content = inked(data.textContent);
      return Plotly.react(plot, content.data, content.layout, {responsive: true, displaylogo: false,
        displayModeBar: false}).then(() => Plotly.relayout(plot, colours()));
    };
    draw(); drawn.push(draw);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((draw) => draw()));
})();
"""
