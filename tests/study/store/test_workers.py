"""The workers of a study know each other by locked files, and whether locks are seen from one machine to the other."""

import contextlib
import multiprocessing
import os
import signal
import time

import pytest

from trainonce.study.store import Store, workers

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in {"TOUCH": 0.1, "WATCH": 1.5, "LOOK": 0.1}.items():
        monkeypatch.setattr(workers, name, seconds)


@contextlib.contextmanager
def _no_lock(*_, **__):
    yield True


def _work(path, name, locked, ready):
    """Work on a machine of this name until killed."""
    workers.host = lambda: name
    if not locked:  # of which a lock on this machine shows nothing
        workers.locks.lock = _no_lock
    with Store(path).join(print):
        ready.set()
        time.sleep(60)


@contextlib.contextmanager
def worker(path, name, *, locked=True):
    ready = FORK.Event()
    process = FORK.Process(target=_work, args=(path, name, locked, ready))
    process.start()
    assert ready.wait(20)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def names(path):
    return sorted(os.listdir(path / "workers"))


def join(path):
    """What was said to the user, and which files were there meanwhile."""
    said = []
    with Store(path).join(said.append):
        return said, names(path)


def test_a_worker_has_a_file_while_it_works_however_it_leaves(tmp_path):
    said, during = join(tmp_path)
    assert not said
    assert [name.rsplit("-", 1)[0] for name in during] == [f"{workers.host()}-{os.getpid()}"]
    assert names(tmp_path) == []
    with pytest.raises(KeyboardInterrupt), Store(tmp_path).join(said.append):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


@pytest.mark.parametrize("others", [["here"], ["there"], ["here", "there", "there"]])
def test_workers_whose_locks_are_seen_are_joined_at_once(others, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "host", lambda: "here")
    with contextlib.ExitStack() as stack:
        for name in others:
            stack.enter_context(worker(tmp_path, name))
        start = time.monotonic()
        said, during = join(tmp_path)
        assert time.monotonic() - start < workers.WATCH
        assert len(during) == 1 + len(others)
    assert not said


def test_a_worker_of_another_machine_whose_lock_is_not_seen_stops_this_one(tmp_path):
    sentence = (
        r"^A worker on there has locked \S+there-\d+-\w+, and \S+ does not see the lock: this file system has no locks "
        r"across machines\. Use one machine for this study, or a folder on one that has, such as NFS\.$"
    )
    with worker(tmp_path, "there", locked=False):
        with pytest.raises(OSError, match=sentence):
            join(tmp_path)
        assert len(names(tmp_path)) == 1  # that of the other


def test_of_workers_that_start_at_once_and_see_no_locks_none_goes_on(tmp_path, monkeypatch):
    results = FORK.Queue()

    def start(name):
        workers.host = lambda: name
        workers.locks.lock = _no_lock
        try:
            with Store(tmp_path).join(lambda text: None):
                time.sleep(3)
                results.put("worked")
        except OSError:
            results.put("stopped")

    pair = [FORK.Process(target=start, args=(name,)) for name in ("one", "other")]
    for process in pair:
        process.start()
    found = [results.get(timeout=30) for _ in pair]
    for process in pair:
        process.join()
    assert "stopped" in found


@pytest.mark.parametrize("name", ["here", "there"])
def test_the_file_of_a_killed_worker_stops_nobody(name, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "host", lambda: "here")
    with worker(tmp_path, name) as process:
        process.kill()
        process.join()
    assert len(names(tmp_path)) == 1
    said, during = join(tmp_path)
    assert len(during) == 1
    assert names(tmp_path) == []
    watched = ["Checking for 2 s whether workers on there, which hold no locks here, were killed."]
    assert said == (watched if name == "there" else [])


def test_a_worker_that_sees_a_lock_of_another_machine_need_not_watch_the_killed_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "host", lambda: "here")
    with worker(tmp_path, "gone") as process:
        process.kill()
        process.join()
    with worker(tmp_path, "there"):
        said, during = join(tmp_path)
    assert not said
    assert sorted(name.split("-")[0] for name in during) == ["here", "there"]


def test_a_worker_that_leaves_while_it_is_watched_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "TOUCH", 60.0)
    with worker(tmp_path, "there", locked=False):
        (file,) = names(tmp_path)
        os.system(f"(sleep 0.5; rm {tmp_path / 'workers' / file}) &")
        said, during = join(tmp_path)
    assert len(said) == 1
    assert len(during) == 1


def test_a_worker_that_was_killed_before_its_file_had_its_name_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "host", lambda: "here")
    (tmp_path / "workers").mkdir()
    for name in (".here-1-ab", ".there-1-ab"):
        (tmp_path / "workers" / name).touch()
    _, during = join(tmp_path)
    assert len(during) == 2
    assert names(tmp_path) == [".there-1-ab"]  # which its worker may be about to lock


def test_a_stopped_worker_is_still_one(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "host", lambda: "here")
    with worker(tmp_path, "there") as process:
        os.kill(process.pid, signal.SIGSTOP)
        said, during = join(tmp_path)
    assert not said
    assert len(during) == 2
