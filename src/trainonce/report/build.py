"""Write a study's report into its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report import catalogue, export, files, pictures
from trainonce.report.figures import CATALOGUE
from trainonce.report.page import page
from trainonce.study import layout, trial_rows
from trainonce.study.store import Store
from trainonce.study.summary import Summary

if TYPE_CHECKING:
    from trainonce.study import Study


def write(study: Study | str | os.PathLike[str]) -> Path:
    """Write ``report.html``, ``figures/``, ``summary.json`` and ``trials.csv`` into the folder of a study.

    Every file is replaced atomically, and none before all are ready. The same study gives the same bytes.

    :param study: The study, or the folder that it was run in.
    :returns: The path of the page.

    >>> write("nowhere")
    Traceback (most recent call last):
    FileNotFoundError: There is no study in nowhere.
    """
    summary, store = _read(study)
    require("matplotlib.figure", "matplotlib", "study")
    drawings, lacking = catalogue.draw_all(summary, CATALOGUE)
    names = [drawing.name for drawing in drawings]
    content = export.summary_json(summary, names)
    text = page(summary, content, drawings, lacking, pictures.section(summary, store))
    contents = {
        **{f"{layout.FIGURES}/{drawing.name}.svg": _encode(drawing.svg) for drawing in drawings},
        **{f"{layout.FIGURES}/{drawing.name}.png": drawing.png for drawing in drawings},
        **_data(summary, content),
        layout.REPORT: _encode(text),
    }
    files.replace_all(store.path, contents, _outdated_files(store.path, names))
    return Path(store.path / layout.REPORT)


def write_data(study: Study | str | os.PathLike[str]) -> None:
    """Write ``summary.json`` and ``trials.csv`` alone, which needs no matplotlib."""
    summary, store = _read(study)
    content = export.summary_json(summary, _figures_of_last_report(store.path))
    files.replace_all(store.path, _data(summary, content))


def _read(study: Study | str | os.PathLike[str]) -> tuple[Summary, Store]:
    folder = Path(study) if isinstance(study, (str, os.PathLike)) else study.store.path
    return Summary.read(folder), Store(folder, writable=False)


def _data(summary: Summary, content: Any) -> dict[str, bytes]:
    return {
        layout.TABLE: trial_rows.to_csv(trial_rows.columns(summary.trials, summary.task.terms)),
        layout.SUMMARY: _encode(export.to_lines(content)),
    }


def _encode(text: str) -> bytes:
    """Return UTF-8; a message that a trial ended with may hold what is no text, such as parts of a file's name."""
    return text.encode("utf-8", "replace")


def _outdated_files(folder: Path, names: list[str]) -> list[str]:
    """Return the files of figures that the last report had and this one does not."""
    gone = [name for name in _figures_of_last_report(folder) if name not in names]
    return [f"{layout.FIGURES}/{name}.{kind}" for name in gone for kind in ("svg", "png")]


def _figures_of_last_report(folder: Path) -> list[str]:
    try:
        before = export.read_entry((folder / layout.SUMMARY).read_text(encoding="utf-8"), "figures")
        return [name for name in before if isinstance(name, str) and Path(name).name == name]
    except (OSError, ValueError, KeyError, TypeError):
        return []
