"""The file of a History: killed runs, resumed runs, full disks, damage."""

import gc
import json
import os
import resource
import subprocess
import sys
import warnings

import pytest
import torch
from _history_run import TERMS, Run, rows
from torch import nn

from trainonce import CompositeLoss, History, attach, health

# Kills

KILLED = """
import os, signal, sys
import torch
import trainonce
torch.set_num_threads(1)

def start(path, block):
    w = torch.nn.Parameter(torch.ones(3))
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.01)
    history = trainonce.History(path, block=block)
    trainonce.attach(optimizer, criterion, history=history)
    def step():
        optimizer.zero_grad()
        criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
        optimizer.step()
    return step, history

start(None, 64)[0]()  # what torch imports at its first step, once for all
folder = sys.argv[1]
for moment in map(int, sys.argv[2:]):
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        step, history = start(f"{folder}/{moment}.jsonl", 5)
        while True:
            step()
            os.write(far, b".")
    os.close(far)
    for _ in range(moment):
        os.read(near, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

step, history = start(f"{folder}/end.jsonl", 64)
step(), step(), step()
child = os.fork()
if child == 0:
    sys.exit()  # runs the exit handlers: the rows are the parent's to write
os.waitpid(child, 0)
print(os.path.getsize(f"{folder}/end.jsonl"))
step()
"""


@pytest.mark.slow
def test_kill_at_several_moments_and_the_end_of_python(tmp_path):
    moments = [1, 4, 5, 23, 60]
    # Forking a process of several threads is what is tested; autograd refuses it only where it has seen a GPU.
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), *map(str, moments)]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    assert done.stderr == ""
    for moment in moments:
        path = tmp_path / f"{moment}.jsonl"
        steps = History.load(path).columns()["step"]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= moment // 5 * 5  # at most the block under way is lost
    with (tmp_path / "end.jsonl").open() as file:
        assert len(file.readline()) == int(done.stdout)  # the forked child wrote nothing
    assert History.load(tmp_path / "end.jsonl").columns()["step"] == [1, 2, 3, 4]


@pytest.mark.slow
def test_every_torn_end_is_dropped_and_resumed_from(tmp_path):
    history = History(tmp_path / "run.jsonl")
    Run(history).steps(3)
    history.flush()
    whole = history.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    torn = tmp_path / "torn.jsonl"
    for cut in [*range(ends[0], len(whole), 7), ends[2] - 1, ends[2], ends[2] + 1, len(whole) - 1, len(whole)]:
        torn.write_bytes(whole[:cut])
        there = sum(end <= cut for end in ends) - 1
        assert History.load(torn).columns()["step"] == list(range(1, there + 1))
        resumed = History(torn, step=there)
        Run(resumed).steps(1)
        resumed.flush()
        assert [r["step"] for r in rows(torn)] == list(range(1, there + 2))
        assert torn.read_bytes().startswith(whole[: ends[there]])


@pytest.mark.parametrize("cut", [0, 1, 10, 30])
def test_a_torn_first_line_is_begun_anew(tmp_path, cut):
    history = History(tmp_path / "run.jsonl")
    Run(history).steps(1)
    history.flush()
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(history.path.read_bytes()[:cut])
    again = History(torn)
    Run(again).steps(1)
    again.flush()
    assert torn.read_bytes() == history.path.read_bytes()


# Resuming


def test_resume_goes_on_and_drops_what_is_done_again(tmp_path):
    path = tmp_path / "run.jsonl"
    first = History(path)
    Run(first).steps(10)
    first.flush()
    kept = path.read_bytes().splitlines(keepends=True)[:7]
    resumed = History(path, step=6)
    assert len(path.read_bytes().splitlines()) == 11  # nothing is removed before attach
    Run(resumed).steps(3)
    assert resumed.columns()["step"] == list(range(1, 10))
    assert resumed.columns()["loss/fit"] == first.columns()["loss/fit"][:6] + first.columns()["loss/fit"][:3]
    assert [r["step"] for r in rows(path)] == list(range(1, 10))
    assert path.read_bytes().startswith(b"".join(kept))
    assert History.load(path).columns() == resumed.columns()
    again = History(path, step=0)
    Run(again).steps(2)
    assert again.columns()["step"] == [r["step"] for r in rows(path)] == [1, 2]


@pytest.mark.parametrize("where", ["short file", "new file", "memory"])
def test_resume_numbers_from_the_checkpoint_even_where_rows_are_missing(tmp_path, where):
    path = None if where == "memory" else tmp_path / "run.jsonl"
    before = []
    if where == "short file":
        history = History(path)
        Run(history).steps(4)
        history.flush()
        before = [1, 2, 3, 4]
    resumed = History(path, step=100)
    Run(resumed).steps(2)
    assert resumed.columns()["step"] == [*before, 101, 102]
    if path:
        assert [r["step"] for r in rows(path)] == [*before, 101, 102]


def test_an_existing_file_is_refused_and_untouched(tmp_path):
    path = tmp_path / "run.jsonl"
    history = History(path)
    Run(history).steps(3)
    history.flush()
    content, time = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(ValueError, match=r"already holds 3 steps\. To go on from a checkpoint pass step="):
        History(path)
    other = CompositeLoss(["fit", "other"])
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ValueError, match=r"records the terms 'fit', 'small', 'smooth'; this criterion has 'fit', 'oth"):
        attach(optimizer, other, history=History(path, step=1))
    assert len(optimizer.param_groups) == 1
    gc.collect()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, time)


