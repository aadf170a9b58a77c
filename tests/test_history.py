"""History: one exact row per real step, blocks without reads in between, a file that survives kills and full disks."""

import copy
import gc
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import trainonce
from trainonce import CompositeLoss, History, attach, health
from trainonce.history import Tally
from trainonce.terms import Values

TERMS = ["fit", "small", "smooth"]


class Run:
    """A small regression with three losses; ``step`` does one real optimizer step and notes the losses it used."""

    def __init__(self, history=None, *, criterion=None, dtype=torch.float32, lr=0.05, decay=1.0, **options):
        torch.manual_seed(1)
        self.model = nn.Linear(4, 2, dtype=dtype)
        self.data = torch.randn(64, 8, 4, dtype=dtype)
        self.criterion = criterion or CompositeLoss(TERMS, init=0.5).to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, **options)
        self.attachment = attach(self.optimizer, self.criterion, decay=decay, history=history)
        self.batches = itertools.cycle(self.data)

    def losses(self):
        x = next(self.batches)
        y = self.model(x)
        return {
            "fit": ((y - x[:, :2]) ** 2).mean() + 0.1,
            "small": (self.model.weight**2).mean() + 0.2,
            "smooth": (y[1:] - y[:-1]).abs().mean(),
        }

    def backward(self, **change):
        losses = self.losses() | change
        self.criterion(losses).backward()
        return {k: math.nan if v is None else v.item() for k, v in losses.items()}

    def step(self, **change):
        self.optimizer.zero_grad()
        used = self.backward(**change)
        self.optimizer.step()
        return used

    def steps(self, count):
        return [self.step() for _ in range(count)]


