"""The Markdown tables of docs/results/overhead.md from the JSON lines of overhead.py.

python benchmarks/overhead_table.py docs/results/data/overhead-*.jsonl.xz
"""

from __future__ import annotations

import json
import lzma
import math
import sys
from pathlib import Path
from typing import Any

BASELINE = "static sum"


def read(paths: list[str]) -> list[dict[str, Any]]:
    """The rows of files as overhead.py writes them, or compressed with xz."""
    rows = []
    for path in paths:
        content = Path(path).read_bytes()
        text = lzma.decompress(content) if path.endswith(".xz") else content
        rows += [json.loads(line) for line in text.decode().splitlines()]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """One model on one device: a row a method, a column a number of losses."""
    counts = sorted({row["losses"] for row in rows})
    cells = {(row["method"], row["losses"]): row for row in rows}
    lines = [
        f"| | {' | '.join(f'{n} losses' for n in counts)} |",
        f"|---|{'---|' * len(counts)}",
        f"| {BASELINE}, ms a step | {' | '.join(milliseconds(cells.get((BASELINE, n))) for n in counts)} |",
    ]
    methods = dict.fromkeys(row["method"] for row in rows if row["method"] != BASELINE)
    lines += [f"| {m} | {' | '.join(cell(cells.get((m, n))) for n in counts)} |" for m in methods]
    return "\n".join(lines)


def milliseconds(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['ms']:.3g}"


def cell(row: dict[str, Any] | None) -> str:
    """The ratio with its interval, and the added microseconds; a note where a method could not be repeated."""
    if row is None or row.get("ratio") is None:
        return "" if row is None else row["note"]
    text = f"{row['ratio']:.3f}x"
    if row["ratio_low"] is None or math.isnan(row["ratio_low"]):
        return f"{text} ({row['rounds']} rounds)"
    return f"{text} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}], {row['added_us']:+.0f} us"


def main() -> None:
    rows = read(sys.argv[1:])
    timed = [row for row in rows if "model" in row]
    for device, model in dict.fromkeys((row["device"], row["model"]) for row in timed):
        chosen = [row for row in timed if (row["device"], row["model"]) == (device, model)]
        about = chosen[0]
        print(f"### {model}, {device}\n")
        print(f"torch {about['torch']}, Python {about['python']}, TorchJD {about['torchjd']}, ", end="")
        print(f"{about['threads']} CPU thread, seed {about['seed']}, commit {about['commit']}.\n")
        print(table(chosen) + "\n")
    for row in rows:
        if "check" in row:
            print(f"- {row['result']}: {row['check']}{': ' if row['detail'] else ''}{row['detail']}")


if __name__ == "__main__":
    main()
