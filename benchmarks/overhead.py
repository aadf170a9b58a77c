"""What learned loss weights cost: the time of a whole training step over that of a plain weighted sum.

    python benchmarks/overhead.py                        # small MLP and ResNet-18 on one CPU thread, about 10 minutes
    python benchmarks/overhead.py --device cuda          # also a ViT, and checks for host syncs and CUDA graphs

A step is forward, losses, weighting, backward, AdamW step and zero_grad. All methods of a cell run interleaved, in
random order inside each round, so that drift of the machine hits all alike; each is compared with the static sum of the
same round. Intervals are the 95 % order-statistics interval of the median of these paired values (no assumption on
their distribution). The static sum is entered twice: what its second row shows is noise.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import random
import statistics
import subprocess
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from _checks import check_cuda
from _methods import BASELINE, METHODS, OURS, UW
from _models import MODELS, Problem, make
from _timing import Clock, Entry, Estimate, paired, peak_of_step, run_rounds

import trainonce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WARM_UP = 100  # steps; also what DWA needs until its weights move


def start(name: str, problem: Problem, clock: Clock, limit: float) -> Entry:
    """Build a method's step and warm it up. What cannot run, or is too slow to repeat, stays in the table as that."""
    try:
        entry = Entry(name, METHODS[name](problem.fresh()))
        first = clock.seconds(entry.step, 1)
        if first > limit:
            return Entry(name, None, {0: first}, note=f"one cold step only, over {limit:g} s")
        begin = time.perf_counter()
        for _ in range(WARM_UP):
            entry.step()
            if time.perf_counter() - begin > limit / 4:
                break
        entry.peak = peak_of_step(entry.step, clock)
    except ImportError as error:
        return Entry(name, note=f'not installed (pip install "torchjd[quadprog-projector]"): {error}'[:120])
    except RuntimeError as error:  # out of memory on a GPU is one of these
        return Entry(name, note=f"failed: {str(error).splitlines()[0][:90]}")
    return entry


# One cell of the table


def measure_cell(model: str, losses: int, options: argparse.Namespace, clock: Clock) -> list[dict[str, Any]]:
    problem = make(model, losses, clock.device, options.seed)
    entries = [start(name, problem, clock, options.seconds) for name in options.methods]
    block = run_rounds(entries, clock, options.seconds, random.Random(options.seed))
    base = entries[0]
    rows = [{"model": model, "losses": losses, "block": block} | row_of(entry, base) for entry in entries]
    print_cell(rows)
    by_name = {e.name: e for e in entries if e.times}
    for line in verdicts(by_name, rows):
        print(line)
    return rows


def row_of(entry: Entry, base: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"method": entry.name, "note": entry.note, "rounds": len(entry.times)}
    if not entry.times:
        return row
    ratio = paired(entry, base, lambda t, b: t / b)
    added = paired(entry, base, lambda t, b: (t - b) * 1e6)
    row["ms"] = statistics.median(entry.times.values()) * 1e3
    row |= dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True))
    row |= dict(zip(("added_us", "added_us_low", "added_us_high"), added, strict=True))
    row["peak_mib"] = entry.peak
    return {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in row.items()}