@pytest.mark.parametrize("content", ["my thesis", "my thesis\n", '{"step": 1}\n', '["a"]\n', "{}", "\n"])
def test_a_file_of_something_else_is_refused_and_untouched(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    for read in (History, lambda p: History(p, step=3), History.load):
        with pytest.raises(ValueError, match="is not a history file"):
            read(path)
    assert path.read_text() == content


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="block must be at least 1; got 0"):
        History(block=0)
    with pytest.raises(ValueError, match="step is the number of steps made so far and must be at least 0; got -1"):
        History(step=-1)
    with pytest.raises(FileNotFoundError, match="There is no history file at"):
        History.load(tmp_path / "none.jsonl")
    with pytest.raises(OSError, match=r"cannot be written: Is a directory\. Choose another path"):
        History(tmp_path)
    (tmp_path / "new.jsonl").write_text('{"trainonce_history": 3, "terms": ["a", "b"]}\n')
    with pytest.raises(ValueError, match="was written by a newer trainonce"):
        History.load(tmp_path / "new.jsonl")


# Disks


def limit_file_size(size):
    """A real short write: the system writes up to the limit and refuses the rest."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size is None else size, most))


@pytest.mark.parametrize("size", [10, 500, 1000])
def test_a_full_disk_is_one_warning_and_made_good_later(tmp_path, size):
    history = History(tmp_path / "run.jsonl", block=2)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            limit_file_size(size)
            run = Run(history)
            run.steps(9)
        finally:
            limit_file_size(None)
    assert [(w.category, "(File too large)" in str(w.message)) for w in given] == [(health.HistoryLost, True)]
    lost = history.path.read_bytes()
    assert len(lost) == size  # a torn line, or a torn first line
    if size > 100:
        known = History.load(history.path).columns()["step"]
        assert known == list(range(1, len(known) + 1))
    run.steps(1)  # fills a block: everything is written
    assert [r["step"] for r in rows(history.path)] == list(range(1, 11))
    assert History.load(history.path).columns() == history.columns()


def test_a_folder_that_vanishes(tmp_path):
    folder = tmp_path / "runs"
    history = History(folder / "run.jsonl", block=2)
    run = Run(history)
    run.steps(2)
    history.path.unlink()
    folder.rmdir()
    with pytest.warns(health.HistoryLost, match="Training goes on; the rows stay in memory") as given:
        run.steps(4)
    assert len(given) == 1
    assert len(history) == 6
    folder.mkdir()
    run.steps(2)
    assert [r["step"] for r in rows(history.path)] == [3, 4, 5, 6, 7, 8]  # what was not yet written
    assert json.loads(history.path.read_text().splitlines()[0])["terms"] == TERMS


@pytest.mark.parametrize("damage", [b"\x00\xff\x00", b'{"step": 3}', b"[1]", b'{"step": 3, "lo', b"a\rb", b"7"])
def test_damage_in_the_middle_is_left_out_with_a_warning(tmp_path, damage):
    history = History(tmp_path / "run.jsonl")
    Run(history).steps(4)
    history.flush()
    lines = history.path.read_bytes().split(b"\n")
    lines[3] = damage
    history.path.write_bytes(b"\n".join(lines))
    with pytest.warns(health.HistoryDamaged, match="1 lines of .* could not be read, or were out of order"):
        assert History.load(history.path).columns()["step"] == [1, 2, 4]
    with pytest.warns(health.HistoryDamaged):
        resumed = History(history.path, step=4)
    Run(resumed).steps(1)
    assert resumed.columns()["step"] == [1, 2, 4, 5]


def test_rows_out_of_order_are_left_out_with_a_warning(tmp_path):
    history = History(tmp_path / "run.jsonl")
    Run(history).steps(6)
    history.flush()
    head, *lines = history.path.read_bytes().splitlines(keepends=True)
    one, two, three, four, five, six = lines
    history.path.write_bytes(b"".join([head, one, two, five, three, five, four, six]))
    with pytest.warns(health.HistoryDamaged, match="3 lines of .* could not be read, or were out of order"):
        found = History.load(history.path)
    assert found.columns()["step"] == [1, 2, 5, 6]
    whole = history.columns()
    assert found.columns()["loss/fit"] == [whole["loss/fit"][i] for i in (0, 1, 4, 5)]
    with pytest.warns(health.HistoryDamaged):
        History(history.path, step=2).bind(CompositeLoss(TERMS))
    assert history.path.read_bytes() == b"".join([head, one, two])


@pytest.mark.parametrize("units", [False, True])
def test_a_file_of_the_first_format_is_read_with_coefficients(tmp_path, units):
    """Those of committed records: weights that sum to 1, in gradient units beside their total."""
    row = {"step": 1, "loss/a": 2.0, "loss/b": 3.0, "weight/a": 0.8, "weight/b": 0.2}
    row |= {"exponent/b": -1.5, "empirical/b": 0.0, "decay/b": 0.1, "lr": 0.5}
    head = {"trainonce_history": 1, "terms": ["a", "b"]} | ({"units": "gradient"} if units else {})
    row |= {"unit/b": 7.0, "total": 5.0} if units else {}
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, row, row | {"step": 2})))
    history = History.load(path)
    expected = [4.0, 1.0] if units else [0.8, 0.2]
    assert history.coefficients()[1].tolist() == pytest.approx(expected)
    names = ["step", "loss/a", "loss/b", "coefficient/a", "coefficient/b", "exponent/b", "empirical/b", "decay/b", "lr"]
    assert list(history.columns()) == names
    assert history.columns()["lr"] == [0.5, 0.5]
