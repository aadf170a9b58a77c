"""What an executor itself costs for each trial once it is warm: the time between trials that do next to nothing.

Trials run one after the other. The first few, which load torch and start workers, are not counted. Printed is the
median time from one record to the next, and what of it the trial did not spend itself, the median and the first tenth.

::

    python benchmarks/executor_cost.py in-process processes ray
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time

import torch

from trainonce.study import Study, task

WARM = 10  # trials that are not counted


@task(terms=["fit", "small"], metric="error", direction="minimize")
def step(trial):
    """One step of a model with one parameter."""
    w, criterion = torch.nn.Parameter(torch.ones(1)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.1)
    trial.attach(optimizer)
    criterion(fit=w.square().sum(), small=w.abs().sum()).backward()
    optimizer.step()
    return {"validation/error": 1.0, "test/error": 1.0}


def measure(executor: str, trials: int) -> tuple[float, float, float, float]:
    """Seconds from the start to the first record; from record to record; of that, outside of the trial, twice.

    The last is the tenth of the trials that were quickest: on a busy machine it is closest to an idle one.
    """
    options = {"ray": {"max_concurrent": 1}}.get(executor, {})
    workers = {"processes": 1, "in-process": 0}.get(executor)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(step, folder, seeds=trials + WARM).add("uniform")
        start = time.time()
        device = None if options else "cpu"
        study.run(executor=executor, options=options, workers=workers, device=device, show=False)
        records = study.store.read_all()
    times = [record.ended for record in records]
    pairs = list(itertools.pairwise(records))[WARM - 1 :]
    between = [later.ended - earlier.ended for earlier, later in pairs]
    own = [later.ended - earlier.ended - later.seconds for earlier, later in pairs]
    return times[0] - start, statistics.median(between), statistics.median(own), statistics.quantiles(own, n=10)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("executors", nargs="+")
    parser.add_argument("--trials", type=int, default=100)
    asked = parser.parse_args()
    print(
        f"{'executor':<12} {'first record':>13} {'per trial':>10} {'its own':>9} {'tenth':>9}   ({asked.trials} trials)"
    )
    for executor in asked.executors:
        first, between, own, tenth = measure(executor, asked.trials)
        print(f"{executor:<12} {first:>11.2f} s {between:>8.4f} s {own:>7.4f} s {tenth:>7.4f} s")


if __name__ == "__main__":
    main()
