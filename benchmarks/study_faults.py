"""What a study survives: workers are killed, disks fill up, folders are read-only. Prints a table.

    python benchmarks/study_faults.py                 # all of it, about ten minutes on two cores
    python benchmarks/study_faults.py --only kills

A trial is lost if it has no record of success at the end, and trained twice if it began again after its record. The
full disk and the read-only folder are file systems in memory, which only root may mount.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainonce.study.store import Store

#: A task that notes when it begins, and takes about a second.
TASK = '''
import os, time
import torch
from trainonce.study import task

@task(terms=["fit", "small"], metric="error", direction="minimize", incidental=["notes", "pause"])
def noted(trial, *, notes="", steps=20, pause=0.04, megabytes=0.0):
    """Fits a number, slowly."""
    w, criterion = torch.nn.Parameter(torch.tensor([float(trial.seed)])), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.05)
    trial.attach(optimizer)
    with open(notes, "ab", buffering=0) as file:
        file.write(f"{trial.dir.name} {time.time()}\\n".encode())
    for step in trial.loop([torch.nn.ParameterList([w])]):
        optimizer.zero_grad()
        criterion(fit=(w - 3).square().sum(), small=w.square().sum()).backward()
        optimizer.step()
        time.sleep(pause)
    (trial.dir / "large.bin").write_bytes(os.urandom(int(megabytes * 1e6)))
    return {"validation/error": w.item(), "test/error": w.item()}
'''

#: The command on a machine of another name.
COMMAND = """
import sys
from trainonce.cli import main
from trainonce.study.store import workers

workers.host = lambda: sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""
PLANS = ("uniform", "yoto", "grid:0.1,10", "replay")
EACH = 5  # trials a seed


class Scene:
    """A study in a folder, and the commands that work on it."""

    def __init__(self, folder: Path, seeds: int, **settings: object) -> None:
        self.folder, self.out, self.notes = folder, folder / "out", folder / "notes"
        self.seeds = seeds
        (folder / "noted.py").write_text(TASK)
        given = {"notes": self.notes, **settings}
        self.settings = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]

    def start(self, host: str = "one", workers: int = 2) -> subprocess.Popen[str]:
        plans = ["compare", "noted.py", "--plans", *PLANS, "--seeds", str(self.seeds), "--no-report"]
        more = ["--workers", str(workers), "--device", "cpu", "--out", str(self.out), *self.settings]
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, host, *plans, *more],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def finish(self) -> None:
        process = self.start()
        said, error = process.communicate()
        assert process.returncode == 0, said + error

    def count(self) -> int:
        return len(Store(self.out).read_all()) if (self.out / "trials.jsonl").exists() else 0

    def verdict(self) -> str:
        """How many trials there are, were lost, trained twice and begun again, when all is over: cells of a row."""
        found = Store(self.out).read_all()
        done = {record.key: record for record in found if record.status == "done"}
        begun = collections.defaultdict(list)
        for line in self.notes.read_text().splitlines():
            key, when = line.split()
            begun[key].append(float(when))
        twice = sum(max(times) > done[key].ended for key, times in begun.items() if key in done)
        twice += sum(count > 1 for count in collections.Counter(r.key for r in found if r.status == "done").values())
        again = sum(len(times) - 1 for times in begun.values())
        expected = EACH * self.seeds
        return f"{expected} | {expected - len(done)} | {twice} | {again}"


def kill(process: subprocess.Popen[str], whole: bool, number: int = signal.SIGKILL) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number) if whole else process.send_signal(number)
    process.communicate()
    return process.returncode


def kills(folder: Path) -> tuple[str, str]:
    """One worker with two processes, killed at 50 random moments: alone, or with its processes"""
    scene, rng, count, longest = Scene(folder, seeds=70), random.Random(0), 0, 6.0
    while count < 50:
        before, process = scene.count(), scene.start()
        time.sleep(rng.uniform(0.5, longest))
        if process.poll() is not None:
            break
        kill(process, whole=count % 2 == 0)
        count += 1
        longest += 0.5 * (scene.count() == before)
    scene.finish()
    return scene.verdict(), f"{count} kills"


def group(folder: Path) -> tuple[str, str]:
    """Four workers with the names of four hosts on one folder, five of them killed and started again"""
    scene, rng = Scene(folder, seeds=24), random.Random(1)
    workers = {host: scene.start(host, workers=1) for host in "abcd"}
    for number in range(5):
        goal = scene.count() + 4
        while scene.count() < goal or len(list((scene.out / "workers").iterdir())) < 4:
            time.sleep(0.05)
        host = rng.choice("abcd")
        kill(workers[host], whole=number % 2 == 0)
        workers[host] = scene.start(host, workers=1)
    codes = [process.wait() for process in workers.values() if process.communicate()]
    assert codes == [0] * 4, codes
    return scene.verdict(), "5 kills"


def terminated(folder: Path) -> tuple[str, str]:
    """SIGTERM at ten random moments, to the worker or to all of its processes"""
    scene, rng, codes = Scene(folder, seeds=14), random.Random(2), []
    for number in range(10):
        before, process = scene.count(), scene.start()
        while scene.count() == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 1.0))
        codes.append(kill(process, whole=number % 2 == 0, number=signal.SIGTERM))
    scene.finish()
    left = list((scene.out / "trials").glob("*/checkpoint.pt"))
    return scene.verdict(), f"exit codes {sorted(set(codes))}, {len(left)} snapshots left"


@contextlib.contextmanager
def mounted(folder: Path, size: str):
    """A file system in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def full(folder: Path) -> tuple[str, str]:
    """The disk is full in the middle of the study; room is made, and the same command given again"""
    scene = Scene(folder, seeds=4, megabytes=0.5)
    with mounted(scene.out, "3m"):
        process = scene.start()
        _, error = process.communicate()
        code, there = process.returncode, scene.count()
        remount(scene.out, "size=100m")
        scene.finish()
        return scene.verdict(), f"exit code {code} after {there} records: {error.strip()}"


def read_only(folder: Path) -> tuple[str, str]:
    """The folder is read-only"""
    scene = Scene(folder, seeds=4)
    with mounted(scene.out, "100m"):
        remount(scene.out, "ro")
        process = scene.start()
        _, error = process.communicate()
        remount(scene.out, "rw")
        scene.finish()
        return scene.verdict(), f"exit code {process.returncode}: {error.strip()}"


SCENES = {f.__name__: f for f in (kills, group, terminated, full, read_only)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCENES, action="append")
    asked = parser.parse_args()
    print("| what happens | trials | lost | trained twice | begun again | time |\n|---|" + "---:|" * 5, flush=True)
    said = []
    for name in asked.only or SCENES:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="study-faults-") as folder:
            place = Path(folder)
            cells, text = SCENES[name](place)
            said.append(f"{name}: {text}".replace(f"{place}/", ""))
        print(f"| {SCENES[name].__doc__} | {cells} | {time.monotonic() - start:.0f} s |", flush=True)
    print("\n" + "\n".join(said))


if __name__ == "__main__":
    main()
