"""A study on a cluster, on a file system without locks: one driver at a time, and no other process."""

import errno
import json
import os
import re
import socket
import subprocess
import threading

import pytest
from _records import record

from trainonce.study import layout
from trainonce.study.store import Store, locks

KEY = "1" * 20


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS], autouse=True)
def no_locks(request, monkeypatch):
    def refuse(*_):
        raise OSError(request.param, "No locks")

    for name in ("fcntl", "lockf"):
        monkeypatch.setattr(locks.fcntl, name, refuse)


@pytest.fixture
def file(tmp_path):
    return tmp_path / layout.DRIVER


def write(file, host, process):
    file.write_text(json.dumps({"host": host, "process": process, "time": "2026-01-01 12:00:00"}))


def test_one_driver_has_the_folder_and_its_claims_count_within_it(tmp_path, file):
    store = Store(tmp_path)
    with store.drive():
        assert json.loads(file.read_bytes())["process"] == os.getpid()
        with store.claim(KEY) as mine, Store(tmp_path).claim(KEY) as again, store.lock_manifest():
            assert (mine, again) == (True, False)
        store.append(record())
    assert len(store.read()) == 1
    assert sorted(os.listdir(tmp_path)) == [layout.CLAIMS, layout.RECORDS]
    with pytest.raises(OSError, match="cannot be locked"), store.claim(KEY):
        pass


def test_threads_of_the_driver_wait_for_each_other(tmp_path):
    store, entered = Store(tmp_path), threading.Event()

    def enter():
        with store.lock_manifest():
            entered.set()

    thread = threading.Thread(target=enter)
    with store.drive():
        with store.lock_manifest():
            thread.start()
            assert not entered.wait(0.2)
        assert entered.wait(10)
        thread.join()


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname()])
def test_another_driver_is_refused_in_one_sentence(tmp_path, file, host):
    write(file, host, os.getppid())
    sentence = (
        f"Process {os.getppid()} on {host} has had this study since 2026-01-01 12:00:00, and on a file system without "
        f"locks only one may: wait for it, or, if it is gone, delete {file}."
    )
    with pytest.raises(OSError, match=f"^{re.escape(sentence)}$"), Store(tmp_path).drive():
        pass
    assert file.exists()


def test_a_driver_of_this_machine_that_was_killed_is_replaced(tmp_path, file):
    gone = subprocess.Popen(["true"])
    gone.wait()
    write(file, socket.gethostname(), gone.pid)
    with Store(tmp_path).drive():
        assert json.loads(file.read_bytes())["process"] == os.getpid()
    assert not file.exists()


def test_where_there_are_locks_there_is_no_file(tmp_path, file, monkeypatch):
    monkeypatch.undo()
    with Store(tmp_path).drive():
        assert not file.exists()
        with Store(tmp_path).drive(), Store(tmp_path).claim(KEY) as mine:
            assert mine