def rows(path):
    """The rows of a file as a strict JSON reader sees them, without the first line."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    lines = path.read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines][1:]


# Numbers


def test_columns_equal_an_independent_recomputation():
    lr, momentum, rho = 0.05, 0.9, 0.7
    history = History()
    run = Run(history, dtype=torch.float64, lr=lr, momentum=momentum, decay=rho)
    schedule = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, gamma=0.99)
    used = []
    for _ in range(200):
        used.append(run.step())
        schedule.step()
    columns = history.columns()
    assert columns["step"] == list(range(1, 201))

    def close(column, t, value):
        assert columns[column][t] == pytest.approx(value, rel=1e-11, abs=1e-13), (column, t)

    mu, buffer = [math.log(0.5)] * 2, [0.0] * 2
    for t, losses in enumerate(used):
        rate = lr * 0.99**t
        ratios = [1.0, *map(math.exp, mu)]
        lam = [r / sum(ratios) for r in ratios]
        total = sum(w * losses[name] for w, name in zip(lam, TERMS, strict=True))
        mean = lam[1] * mu[0] + lam[2] * mu[1]
        close("lr", t, rate)
        for i, name in enumerate(TERMS):
            assert columns[f"loss/{name}"][t] == losses[name]
            close(f"weight/{name}", t, lam[i])
        for i, name in enumerate(TERMS[1:]):
            pull = lam[i + 1] * (mu[i] - mean) + 1 / (1 + math.exp(-mu[i]))
            buffer[i] = momentum * buffer[i] + lam[i + 1] * (losses[name] - total)
            close(f"exponent/{name}", t, mu[i])
            close(f"empirical/{name}", t, -rate * buffer[i])
            close(f"decay/{name}", t, -rate * rho * pull)
            mu[i] += -rate * buffer[i] - rate * rho * pull


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
def test_each_update_is_the_sum_of_its_parts(dtype, error):
    history = History()
    Run(history, dtype=dtype, momentum=0.9).steps(50)
    columns = history.columns()
    for name in TERMS[1:]:
        mu = columns[f"exponent/{name}"]
        assert len(set(mu)) == 50
        for t in range(49):
            parts = columns[f"empirical/{name}"][t] + columns[f"decay/{name}"][t]
            assert mu[t + 1] == pytest.approx(mu[t] + parts, rel=0, abs=error)


def test_a_file_loads_back_bit_for_bit(tmp_path):
    for dtype in (torch.float32, torch.float64):
        history = History(tmp_path / f"{dtype}.jsonl", block=7)
        Run(history, dtype=dtype).steps(20)
        history.flush()
        assert History.load(history.path).columns() == history.columns()
        assert torch.equal(History.load(history.path).weights(), history.weights().double())
        assert len(History.load(history.path)) == len(history) == 20


# One row per real step


def test_accumulation_records_the_mean_of_the_micro_batches():
    history = History()
    run = Run(history, dtype=torch.float64)
    expected = []
    for _ in range(5):
        run.optimizer.zero_grad()
        micro = [run.backward() for _ in range(3)]
        run.optimizer.step()
        expected.append({name: sum(m[name] for m in micro) / 3 for name in TERMS})
    columns = history.columns()
    assert columns["step"] == [1, 2, 3, 4, 5]
    for name in TERMS:
        assert columns[f"loss/{name}"] == pytest.approx([e[name] for e in expected], rel=1e-15)


def test_a_closure_is_one_step():
    history = History()
    run = Run(history)
    used = []

    def closure():
        run.optimizer.zero_grad()
        used.append(run.backward())
        return torch.tensor(0.0)

    for _ in range(3):
        run.optimizer.step(closure)
    columns = history.columns()
    assert columns["step"] == [1, 2, 3]
    assert [columns[f"loss/{n}"] for n in TERMS] == [[u[n] for u in used] for n in TERMS]


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_grad_scaler_skips_leaves_no_row(fused):
    history = History(block=3)
    run = Run(history, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    exponents, losses = [], []
    for t in range(8):
        run.optimizer.zero_grad()
        values = run.losses()
        scaler.scale(run.criterion(values)).backward()
        before = run.criterion.exponents.detach().clone()
        if t in (2, 3, 6):
            run.model.weight.grad[0, 0] = math.inf
        else:
            exponents.append(before.tolist())
            losses.append([values[name].item() for name in TERMS])
        scaler.step(run.optimizer)
        scaler.update()
        assert torch.equal(before, run.criterion.exponents) == (t in (2, 3, 6))
    columns = history.columns()
    assert columns["step"] == [1, 2, 3, 4, 5]
    assert [list(mu) for mu in zip(columns["exponent/small"], columns["exponent/smooth"], strict=True)] == exponents
    assert [list(row) for row in zip(*(columns[f"loss/{n}"] for n in TERMS), strict=True)] == losses


def test_absent_terms_are_nan_for_that_term_only():
    history = History()
    run = Run(history, dtype=torch.float64)
    first, second = run.step(small=None), run.step()
    run.optimizer.zero_grad()
    micro = [run.backward(smooth=None), run.backward()]
    run.optimizer.step()
    columns = history.columns()
    assert columns["loss/fit"] == pytest.approx([first["fit"], second["fit"], (micro[0]["fit"] + micro[1]["fit"]) / 2])
    assert math.isnan(columns["loss/small"][0])
    assert columns["loss/small"][1:] == pytest.approx([second["small"], micro[0]["small"]], rel=1e-14)
    assert columns["loss/smooth"] == [first["smooth"], second["smooth"], micro[1]["smooth"]]
    assert all(map(math.isfinite, columns["weight/small"]))


def test_a_nan_loss_is_recorded_as_nan_and_the_file_stays_json(tmp_path):
    history = History(tmp_path / "run.jsonl")
    run = Run(history)
    run.step()
    run.step(smooth=run.model.weight.sum() * math.nan)
    run.step(fit=run.model.weight.sum() * math.inf)
    for columns in (history.columns(), History.load(history.path).columns()):
        assert math.isfinite(columns["loss/smooth"][0])
        assert math.isnan(columns["loss/smooth"][1])
        assert math.isfinite(columns["loss/fit"][1])
    assert rows(history.path)[1]["loss/smooth"] == "nan"


def test_validation_calls_are_not_recorded():
    history = History()
    run = Run(history)
    used = []
    for _ in range(3):
        with torch.no_grad():
            run.criterion(dict.fromkeys(TERMS, torch.tensor(1e6)))
        used.append(run.step())
        with torch.inference_mode():
            run.criterion(dict.fromkeys(TERMS, torch.tensor(1e6)))
    assert history.columns()["loss/fit"] == [u["fit"] for u in used]


def test_a_step_without_a_call_leaves_no_row():
    """The optimizer may step for other reasons, torch.distributed.checkpoint does so to make its state."""
    history = History()
    run = Run(history)
    run.step()
    run.optimizer.step()
    run.step()
    assert history.columns()["step"] == [1, 2]


def test_losses_in_low_precision_are_summed_in_float32():
    tally = Tally()
    for _ in range(1000):
        tally.add(Values(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), None), fresh=True)
    assert tally.take().tolist() == [1.0, 2.0]
    assert tally.take() is None


# Blocks


def test_nothing_is_read_between_blocks(tmp_path, monkeypatch):
    made = []

    class Counted(trainonce.readback.Readback):
        def __init__(self, tensor):
            made.append(tuple(tensor.shape))
            super().__init__(tensor)

    monkeypatch.setattr(trainonce.history, "Readback", Counted)
    history = History(tmp_path / "run.jsonl", block=16)
    run = Run(history)
    run.steps(15)
    assert made == []
    run.steps(1)
    assert [count for count, _ in made] == [16]
    assert len(rows(history.path)) == 16  # a full block is written at once when it has arrived
    run.steps(20)
    assert [count for count, _ in made] == [16, 16]
    history.flush()
    assert [count for count, _ in made] == [16, 16, 4]
    assert [r["step"] for r in rows(history.path)] == list(range(1, 37))
    history.flush()
    assert len(made) == 3


def test_a_block_on_its_way_is_written_when_it_arrives(tmp_path, monkeypatch):
    """As on a GPU: the copy is not there yet when the next steps are made."""
    arrived = []

    class Slow(trainonce.readback.Readback):
        def ready(self):
            return bool(arrived)

    monkeypatch.setattr(trainonce.history, "Readback", Slow)
    history = History(tmp_path / "run.jsonl", block=4)
    run = Run(history)
    run.steps(6)
    assert rows(history.path) == []
    arrived.append(True)
    run.steps(1)
    assert len(rows(history.path)) == 4
    arrived.clear()
    run.steps(5)  # the third block is full before the second arrived: only then is one waited for
    assert len(rows(history.path)) == 8
    assert len(history) == 12


def test_a_forgotten_history_is_flushed(tmp_path):
    path = tmp_path / "run.jsonl"
    Run(History(path)).steps(5)
    gc.collect()
    assert [r["step"] for r in rows(path)] == [1, 2, 3, 4, 5]


def test_steps_inside_a_cuda_graph_are_refused(monkeypatch):
    run = Run(History())
    monkeypatch.setattr(trainonce.history, "is_capturing", lambda tensor: True)
    with pytest.raises(RuntimeError, match="inside a CUDA graph"):
        run.step()


def test_only_the_first_rank_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(trainonce.history, "_is_first_rank", lambda: False)
    history = History(tmp_path / "run.jsonl", block=2)
    Run(history).steps(3)
    assert len(history) == 3
    assert not history.path.exists()


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
    trainonce.attach(optimizer, criterion, decay=1.0, history=history)
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
        attach(optimizer, other, decay=1.0, history=History(path, step=1))
    assert len(optimizer.param_groups) == 1
    gc.collect()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, time)


def test_a_file_that_only_names_the_terms_needs_no_step(tmp_path):
    path = tmp_path / "run.jsonl"
    Run(History(path))
    history = History(path)
    Run(history).steps(2)
    assert history.columns()["step"] == [r["step"] for r in rows(path)] == [1, 2]


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
    (tmp_path / "new.jsonl").write_text('{"trainonce_history": 2, "terms": ["a", "b"]}\n')
    with pytest.raises(ValueError, match="was written by a newer trainonce"):
        History.load(tmp_path / "new.jsonl")


# Disks


def limit_file_size(size):
    """A real short write: the system writes up to the limit and refuses the rest."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size is None else size, most))


