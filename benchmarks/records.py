"""Keep the records of a study in one small file, unpack it again, and re-key it when the rules for keys have changed.

    python benchmarks/records.py pack out/camvid docs/results/data/segmentation/camvid.tar.xz
    python benchmarks/records.py unpack docs/results/data/segmentation/camvid.tar.xz out/camvid
    python benchmarks/records.py rekey docs/results/data/study/digits.tar.xz [--task FILE.py:NAME] [--leave-others]

A packed study holds what tables and figures need: study.json, trials.jsonl, and histories.jsonl with the losses, the
coefficients and the exponents of each finished trial, averaged over windows of steps. Of rules that move,
trials/KEY/history.jsonl keeps about a hundred steps and the last one: enough for the curves of a report and for the
plan ``final``. The plan ``replay`` needs every step and refuses such a history.

``rekey`` (a folder or a packed file, in place) gives every trial the key that today's code computes, so that a study
goes on from its records; the numbers stay what they are. It takes the task's settings from the records and defaults for
settings that are new. Use it only where today's code would find the same results. It changes nothing if any record does
not have the key of its content. A folder may also hold trials of other settings of the task, which its study does not
use: with ``--leave-others`` they stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import shutil
import struct
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.cli import load_task
from trainonce.study import layout
from trainonce.study.rules import key_of, read_rule
from trainonce.study.search import Search
from trainonce.study.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainonce.study.record import Record

HISTORIES = "histories.jsonl"
WINDOWS = 60  # of steps, in histories.jsonl
ROWS = 100  # of the history of a rule that moves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (command, paths) in {"pack": (pack, 2), "unpack": (unpack, 2), "rekey": (rekey, 1)}.items():
        one = commands.add_parser(name)
        one.add_argument("paths", nargs=paths, type=Path, metavar="PATH")
        one.set_defaults(command=command)
    one.add_argument("--task", help="where to find a task that is no recipe, such as mine.py:name")
    one.add_argument("--leave-others", action="store_true", help="leave trials of other settings as they are")
    asked = vars(parser.parse_args())
    try:
        asked.pop("command")(*asked.pop("paths"), **asked)
    except (ValueError, OSError) as error:
        sys.exit(str(error))


# Reading


@contextlib.contextmanager
def open_study(path: str | Path) -> Iterator[Path]:
    """The folder of a study, of a packed one a temporary folder."""
    if Path(path).is_dir():
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(path), Path(folder))
        yield Path(folder)


def read_records(folder: Path) -> dict[str, Record]:
    """The records of the seeds that the plans asked for; a control may have needed a run of another."""
    store = Store(folder, writable=False)
    manifest = store.read_manifest() or {"plans": []}
    asked = {seed for plan in manifest["plans"] for seed in plan["seeds"]}
    return {key: record for key, record in store.read().items() if record.seed in asked}


def read_histories(folder: Path) -> list[dict[str, Any]]:
    """The averaged histories of a study's trials, of one that was never packed from their own files."""
    if (folder / HISTORIES).is_file():
        return [json.loads(line) for line in (folder / HISTORIES).read_text().splitlines()]
    store = Store(folder, writable=False)
    return [found for record in store.read().values() if (found := read_history(store, record))]


def read_history(store: Store, record: Record) -> dict[str, Any]:
    """The averaged history of a finished trial, from its own file; empty where there is none."""
    path = store.folder(record.key) / layout.HISTORY
    if record.status != "done" or not path.is_file():
        return {}
    _, *steps = map(json.loads, path.read_text().splitlines())
    return {"key": record.key, "seed": record.seed, **average(steps)}


