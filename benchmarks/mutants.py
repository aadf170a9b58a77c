"""Plant small faults in the sources, one at a time, and list those that no test notices.

    PYTHONPATH=src python benchmarks/mutants.py --jobs 16 --out mutants.jsonl
    PYTHONPATH=src python benchmarks/mutants.py --only src/trainonce/study/summary.py --sample 50 --out summary.jsonl

A fault is one edit of the source: ``<`` for ``<=``, ``+`` for ``-``, an ``if`` that is always taken, a call left out.
Each is written to a copy of ``src`` and tested in a process of its own, forked from one that has torch loaded.

First the tests run once on the unchanged sources, which records the functions that each test calls. A fault then meets
the tests that call its function: those of the file's own test file first, and quick ones before slow ones. If they
pass, it meets the rest, those that start processes too, for about a minute. ``--out`` keeps a line per fault; the same
command goes on where it stopped, with ``--again`` it tests again those that survived. ``mutants_equivalent.jsonl``
lists faults that no caller could notice, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Any

import pytest
from _faults import Mutant, find_mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.jsonl")

#: Each group: its sources, and the tests that must notice a fault in them.
GROUPS = {
    "core": (["src/trainonce/*.py", "src/trainonce/health/*.py"], ["tests/test_*.py", "tests/health/test_*.py"]),
    "study": (["src/trainonce/study/**/*.py"], ["tests/study/**/test_*.py"]),
    "recipes": (
        [
            f"src/trainonce/recipes/{name}/{part}.py"
            for name in ("segmentation", "depth")
            for part in ("losses", "metrics")
        ],
        [
            f"tests/recipes/{name}/test_{part}.py"
            for name in ("segmentation", "depth")
            for part in ("losses", "metrics")
        ],
    ),
}
NOT_TESTS_OF_CODE = {"test_architecture.py", "test_docs.py", "test_readme.py", "test_examples.py", "test_gpu.py"}
HEAVY = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "numpy",
    "pytest",
    "hypothesis",
    "sybil",
    "rich",
    "optuna",
    "torchjd",
)
FIRST = 30  # tests in a fault's first round
ENOUGH = 60.0  # seconds that a fault's tests take without it; more are not run
FACTOR, LEAST = 5, 90.0  # a fault may take so many times what its tests took without it, and at least so many seconds


class Calls:
    """A pytest plugin: how long each test takes, which functions of the sources it calls, which are marked."""

    def __init__(self, src: Path) -> None:
        self.prefix = f"{src}{os.sep}"
        self.passed: dict[str, tuple[float, list[tuple[str, int]]]] = {}
        self.marked: list[str] = []
        self.calls: set[tuple[str, int]] = set()
        self.failed = False

    def trace(self, frame: Any, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if name.startswith(self.prefix):
            self.calls.add(("src/" + name[len(self.prefix) :], frame.f_code.co_firstlineno))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.calls, self.failed, self.start = set(), False, time.perf_counter()
        sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.outcome != "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        if not self.failed:
            self.passed[nodeid] = (time.perf_counter() - self.start, sorted(self.calls))

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self.marked = [item.nodeid for item in items if any(map(item.get_closest_marker, ("dist", "slow")))]


@dataclasses.dataclass
class Job:
    """A run of tests in a forked process; ``finish`` gets its exit status, or None where its time was up."""

    tests: list[str]
    seconds: float
    finish: Callable[[int | None, Path], Job | None]
    mutant: Mutant | None = None
    more: tuple[str, ...] = ("-x",)


class Slot:
    """A copy of the sources, and at most one process that tests it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        if job.mutant:
            target = self.folder / job.mutant.path
            target.write_bytes(job.mutant.apply((ROOT / job.mutant.path).read_bytes()))
        self.job, self.until = job, time.monotonic() + job.seconds
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                status = self.test(job)
            finally:
                os._exit(status)

    def test(self, job: Job) -> int:
        """In the forked process."""
        os.setsid()  # so that the processes it starts end with it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.modules["__main__"] = types.ModuleType("__main__")  # this file is none of the tests' processes' business
        with self.log.open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        src, tmp = self.folder / "src", self.folder / "tmp"
        tmp.mkdir(exist_ok=True)
        os.environ |= {"PYTHONPATH": f"{src}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "TMPDIR": str(tmp)}
        tempfile.tempdir = None
        sys.path[:0] = [str(src), str(ROOT)]
        sys.dont_write_bytecode = job.mutant is not None
        found = importlib.util.find_spec("trainonce")
        assert found is not None
        assert found.origin == str(src / "trainonce" / "__init__.py"), found.origin
        calls = Calls(src)
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += [f"--basetemp={self.folder / 'base'}", *job.more]
        status = pytest.main([*options, *job.tests], [] if job.mutant else [calls])
        if job.mutant is None:
            (self.folder / "calls.json").write_text(json.dumps([calls.passed, calls.marked]))
        sys.stdout.flush()
        return int(status)

    def poll(self) -> Job | None:
        """Free the slot if its process has ended or its time is up; returns the job that follows from it, if any."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if self.job is None or (pid == 0 and time.monotonic() < self.until):
            return None
        job = self.job
        self.stop(reap=pid == 0)
        if job.mutant:
            shutil.copyfile(ROOT / job.mutant.path, self.folder / job.mutant.path)
        return job.finish(os.waitstatus_to_exitcode(status) if pid else None, self.folder)

    def stop(self, reap: bool = True) -> None:
        """End the process and those that it has started."""
        if self.job:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if reap:
                os.waitpid(self.pid, 0)
            self.job = None


def run(jobs: Iterable[Job], slots: list[Slot], deadline: float = float("inf")) -> None:
    """Run jobs in the slots, and those that follow from them, until all have ended; start none after the deadline."""
    waiting = iter(jobs)
    following: list[Job] = []
    while True:
        for slot in slots:
            if slot.job:
                following += filter(None, [slot.poll()])
            if not slot.job:
                job = following.pop() if following else next(waiting, None) if time.monotonic() < deadline else None
                if job:
                    slot.start(job)
        if not any(slot.job for slot in slots):
            return
        time.sleep(0.005)


class Tests:
    """The tests of a group: which functions each calls, and how long it takes."""

    def __init__(self, group: str, slots: list[Slot], kept: Path | None) -> None:
        self.passed: dict[str, tuple[float, list[tuple[str, int]]]] = {}
        self.marked: list[str] = []
        shared = hashlib.sha256(b"".join(map(Path.read_bytes, map(Path, expand(["src/**/*.py", "tests/**/_*.py"])))))
        known = {(line["file"], line["state"]): line for line in read_lines(kept)}
        jobs = []
        for file in [name for name in expand(GROUPS[group][1]) if Path(name).name not in NOT_TESTS_OF_CODE]:
            state = shared.copy()
            state.update(Path(file).read_bytes())
            key = (file, state.hexdigest())
            if key in known:
                self.passed |= known[key]["passed"]
                self.marked += known[key]["marked"]
            else:
                jobs.append(Job([file], 900, self.reader(key, kept), more=("-m", "not gpu")))
        run(jobs, slots)

    def reader(self, key: tuple[str, str], kept: Path | None) -> Callable[[int | None, Path], None]:
        def read(status: int | None, folder: Path) -> None:
            if status not in (0, 5):
                said = (folder / "log").read_text()[-2000:]
                print(f"{key[0]} fails without a fault (status {status}):\n{said}", flush=True)
            if (folder / "calls.json").exists():
                passed, marked = json.loads((folder / "calls.json").read_text())
                (folder / "calls.json").unlink()
                self.passed |= passed
                self.marked += marked
                if kept and status in (0, 5):
                    line = {"file": key[0], "state": key[1], "passed": passed, "marked": marked}
                    with kept.open("a") as out:
                        out.write(json.dumps(line) + "\n")

        return read

    def choose(self, mutant: Mutant, scopes: list[tuple[int, int]]) -> tuple[list[str], list[str]]:
        """The tests of a fault, for a first and a second round."""
        inner = [scope for scope in scopes if scope[0] <= mutant.line <= scope[1]]
        low, high = max(inner, default=(0, 1 << 30))

        def calls(test: str) -> bool:
            return any(path == mutant.path and low <= line <= high for path, line in self.passed[test][1])

        def is_mirror(test: str) -> bool:
            source = Path(mutant.path).relative_to("src/trainonce")
            folder, file = Path("tests") / source.parent, Path(test.partition("::")[0])
            small = source.parent.name not in ("", "study")  # where all tests of the folder may meet the file
            return file.parent == folder and (small or file.name.startswith(f"test_{source.stem}"))

        # Of the cases of a test function, first one, then a second: they are more alike than the functions.
        seen = Counter[str]()
        rank = {}
        for test in sorted(self.passed, key=self.seconds):
            rank[test] = (seen[function_of(test)], self.seconds(test))
            seen[function_of(test)] += 1
        calling = sorted(filter(calls, self.passed), key=lambda test: (not is_mirror(test), rank[test]))
        first, marked = calling[:FIRST], set(self.marked)
        others = {*calling, *filter(is_mirror, self.passed), *(marked & set(self.passed))} - set(first)
        second = sorted(others, key=rank.__getitem__)
        ends = itertools.accumulate(map(self.seconds, second))
        second = [test for test, end in zip(second, ends, strict=True) if end < ENOUGH]
        return first, sorted(second, key=lambda test: (test in marked, test))  # by file, for fixtures that they share

    def seconds(self, test: str) -> float:
        return self.passed[test][0]


def scopes_of(source: bytes) -> list[tuple[int, int]]:
    """First and last line of each function, decorators included."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return [(min([n.lineno, *(mark.lineno for mark in n.decorator_list)]), n.end_lineno or n.lineno) for n in functions]


def test_job(mutant: Mutant, tests: Tests, report: Callable[[Mutant, str, float], None]) -> Job | None:
    """The job that tests a fault: two rounds, the second only if the first passes."""
    first, second = tests.choose(mutant, scopes_of((ROOT / mutant.path).read_bytes()))
    start = time.monotonic()

    def job(round_: list[str], following: list[str]) -> Job | None:
        def finish(status: int | None, folder: Path) -> Job | None:
            if status == 0 and following:
                return job(following, [])
            outcome = {None: "timeout", 0: "survived"}.get(status, "killed")
            if status == 70 or (status == 4 and "not found" in (folder / "log").read_text()):
                outcome = "error"
            report(mutant, outcome, time.monotonic() - start)
            return None

        return Job(round_, LEAST + FACTOR * sum(map(tests.seconds, round_)), finish, mutant)

    if not first and not second:
        report(mutant, "survived", 0.0)
        return None
    return job(first, second) if first else job(second, [])


def function_of(test: str) -> str:
    return test.partition("[")[0]


def expand(patterns: Iterable[str]) -> list[str]:
    return sorted({path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)})