def print_cell(rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    print(f"\n{first['model']}, {first['losses']} losses, {first['block']} steps a round")
    memory = any(row.get("peak_mib") is not None for row in rows)
    peak = "  step MiB" if memory else ""
    print(f"  {'method':<17}{'ms':>9}  {'ratio':<24}{'added us':<29}{'rounds':>6}{peak}")
    for row in rows:
        if "ms" not in row:
            print(f"  {row['method']:<17}{'-':>9}  {row['note']}")
            continue
        ratio = shown(row, "ratio", 3, "x")
        added = shown(row, "added_us", 0, "", sign="+")
        peak = f"{row['peak_mib']:>10.1f}" if row["peak_mib"] is not None else ""
        note = f"  {row['note']}" if row["note"] else ""
        print(f"  {row['method']:<17}{row['ms']:9.3f}  {ratio:<24}{added:<29}{row['rounds']:>6}{peak}{note}")


def shown(row: dict[str, Any], key: str, digits: int, unit: str, sign: str = "") -> str:
    text = f"{row[key]:{sign}.{digits}f}{unit}"
    if row[f"{key}_low"] is None:
        return text
    return f"{text} [{row[f'{key}_low']:{sign}.{digits}f}, {row[f'{key}_high']:{sign}.{digits}f}]"


def verdicts(entries: dict[str, Entry], rows: list[dict[str, Any]]) -> Iterator[str]:
    """The two goals: within 1.01x of the static sum for steps of 20 ms and more, and no slower than TorchJD's UW."""
    if OURS in entries and rows[0]["ms"] >= 20:
        yield "  goal, ours within 1.01x of the static sum: " + decided(paired(entries[OURS], entries[BASELINE], _over))
    if OURS in entries and UW in entries:
        difference = paired(entries[OURS], entries[UW], lambda ours, uw: (ours - uw) * 1e6)
        text = f"{difference.value:+.0f} us [{difference.low:+.0f}, {difference.high:+.0f}]"
        yield f"  goal, ours no slower than {UW}: {text}: {decided(difference)}"


def _over(ours: float, base: float) -> float:
    return ours / base - 1.01


def decided(difference: Estimate) -> str:
    """Whether a difference is at most 0, as far as its interval tells."""
    if difference.high <= 0:
        return "yes"
    return "no" if difference.low > 0 else f"open, the interval holds both; by the median {_word(difference)}"


def _word(difference: Estimate) -> str:
    return "yes" if difference.value <= 0 else "no"


def print_summary(rows: list[dict[str, Any]]) -> None:
    print("\nRatio to the static sum, by number of losses")
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = {(row["method"], row["losses"]): row for row in rows if row["model"] == model}
        counts = list(dict.fromkeys(losses for _, losses in cells))
        print(f"  {model:<17}" + "".join(f"{n:>9}" for n in counts))
        for method in dict.fromkeys(name for name, _ in cells):
            ratios = [cells[method, n].get("ratio") for n in counts]
            print(f"  {method:<17}" + "".join(f"{'-' if r is None else f'{r:.3f}':>9}" for r in ratios))


# The command


def facts(device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torchjd": version_of("torchjd"),
        "trainonce": trainonce.__version__,
        "commit": commit(),
        "seed": options.seed,
        "seconds": options.seconds,
        "clock": options.clock,
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "CPU"


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    try:
        where = Path(__file__).parent
        head = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=where, capture_output=True, text=True, check=True
        )
        return head.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--models", type=listed(MODELS), help="default: mlp,resnet18, on cuda also vit")
    parser.add_argument("--losses", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4, 16, 64])
    parser.add_argument("--methods", type=listed(METHODS), default=list(METHODS), help="default: all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each method in each cell (default 6)")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: processor time, on a busy CPU")
    parser.add_argument("--checks", choices=["with", "only", "without"], default="with", help="the checks on cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write each cell to this file, one JSON object a line")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here")
    if options.device == "cuda" and options.clock == "cpu":
        parser.error("processor time says nothing of a GPU: use --clock wall")
    options.models = options.models or ["mlp", "resnet18", *(["vit"] if options.device == "cuda" else [])]
    if options.device == "cpu" and "vit" in options.models:
        parser.error("the ViT is for --device cuda")
    options.methods = [BASELINE, *(m for m in options.methods if m != BASELINE)]
    return options


def listed(known: Iterable[str]) -> Callable[[str], list[str]]:
    names = list(known)

    def parse_list(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown} not among {names}")
        return chosen

    return parse_list


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    about = facts(device, options)
    print("Step time over a static weighted sum. " + ", ".join(f"{k} {v}" for k, v in about.items()))
    # The losses are random: what the library says about their health is not the matter here.
    warnings.simplefilter("ignore", trainonce.health.HealthWarning)
    warnings.filterwarnings("ignore", message=".*capturable=True.*")
    write = writer(options.json, about)
    rows: list[dict[str, Any]] = []
    if options.device == "cuda" and options.checks != "without":
        for row in check_cuda(device, options):
            write(row)
    if options.checks != "only":
        for model in options.models:
            for losses in options.losses:
                rows += (cell := measure_cell(model, losses, options, Clock(device, options.clock)))
                for row in cell:
                    write(row)
        print_summary(rows)
    if options.device == "cpu":
        print("\nThe checks for host syncs and CUDA graphs need --device cuda.")


def writer(path: Path | None, about: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    if path is None:
        return lambda row: None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")

    def write(row: dict[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | about) + "\n")

    return write


if __name__ == "__main__":
    main()
