"""Trials in processes of their own: they die, leave things behind, and end with their study."""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import _tasks
import pytest
from _runs import records, starts, study

from trainonce.study import Study, progress, runner
from trainonce.study.executors.task_location import load_file
from trainonce.study.signals import keep_signals, postpone_signals
from trainonce.study.store import Store


def test_processes_find_the_same_numbers_as_this_one(tmp_path):
    for workers in (0, 2):
        study(tmp_path / str(workers)).run(workers=workers, show=False, start="forkserver")
    here, there = ({r.key: (r.metrics, r.coefficients) for r in records(tmp_path / str(w))} for w in (0, 2))
    assert here == there


@pytest.mark.parametrize(("how", "message"), [("die", r"SIGKILL\)\. Was memory short\?"), ("exit", "exit code 3")])
def test_a_process_that_dies_is_a_failed_trial_with_what_it_printed(how, message, tmp_path):
    made = study(tmp_path, _tasks.troubled, plans=["uniform"], seeds=3, how=how)
    made.run(workers=2, show=False)
    failed = [r for r in records(tmp_path) if r.status == "failed"]
    assert len(failed) == 1
    assert 0 <= failed[0].fraction < 1  # as far as it was heard of
    assert failed[0].seconds > 0
    assert re.search(message, failed[0].error["message"])
    log = made.store.log(failed[0].key).read_text()
    assert log in ("a word before the trouble\n", "")  # what was not flushed died with it
    assert len(records(tmp_path)) == 3


@pytest.mark.parametrize("how", ["thread", "child", "orphan"])
def test_what_a_trial_leaves_running_does_not_hold_up_the_study(how, tmp_path):
    start = time.monotonic()
    study(tmp_path, _tasks.troubled, plans=["uniform"], seeds=3, how=how).run(workers=1, show=False)
    assert time.monotonic() - start < 30  # it would be running for 60 seconds
    assert [r.status for r in records(tmp_path)] == ["done", "failed" if how == "orphan" else "done", "done"]


@pytest.mark.parametrize(
    ("before", "after"), [("lr=0.1, each=None", "lr=0.2, each=None"), ("def line(", "def line((")], ids=["code", "typo"]
)
def test_a_task_that_is_edited_while_it_runs_stops_the_study(before, after, tmp_path):
    """Its keys were computed from the file as it was."""
    file = tmp_path / "mine.py"
    file.write_text(Path(_tasks.__file__).read_text())
    made = Study(load_file(file).line, tmp_path / "out", seeds=2).add("uniform")
    made.task.identity  # noqa: B018 computed before the edit, as when the study starts
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    with pytest.raises(runner.StoppedError, match="was changed while the study was running"):
        made.run(workers=1, show=False, start="spawn")
    assert records(tmp_path / "out") == []


def test_a_script_without_a_guard_gets_one_sentence(tmp_path):
    """Its workers load it, and would start the study again, and so on."""
    script = tmp_path / "script.py"
    text = Path(_tasks.__file__).read_text()
    script.write_text(
        f"{text}\nfrom trainonce.study import Study\nStudy(line, 'out', seeds=1).add('uniform').run(workers=1)\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120)
    assert 'Put the study under if __name__ == "__main__":' in done.stderr
    (record,) = records(tmp_path / "out")
    assert record.status == "failed"
    assert record.error["message"] == "The trial's process died (exit code 1)."


def test_workers_end_with_the_study_that_was_killed(tmp_path):
    notes, out = tmp_path / "notes", tmp_path / "out"
    code = f"""
import sys
import threading
sys.path.insert(0, {str(Path(_tasks.__file__).parent)!r})
import _tasks
from trainonce.study import Study
if __name__ == "__main__":
    task = _tasks.noted.using(notes={str(notes)!r}, pause=60.0)
    Study(task, {str(out)!r}, seeds=2).add("uniform").run(workers=2, show=False)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 60
    while len(starts(notes)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    keys = list(starts(notes))
    assert len(keys) == 2
    process.kill()
    process.wait()
    store = Store(out)
    while time.monotonic() < deadline:
        free = []
        for key in keys:
            with store.claim(key) as mine:
                free.append(mine)
        if all(free):
            break
        time.sleep(0.05)
    assert free == [True, True]
    assert records(out) == []


INTERRUPTED = """
import os, signal, sys, threading, time
sys.path.insert(0, {folder!r})
from multiprocessing import reduction
import _tasks
from trainonce.study import Study

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts without it
    send, sent = reduction.sendfds, []

    def interrupted(*given):
        if not sent:  # connected to the fork server, which now waits for the request
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        sent.append(send(*given))

    reduction.sendfds = interrupted
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()  # such as the one of a live display
    try:
        Study(_tasks.line, {out!r}, seeds=2).add("uniform").run(workers=1, show=False, device="cpu")
    except KeyboardInterrupt:
        print("interrupted after", len(sent), "request")
"""


def test_ctrl_c_while_a_worker_starts_leaves_the_fork_server_alone(tmp_path):
    """Between the connection and the request: the server would die of half a request, with a traceback."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED.format(folder=str(Path(_tasks.__file__).parent), out=str(tmp_path / "out")))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout == "interrupted after 1 request\n"
    assert done.returncode == 0


@pytest.fixture
def _interruptible():
    """Python's own handler of Ctrl-C: a shell's background job starts without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_postponed_and_not_lost(number):
    steps = []
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def work():
        with postpone_signals():
            signal.raise_signal(number)
            steps.append("after the signal")

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        found = signal.signal(signal.SIGTERM, before)
    assert steps == ["after the signal"]
    assert found is signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_a_finalizer_ends_the_study_all_the_same(tmp_path, monkeypatch):
    """Python prints what is raised there, and goes on."""

    class Late:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.Silent, "on_end", lambda *_: Late() and None)
    with pytest.raises(KeyboardInterrupt):
        Study(_tasks.line, tmp_path, seeds=3).add("uniform").run(workers=0, show=False, device="cpu")
    assert len(Store(tmp_path).read()) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_does_not_raise_is_called_once_for_a_signal():
    calls = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
    try:
        with keep_signals() as check:
            signal.raise_signal(signal.SIGTERM)
            check()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert calls == [1]


@pytest.mark.usefixtures("_interruptible")
def test_outside_the_main_thread_handlers_stay_as_they_are():
    """Python allows only the main thread to set one."""
    found = []

    def work():
        with postpone_signals():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
