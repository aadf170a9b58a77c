"""Locks: one holder among all threads and processes, whatever else opens the file, until its block or process ends."""

import contextlib
import errno
import multiprocessing
import os
import signal
import threading
import time

import pytest
from _records import record

from trainonce.study.store import Store, locks

ONE, OTHER = "1" * 20, "2" * 20
FORK = multiprocessing.get_context("fork")


@pytest.fixture(params=["of the file", "of the process"], autouse=True)
def owner(request, monkeypatch):
    """Whose the locks are: both ways are tried where a system has both."""
    if request.param == "of the process":
        monkeypatch.setattr(locks, "_files_own_locks", lambda: False)
    elif not locks._files_own_locks():
        pytest.skip("this system has no locks of the open file")
    return request.param


@contextlib.contextmanager
def forked(target, *given):
    process = FORK.Process(target=target, args=given)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _send_claim(path, key, answer):
    with Store(path).claim(key) as mine:
        answer.send(mine)


def claimed_elsewhere(path, key):
    """Whether another process may claim the trial."""
    ours, theirs = FORK.Pipe()
    with forked(_send_claim, path, key, theirs) as process:
        process.join()
    return ours.recv()


def test_another_store_in_the_process_leaves_a_claim_alone(tmp_path):
    with Store(tmp_path).claim(ONE) as mine:
        assert mine
        other = Store(tmp_path)
        other.append(record())
        assert len(other.read_all()) == 1
        with other.lock_manifest():
            other.write_manifest({})
        with other.claim(OTHER) as free:
            assert free
        del other
        assert not claimed_elsewhere(tmp_path, ONE)
        assert claimed_elsewhere(tmp_path, OTHER)
    assert claimed_elsewhere(tmp_path, ONE)


def test_a_trial_is_claimed_once_in_a_process_too(tmp_path):
    with Store(tmp_path).claim(ONE):
        with Store(tmp_path).claim(ONE) as again:
            assert not again
        assert not claimed_elsewhere(tmp_path, ONE)
    with Store(tmp_path).claim(ONE) as again:
        assert again


def test_the_file_of_the_locks_may_be_read_while_one_is_held(tmp_path, owner):
    store = Store(tmp_path)
    with store.claim(ONE):
        assert store.claims.read_bytes() == b""
        assert claimed_elsewhere(tmp_path, ONE) == (owner == "of the process")  # why Linux has the others


def test_no_file_stays_open_when_nothing_is_locked(tmp_path):
    store = Store(tmp_path)
    with store.claim(ONE), store.claim(OTHER), store.claim(ONE) as again:
        assert not again
        assert locks._open or locks._shared
    assert not locks._open
    assert not locks._shared


def test_a_claim_ends_with_its_block_though_a_forked_process_goes_on(tmp_path):
    with contextlib.ExitStack() as children:
        with Store(tmp_path).claim(ONE):
            children.enter_context(forked(time.sleep, 60))
        assert claimed_elsewhere(tmp_path, ONE)


def test_a_claim_ends_with_its_block_though_a_copy_of_its_descriptor_is_open(tmp_path):
    """As in a process that a library forked without Python's knowledge."""
    with Store(tmp_path).claim(ONE):
        (file,) = locks._open or [file for file, _ in locks._shared.values()]
        copy = os.dup(file.fileno())
    assert claimed_elsewhere(tmp_path, ONE)
    os.close(copy)


def _claim_fork_and_die(path):
    with Store(path).claim(ONE):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
        (path / "pid").write_text(str(pid))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_claim_ends_with_its_process_though_its_children_go_on(tmp_path):
    """As readers of data do for some seconds when their training is killed."""
    with forked(_claim_fork_and_die, tmp_path) as process:
        process.join()
    try:
        assert claimed_elsewhere(tmp_path, ONE)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_forked_process_that_leaves_the_block_releases_nothing(tmp_path):
    with contextlib.ExitStack() as block:
        assert block.enter_context(Store(tmp_path).claim(ONE))
        child = os.fork()
        if child == 0:
            try:
                block.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert not claimed_elsewhere(tmp_path, ONE)


def test_threads_that_append_at_once_do_not_disturb_each_other(tmp_path):
    store = Store(tmp_path)

    def write(writer):
        for i in range(20):
            store.append(record(100 * writer + i, error={"type": "x" * 20_000, "message": "", "traceback": ""}))
            store.read_all()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seeds = sorted(r.seed for r in Store(tmp_path).read_all())
    assert seeds == [100 * writer + i for writer in range(4) for i in range(20)]


def test_the_manifest_is_one_threads_at_a_time(tmp_path):
    entered = threading.Event()

    def enter():
        with Store(tmp_path).lock_manifest():
            entered.set()

    thread = threading.Thread(target=enter)
    with Store(tmp_path).lock_manifest():
        thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    thread.join()


def test_a_file_system_without_locks_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    store = Store(tmp_path)
    for name in ("fcntl", "lockf"):
        monkeypatch.setattr(locks.fcntl, name, refuse)
    sentence = r"claims cannot be locked: No locks available\. A study needs .* choose another with --out\.$"
    with pytest.raises(OSError, match=sentence), store.claim(ONE):
        pass
    with pytest.raises(OSError, match=sentence), store.lock_manifest():
        pass
    with pytest.raises(OSError, match=r"could not be recorded in .*claims cannot be locked: No locks available"):
        store.append(record())
    assert store.trials.read_bytes() == b""
    assert not locks._open
    assert not locks._shared


def test_a_folder_that_is_gone_is_one_sentence(tmp_path):
    store = Store(tmp_path / "out")
    store.claims.unlink()
    with pytest.raises(OSError, match=r"claims cannot be locked: No such file or directory\."), store.claim(ONE):
        pass
