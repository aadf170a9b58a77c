"""Print the tables on generated rooms and on the true step of docs/results/depth.md from the kept outputs.

python benchmarks/rooms_table.py docs/results/data/depth
"""

from __future__ import annotations

import json
import re
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from _tables import markdown
from records import open_study

from trainonce.study.store import Store

TRAININGS = {"rooms-many": "22,000 steps", "rooms-whole": "7,000 more"}
SPLITS = {"validation": "100 for validation", "test": "200 for the test"}
METRICS = {  # with their decimals
    "delta_1": ("delta_1, %", 1),
    "si_log": ("SI_log", 2),
    "f_a": ("F_A, %", 1),
    "a_rel": ("a_rel", 3),
    "focal": ("focal length off, %", 1),
}


def quality(data: Path) -> str:
    """The metrics of both trainings on generated rooms."""
    rows = [["after", "rooms", *(title for title, _ in METRICS.values())]]
    for name, after in TRAININGS.items():
        with open_study(data / f"{name}.tar.xz") as folder:
            (record,) = Store(folder, writable=False).read().values()
        for split, rooms in SPLITS.items():
            values = [f"{record.metrics[f'{split}/{metric}']:.{d}f}" for metric, (_, d) in METRICS.items()]
            rows.append(["" if split == "test" else after, rooms, *values])
    return markdown(rows, "llrrrrr")


def focal_length(data: Path) -> str:
    """The error of the focal length on 2,000 rooms, from the output of depth_focal.py."""
    rows = [["after", "2,000 rooms", "mean, %", *(f"{part} % below" for part in (25, 50, 75, 95))]]
    lines = [line for line in (data / "rooms-whole-focal.txt").read_text().splitlines() if " 2000 " in line]
    for line, after in zip(lines, ["22,000 steps, rounded", "", "7,000 more", ""], strict=True):
        name, (_, mean, error, *parts) = re.split(r" {2,}", line)[0], re.findall(r"[\d.]+(?=%|\s)", line)
        rooms = name if name == "trained on" else "not trained on"
        below = [str(Decimal(part).quantize(Decimal("0.1"), ROUND_HALF_UP)) for part in parts]
        rows.append([after, rooms, f"{mean} ± {error}", *below])
    return markdown(rows, "llrrrrr")


def step(data: Path) -> str:
    """The step at its true size, from the output of depth_step.py."""
    head = ["parts", "weights", "s/step", "views/s", "GiB", "TFLOP/s", "share of 989", "days for a run"]
    rows = [[*head, "days for the grid"]]
    for line in (data / "step.txt").read_text().splitlines()[2:]:
        parts, *values = re.split(r" {2,}", line.strip())
        values[5] = values[5].replace("%", " %")
        rows.append([parts.replace(" parts", "").replace(" compile", ", compiled"), *values])
    return markdown(rows, "ll" + "r" * 7)


def probes(data: Path) -> str:
    """The error of the focal length after short trainings on 10,000 rooms."""
    kept = [json.loads(line) for line in (data / "probes.jsonl").read_text().splitlines()]
    chosen = [probe for probe in kept if probe["task"] == "rooms" and probe["settings"]["frames"] == 10000]
    rows = [["learning rate", "weights", "validation, %", "test, %"]]
    for probe in sorted(chosen, key=lambda p: (p["weights"], p["settings"]["lr"])):
        errors = [probe["metrics"][f"{split}/focal"] for split in ("validation", "test")]
        weights = " : ".join(f"{weight:g}" for weight in probe["weights"])
        rows.append([f"{probe['settings']['lr']:g}", weights, *(f"{e:.1f}" for e in errors)])
    return markdown(rows, "rlrr")


TABLES = (quality, focal_length, step, probes)


def main() -> None:
    data = Path(sys.argv[1])
    print("\n\n".join(table(data) for table in TABLES))


if __name__ == "__main__":
    main()