@pytest.mark.parametrize("size", [10, 500, 1000])
def test_a_full_disk_is_said_once_and_made_good_later(tmp_path, size):
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
def test_damage_in_the_middle_is_said_and_left_out(tmp_path, damage):
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


def test_a_history_dropped_while_torch_traces_is_written(tmp_path):
    """The collector runs at any time, also inside torch.compile, where new tensors hold no values."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    run = Run(History(tmp_path / "h.jsonl"))
    run.step()
    with FakeTensorMode():
        run.criterion.attachment.history.__del__()
    assert len(History.load(tmp_path / "h.jsonl")) == 1


def test_one_history_for_one_criterion():
    history = History()
    run = Run(history)
    with pytest.raises(ValueError, match="records another criterion already"):
        Run(history)
    run.criterion.attachment.remove()
    Run(history)


def test_a_copy_writes_no_file(tmp_path):
    run = Run(History(tmp_path / "h.jsonl"))
    run.step()
    history = run.criterion.attachment.history
    copied = copy.deepcopy(history)
    assert copied.path is None
    assert copied.columns() == history.columns()
    del copied
    history.flush()
    assert len(History.load(tmp_path / "h.jsonl")) == 1


def test_an_empty_history_is_still_one():
    assert History()
    assert len(History()) == 0


def test_attach_takes_a_path(tmp_path):
    run = Run(tmp_path / "h.jsonl")
    run.step()
    run.criterion.attachment.history.flush()
    assert len(History.load(tmp_path / "h.jsonl")) == 1
