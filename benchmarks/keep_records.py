"""Keep of a study what its tables and figures need, small enough for a repository.

    python benchmarks/keep_records.py out/camvid docs/results/data/segmentation/camvid

Copies study.json and trials.jsonl, and writes histories.jsonl: of each finished trial the losses and the exponents,
averaged over windows of steps. Of plans that others replay (learned weights) the weights of every step are kept too,
in trials/*/history.jsonl.gz, so that the study can be continued from here after unpacking them.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

from trainonce.study.store import Store

WINDOWS = 60


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    for name in ("study.json", "trials.jsonl"):
        shutil.copy(source / name, target / name)
    store = Store(source, writable=False)
    with open(target / "histories.jsonl", "w") as kept:
        for record in store.read().values():
            path = store.folder(record.key) / "history.jsonl"
            if record.status != "done" or not path.exists():
                continue
            _, *steps = map(json.loads, path.read_text().splitlines())
            kept.write(json.dumps({"key": record.key, "seed": record.seed, **thinned(steps)}) + "\n")
            if record.weighting.kind == "learned":
                beside = target / "trials" / record.key / "history.jsonl.gz"
                beside.parent.mkdir(parents=True, exist_ok=True)
                beside.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def thinned(steps: list[dict[str, float]]) -> dict[str, list[float]]:
    wide = -(-len(steps) // WINDOWS)
    parts = [steps[i : i + wide] for i in range(0, len(steps), wide)]
    names = [name for name in steps[0] if name == "step" or name.startswith(("loss/", "exponent/"))]
    return {name: [rounded(sum(float(row[name]) for row in part) / len(part)) for part in parts] for name in names}


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
