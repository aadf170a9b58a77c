"""Wall time against the number of trials, for each executor: the digits recipe under fixed weights.

    python benchmarks/executors.py --executors processes,stacked --trials 1,8,32,128 --out scale.jsonl

Trials are weightings times seeds; each number of them is a study of its own in a new folder, its start and its report
left out. ``one-by-one`` is ``processes`` with one worker.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import torch

from trainonce.cli import load_task
from trainonce.study import Study

SEEDS = 4


def wall(
    task: str, executor: str, trials: int, device: str | None, steps: int | None, workers: int | None = None
) -> float:
    """Seconds from the first trial to the last record."""
    made = load_task(task)
    made = made if steps is None else made.using(steps=steps)
    seeds = math.gcd(SEEDS, trials)
    points = trials // seeds
    ratios = [10 ** (3 * i / points) / 30 for i in range(points)]
    with tempfile.TemporaryDirectory() as folder:
        study = Study(made, Path(folder) / "study", seeds=seeds)
        for ratio in ratios:
            study.add("fixed", 1.0, *[ratio] * (len(made.terms) - 1))
        chosen: dict[str, object] = {"executor": executor}
        if executor in ("one-by-one", "processes"):
            chosen = {"executor": "processes", "workers": 1 if executor == "one-by-one" else workers}
        began = time.perf_counter()
        study.run(**chosen, device=device, show=False, limit=None)  # type: ignore[arg-type]
        took = time.perf_counter() - began
        records = study.store.read().values()
        assert len(records) == trials
        assert all(record.status == "done" for record in records), [record.error for record in records]
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="digits", help="a recipe, or package.module:name")
    parser.add_argument("--executors", default="one-by-one,processes,stacked")
    parser.add_argument("--trials", default="1,8,32,128")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--workers", type=int, help="of processes, where the default is one for a GPU")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"
    for executor in asked.executors.split(","):
        for trials in map(int, asked.trials.split(",")):
            seconds = wall(asked.task, executor, trials, asked.device, asked.steps, asked.workers)
            row = {"task": asked.task, "executor": executor, "trials": trials, "seconds": round(seconds, 2)}
            row |= {"device": name, "torch": torch.__version__}
            print(json.dumps(row), flush=True)
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