def unpack(file: Path, folder: Path) -> None:
    """Write a packed study into a folder, which must be new or empty."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"The folder {folder} is not empty: unpack into a new one.")
    with tarfile.open(file, "r:xz") as archive:
        archive.extractall(folder, filter="data")


# Packing


def pack(folder: Path, file: Path) -> None:
    """Write what is worth keeping of a study into one file. The same study gives the same bytes."""
    store = Store(folder, writable=False)
    contents = {name: (folder / name).read_bytes() for name in (layout.MANIFEST, layout.RECORDS)}
    before = {line["key"]: line for line in read_histories(folder)} if (folder / HISTORIES).is_file() else {}
    averages = []
    for record in store.read().values():
        path = store.folder(record.key) / layout.HISTORY
        found = before.get(record.key) or read_history(store, record)
        if record.status != "done" or not found:
            continue
        averages.append(found)
        if (record.rule.trains or record.rule.measures) and path.is_file():
            name = f"{layout.TRIALS}/{record.key}/{layout.HISTORY}"
            contents[name] = thin(path.read_text()).encode()
    if averages:
        contents[HISTORIES] = "".join(json.dumps(line) + "\n" for line in averages).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w:xz", preset=9 | lzma.PRESET_EXTREME) as archive:
        for name in sorted(contents):
            entry = tarfile.TarInfo(name)  # without times and owners, so that the bytes stay the same
            entry.size = len(contents[name])
            archive.addfile(entry, io.BytesIO(contents[name]))


def average(steps: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return the losses, coefficients and exponents, averaged over windows of steps."""
    wide = -(-len(steps) // WINDOWS)
    parts = [steps[i : i + wide] for i in range(0, len(steps), wide)]
    names = [name for name in steps[0] if name == "step" or name.startswith(("loss/", "coefficient/", "exponent/"))]
    return {
        name: [float(f"{sum(float(row[name]) for row in part) / len(part):.4g}") for part in parts] for name in names
    }


def thin(history: str) -> str:
    """Some rows of a history, the first and the last among them, with as many digits as single precision has."""
    head, *rows = history.splitlines()
    every = max(1, -(-(len(rows) - 1) // ROWS))
    kept = [*rows[:-1:every], *rows[-1:]]
    short = [{name: shorten(value) for name, value in json.loads(row).items()} for row in kept]
    return "".join(line + "\n" for line in [head, *map(json.dumps, short)])


def shorten(value: Any) -> Any:
    """The shortest number that is the same in single precision, in which histories are recorded."""
    if not isinstance(value, float):
        return value
    exact = single(value)
    return next(short for digits in range(1, 10) if single(short := float(f"{exact:.{digits}g}")) == exact)


def single(value: float) -> float:
    """The number rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


# Re-keying


def rekey(path: Path, task: str | None = None, leave_others: bool = False) -> None:
    """Give every trial of a study, in a folder or a packed file, the key that today's code computes."""
    if path.is_dir():
        rekey_folder(path, task, leave_others)
        return
    with open_study(path) as folder:
        rekey_folder(folder, task, leave_others)
        pack(folder, path)


def rekey_folder(folder: Path, task: str | None = None, leave_others: bool = False) -> None:
    store = Store(folder)
    manifest = store.read_manifest()
    if manifest is None:
        raise ValueError(f"There is no study in {folder}.")
    info = manifest["task"]
    store.read_all()  # raises for what another trainonce wrote
    today = load_task(task or info["name"]).using(**info["settings"])
    lines = [json.loads(line) for line in store.trials.read_text().splitlines()]
    keys = new_keys(manifest, lines, today.identity)
    if (others := [line["key"] for line in lines if line["key"] not in keys]) and not leave_others:
        raise ValueError(
            f"In {folder} the keys {', '.join(others)} are not those of what their records hold, or belong to other "
            "settings of the task. Nothing was changed; --leave-others leaves them as they are."
        )

    manifest["task"] = info | {name: today.info()[name] for name in ("identity", "settings", "files")}
    lines = [line | {"key": keys.get(line["key"], line["key"])} for line in lines]
    move(folder, keys)
    if (folder / HISTORIES).is_file():
        kept = [history | {"key": keys.get(history["key"], history["key"])} for history in read_histories(folder)]
        (folder / HISTORIES).write_text("".join(json.dumps(line) + "\n" for line in kept))
    store.trials.write_text("".join(json.dumps(line) + "\n" for line in lines))
    store.write_manifest({name: value for name, value in manifest.items() if name != "format"})
    changed = sum(old != new for old, new in keys.items())
    left = f", {len(others)} of other settings stay" if others else ""
    print(f"{folder}: {info['identity']} is now {today.identity}; {changed} of {len(keys)} keys are new{left}")


def new_keys(manifest: Mapping[str, Any], lines: list[dict[str, Any]], identity: str) -> dict[str, str]:
    """The new key of each old one, for the records that have the key of their content."""
    before, found = manifest["task"]["identity"], {}
    for line in lines:
        rule, seed = read_rule(line["rule"]), line["seed"]
        if line["key"] == key_of(before, rule, seed):
            found[line["key"]] = key_of(identity, rule, seed)
    for plan in manifest["plans"]:
        if plan.get("search") is not None:
            search = Search(**plan["search"])
            numbers = [(seed, number) for seed in plan["seeds"] for number in range(search.trials)]
            found |= {search.key(before, *each): search.key(identity, *each) for each in numbers}
    return {line["key"]: found[line["key"]] for line in lines if line["key"] in found}


def move(folder: Path, keys: Mapping[str, str]) -> None:
    """Rename what belongs to the trials. By way of other names, since a new key may be another trial's old one."""
    names = [(layout.TRIALS, ""), (layout.LOGS, ".txt")]
    for where, ending in names:
        for old, new in keys.items():
            if old != new and (folder / where / (old + ending)).exists():
                shutil.move(folder / where / (old + ending), folder / where / f"{new}.moved")
    for where, ending in names:
        for path in (folder / where).glob("*.moved"):
            path.rename(path.with_name(path.name.removesuffix(".moved") + ending))


if __name__ == "__main__":
    main()