def read_lines(path: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def print_table(results: list[dict[str, Any]]) -> None:
    counts = Counter((result["path"], result["outcome"]) for result in results)
    kinds = ("killed", "timeout", "survived", "error")
    print(f"\n{'file':50} {'faults':>8}" + "".join(f"{kind:>10}" for kind in kinds))
    for path in [*sorted({result["path"] for result in results}), "all"]:
        row = [sum(n for (p, k), n in counts.items() if k == kind and path in (p, "all")) for kind in kinds]
        print(f"{path.removeprefix('src/trainonce/'):50} {sum(row):8}" + "".join(f"{n:10}" for n in row))
    print()
    for result in sorted(results, key=lambda result: (result["path"], result["line"])):
        if result["outcome"] in ("survived", "error"):
            print(f"{result['outcome']}: {result['path']}:{result['line']}  {result['operator']}\n    {result['code']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", help="a source file, or a pattern of them; may be repeated")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, help="test so many faults, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=float("inf"), help="start no more after so many seconds")
    parser.add_argument("--out", type=Path, help="a line of JSON per fault; those that are there already are left out")
    parser.add_argument("--again", action="store_true", help="test again those that survived")
    parser.add_argument("--list", action="store_true", help="list the faults and test none")
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.deadline

    os.chdir(ROOT)
    wanted = set(expand(asked.only or [pattern for sources, _ in GROUPS.values() for pattern in sources]))
    mutants = {
        name: [mutant for path in expand(sources) if path in wanted for mutant in find_mutants(path)]
        for name, (sources, _) in GROUPS.items()
    }
    accepted = {line["id"] for line in read_lines(EQUIVALENT)}
    every = [mutant for group in mutants.values() for mutant in group if mutant.id not in accepted]
    if asked.sample:
        every = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
    results = {line["id"]: line for line in read_lines(asked.out)}
    done = {id_ for id_, line in results.items() if line["outcome"] in ("killed", "timeout") or not asked.again}
    todo = {mutant.id for mutant in every} - done
    print(f"{len(every)} faults, {len(todo)} to test, {len(accepted)} known to be equivalent", flush=True)
    if asked.list:
        print(*(f"{m.path}:{m.line}  {m.operator}\n    {m.code}" for m in every), sep="\n")
        return

    os.environ |= {"OMP_NUM_THREADS": "1"} | {"ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")}
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    def report(mutant: Mutant, outcome: str, seconds: float) -> None:
        shown = {"path": mutant.path, "line": mutant.line, "operator": mutant.operator, "code": mutant.code}
        results[mutant.id] = {"id": mutant.id, "outcome": outcome, "seconds": round(seconds, 1)} | shown
        if asked.out:
            with asked.out.open("a") as out:
                out.write(json.dumps(results[mutant.id], ensure_ascii=False) + "\n")
        todo.discard(mutant.id)
        where = f"{mutant.path}:{mutant.line}  {mutant.operator}"
        print(f"{len(todo):5} left  {outcome:8} {seconds:6.1f} s  {where}", flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, contextlib.ExitStack() as stack:
        slots = [Slot(Path(folder) / str(index)) for index in range(asked.jobs)]
        for slot in slots:
            stack.callback(slot.stop)
        for group, found in mutants.items():
            left = [mutant for mutant in found if mutant.id in todo]
            if left and time.monotonic() < deadline:
                tests = Tests(group, slots, asked.out and asked.out.with_suffix(".tests"))
                print(f"{group}: {len(tests.passed)} tests, {len(left)} faults", flush=True)
                run(filter(None, (test_job(mutant, tests, report) for mutant in left)), slots, deadline)
    print_table([results[mutant.id] for mutant in every if mutant.id in results])


if __name__ == "__main__":
    main()
