"""Print the Markdown tables of docs/results/overhead.md from the JSON lines of overhead.py.

python benchmarks/overhead_table.py docs/results/data/overhead-{h200,cpu,cpu-resnet}.jsonl.xz
"""

from __future__ import annotations

import json
import lzma
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _tables import markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

BASELINE = "static sum"
MODELS = {"vit": "ViT", "mlp": "MLP", "resnet18": "ResNet-18"}

Measurement = dict[str, Any]


def read(paths: Iterable[str | Path]) -> list[Measurement]:
    """The rows of files as overhead.py writes them, or compressed with xz."""
    rows = []
    for path in map(Path, paths):
        content = path.read_bytes()
        text = lzma.decompress(content) if path.suffix == ".xz" else content
        rows += [json.loads(line) for line in text.decode().splitlines()]
    return rows


# Times


def models(rows: Iterable[Measurement]) -> list[list[Measurement]]:
    """The timed rows of each model on each device."""
    found: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        if "model" in row:
            found.setdefault((row["device"], row["model"]), []).append(row)
    return list(found.values())


def overview(rows: Iterable[Measurement]) -> str:
    """The ratio of learned weights, a row for each model and device."""
    chosen = [[row for row in group if row["method"] == "ours"] for group in models(rows)]
    counts = sorted({row["losses"] for group in chosen for row in group})
    body = []
    for group in chosen:
        cells = {row["losses"]: row for row in group}
        name, *run = title(group).split(", ")
        device = "CPU" if "cpu" in group[0]["torch"] else group[0]["device"].removeprefix("NVIDIA ")
        body.append([", ".join([name, device, *run]), *(ratio(cells.get(n)) for n in counts)])
    return markdown([["model, device", *(f"{n} losses" for n in counts)], *body])


def tables(group: Sequence[Measurement]) -> list[str]:
    """One model on one device: the ratios to the static sum, then the added time."""
    counts = sorted({row["losses"] for row in group})
    cells = {(row["method"], row["losses"]): row for row in group}
    methods = [m for m in dict.fromkeys(row["method"] for row in group) if m != BASELINE]

    def build(corner: str, write: Callable[[Measurement | None], str], first: Sequence[list[str]] = ()) -> str:
        head = [corner, *(f"{n} losses" for n in counts)]
        return markdown([head, *first, *([m, *(write(cells.get((m, n))) for n in counts)] for m in methods)])

    times = [f"{BASELINE}, ms per step", *(milliseconds(cells.get((BASELINE, n))) for n in counts)]
    return [build("ratio to the static sum", ratio, [times]), build("added µs", added)]


def title(group: Sequence[Measurement]) -> str:
    """As in 'ResNet-18, longer run'."""
    name, _, run = group[0]["model"].partition(", ")
    return ", ".join([MODELS[name], *([run] if run else [])])


def milliseconds(row: Measurement | None) -> str:
    return "" if row is None else f"{row['ms']:.3g}"


def ratio(row: Measurement | None) -> str:
    """The ratio with its interval; a note where a method could not be repeated."""
    if row is None or row.get("ratio") is None:
        return "" if row is None else str(row["note"])
    if not has_interval(row):
        return f"{row['ratio']:.3f} ({row['rounds']} round{'s' * (row['rounds'] > 1)})"
    return f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]"


def added(row: Measurement | None) -> str:
    """The added microseconds, where they were measured often enough."""
    return f"{row['added_us']:+.0f}" if row is not None and has_interval(row) else ""


def has_interval(row: Measurement) -> bool:
    return row.get("ratio_low") is not None and not math.isnan(row["ratio_low"])


# Checks


def checks(rows: Iterable[Measurement]) -> list[str]:
    """The checks on the GPU: no host synchronisation, CUDA graphs, and their time."""
    found = {row["check"]: row for row in rows if "check" in row}
    return [synchronisation(found), graphs(found), graph_times(found)] if found else []


def synchronisation(found: dict[str, Measurement]) -> str:
    start, cases = "no host sync: AdamW ", ("plain", "health samples", "History", "History, health samples")
    optimizers = dict.fromkeys(name.removeprefix(start).split(", ")[0] for name in found if name.startswith(start))
    rows = [
        [o, *(found[f"{start}{o}" if case == "plain" else f"{start}{o}, {case}"]["result"] for case in cases)]
        for o in optimizers
    ]
    return markdown([["AdamW", *cases], *rows], "l" * 5)


def graphs(found: dict[str, Measurement]) -> str:
    head = ["captured after", "largest difference", "decay moved the exponents by"]
    return markdown(
        [head]
        + [
            [when[1], *re.findall(r"\d\.\de[+-]\d+", row["detail"])]
            for name, row in found.items()
            if (when := re.match(r"CUDA graph of the whole step after (\d+ eager steps) equals eager", name))
        ]
    )


def graph_times(found: dict[str, Measurement]) -> str:
    detail = found["time of the step in a CUDA graph"]["detail"]
    times = {
        (method, mode): f"{time} {interval}"
        for method, mode, time, interval in re.findall(r"(\w+) (eager|graph) ([\d.]+) us (\[[^]]*\])", detail)
    }
    modes = ("eager", "graph")
    rows = [[method, *(times[method, mode] for mode in modes)] for method in ("static", "ours")]
    return markdown([["", *modes], *rows])


def main() -> None:
    rows = read(sys.argv[1:])
    print(overview(rows) + "\n")
    for group in models(rows):
        about = group[0]
        print(f"### {title(group)}, {about['device']}\n")
        print(f"torch {about['torch']}, Python {about['python']}, TorchJD {about['torchjd']}, ", end="")
        print(f"{about['threads']} CPU thread, seed {about['seed']}, commit {about['commit']}.\n")
        print("\n\n".join(tables(group)) + "\n")
    failed = [row["check"] for row in rows if row.get("result", "PASS") != "PASS"]
    if failed:
        print(f"Failed: {', '.join(failed)}.\n")
    print("\n\n".join(checks(rows)))


if __name__ == "__main__":
    main()
