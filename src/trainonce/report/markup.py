"""Small pieces of HTML. All text is escaped here and nowhere else."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from trainonce.report.drawing.style import typeset
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


def text(value: object) -> str:
    """Return a text of the report, escaped and with ± for +-."""
    return html.escape(typeset(str(value)))


def escape(value: object) -> str:
    """Return a user's text, with nothing changed but what HTML needs escaped."""
    return html.escape(str(value))


def paragraph(value: object, of: str = "") -> str:
    """Return a paragraph, or nothing where there is nothing to say."""
    return f"<p{_class(of)}>{text(value)}</p>" if value else ""


def table(
    rows: Sequence[Sequence[object]],
    label: str,
    of: Mapping[int, str] | None = None,
    words: bool = False,
    ratios: Collection[str] = (),
) -> str:
    """Return a table that scrolls sideways if it is too wide; the first row is its head.

    :param of: The class of some rows, by their number; 1 follows the head.
    :param ratios: The heads of columns with values separated by colons, which may be many: they wrap, and are cut.
    """
    head, *body = rows
    wraps = [column in ratios for column in head]
    cells = "".join(_head_cell(cell, wrap) for cell, wrap in zip(head, wraps, strict=True))
    lines = [
        f"<tr{_class((of or {}).get(number, ''))}>{''.join(map(_cell, row, wraps))}</tr>"
        for number, row in enumerate(body, start=1)
    ]
    frame = f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}">'
    inside = f"<thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f"{frame}<table{_class('words' if words else '')}>{inside}</table></div>"


def _head_cell(cell: object, wrap: bool) -> str:
    """Return a column's head; a long one is cut, or it would push numbers out of sight, and in full on hovering."""
    short = shorten(str(cell), 40)
    title = "" if short == str(cell) else f' title="{text(cell)}"'
    return f'<th scope="col"{_class("ratios" if wrap else "")}{title}>{text(short)}</th>'


def _cell(cell: object, wrap: bool) -> str:
    if wrap:
        return f'<td class="ratios" title="{text(cell)}">{_ratios(str(cell))}</td>'
    return f"<td{_class('long' if len(str(cell)) > LONG else '')}>{text(cell)}</td>"


LONG = 30  # characters from which a name may break
SHOWN = 4  # of very many values; the others open on a click


def _ratios(cell: str) -> str:
    """Return values separated by colons, with breaks between them; of more than six the first, all on a click."""
    values, bracket, rest = cell.partition(" (")
    parts = values.split(" : ")
    pieces = [f"<span>{text(part)}{' :' * (number < len(parts))}</span>" for number, part in enumerate(parts, start=1)]
    end = [f"<span>({text(rest)}</span>"] * bool(bracket)
    if len(parts) <= SHOWN + 2:
        return " ".join([*pieces, *end])
    title = " ".join([*pieces[:SHOWN], f"<span>… of {len(parts)}</span>", *end])
    return f"<details><summary>{title}</summary>{' '.join(pieces[SHOWN:])}</details>"


def definitions(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a list of names and what they stand for."""
    return "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def details(title: object, inside: str) -> str:
    """Content that opens on a click on its title."""
    return f"<details><summary>{text(title)}</summary>{inside}</details>"


def script_data(content: str) -> str:
    """JSON for a script tag, escaped so that no text in it can end the tag."""
    return content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
