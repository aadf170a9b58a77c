"""The store: what was written stays, what was torn is dropped, and who runs a trial runs it alone."""

import errno
import json
import math
import multiprocessing
import os
import re
import shutil
import subprocess
import sys

import _records
import pytest
from _records import RULES, record

from trainonce.study import DamagedStore
from trainonce.study.rules import fixed, key_of
from trainonce.study.store import Store


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.plan)
def test_a_record_comes_back_as_it_was(rule, tmp_path):
    written = record(
        3,
        rule,
        status="diverged",
        metrics={"validation/error": 0.1, "test/error": math.inf},
        reports=((5, {"error": 1.5}),),
        coefficients=(0.1, 0.9, 0.0),
        seconds=1.25,
        fraction=0.5,
        ended=12.0,
        versions={"torch": "2"},
        warnings=["OtherScale: ..."],
        error={"type": "E", "message": "é\n<b>", "traceback": ""},
    )
    Store(tmp_path).append(written)
    read = Store(tmp_path).read_all()
    assert read == [written]
    assert read[0].rule == rule


def test_nan_is_written_as_a_word_that_any_json_reader_takes(tmp_path):
    store = Store(tmp_path)
    store.append(record(metrics={"test/error": math.nan}))
    line = json.loads(store.trials.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert line["metrics"] == {"test/error": "nan"}
    assert math.isnan(store.read_all()[0].metrics["test/error"])


def test_keys_tell_task_point_and_seed_apart_and_nothing_else():
    keys = {key_of(t, p, s) for t in "ab" for p in RULES for s in (0, 1)}
    assert len(keys) == 2 * len(RULES) * 2
    assert key_of("a", fixed((1, 10)), 0) == key_of("a", fixed((0.1, 1.0)), 0)


def test_the_last_record_of_a_trial_counts_and_all_are_kept(tmp_path):
    store = Store(tmp_path)
    for status in ("failed", "failed", "done"):
        store.append(record(status=status))
    assert [r.status for r in store.read().values()] == ["done"]
    assert [r.status for r in store.read_all()] == ["failed", "failed", "done"]


@pytest.mark.parametrize("kept", [0, 1, 50, -1])
def test_a_torn_line_is_dropped_without_a_word_and_the_next_record_is_whole(kept, tmp_path):
    store = Store(tmp_path)
    for seed in range(3):
        store.append(record(seed))
    whole = store.trials.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    store.trials.write_bytes(whole[: -len(last)] + last[:kept])
    assert [r.seed for r in store.read_all()] == [0, 1]
    store.append(record(7))
    assert [r.seed for r in store.read_all()] == [0, 1, 7]


def test_nothing_is_left_of_a_torn_line_that_was_longer_than_the_next_record(tmp_path):
    store = Store(tmp_path)
    store.append(record(0))
    with store.trials.open("ab") as file:
        file.write(b"x" * 200_000)
    store.append(record(1))
    assert [r.seed for r in store.read_all()] == [0, 1]
    assert b"x" * 100 not in store.trials.read_bytes()


def test_a_corrupt_line_loses_its_own_trial_and_says_which(tmp_path):
    store = Store(tmp_path)
    for seed in range(4):
        store.append(record(seed))
    lines = store.trials.read_bytes().splitlines(keepends=True)
    lines[1] = b"\x00\xff" + lines[1][2:]
    lines[2] = b'{"format": 4}\n'
    store.trials.write_bytes(b"".join(lines))
    with pytest.warns(DamagedStore, match=r"line 2, 3 cannot be read.*all other trials are kept"):
        read = store.read_all()
    assert [r.seed for r in read] == [0, 3]
    store.append(record(9))
    assert [r.seed for r in store.read_all()] == [0, 3, 9]  # without a second warning: here it would be an error
    with pytest.warns(DamagedStore):
        assert [r.seed for r in Store(tmp_path).read_all()] == [0, 3, 9]


def test_a_full_disk_loses_the_trial_being_written_and_says_so(tmp_path):
    """With the real system call failing: a limit on the file's size, in a process of its own."""
    store = Store(tmp_path)
    store.append(record(0))
    before = store.trials.read_bytes()
    code = f"""
import resource, signal, sys
sys.path.insert(0, {str(os.path.dirname(_records.__file__))!r})
from _records import record
from trainonce.study.store import Store
store = Store({str(tmp_path)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 40}, {len(before) + 40}))
try:
    store.append(record(1))
except OSError as error:
    print(error.errno, error.strerror)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    number, _, text = done.stdout.partition(" ")
    assert int(number) == errno.EFBIG
    assert re.match(
        r"The trial just finished could not be recorded in .*trials.jsonl: File too large\. It is lost", text
    )
    assert store.trials.read_bytes() == before
    store.append(record(2))
    assert [r.seed for r in store.read_all()] == [0, 2]


def _append_many(path, writer, count):
    for i in range(count):
        Store(path).append(record(1000 * writer + i, error={"type": "x" * 3000, "message": "", "traceback": ""}))


def test_writers_do_not_disturb_each_other(tmp_path):
    Store(tmp_path)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(tmp_path, w, 25)) for w in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    seeds = [r.seed for r in Store(tmp_path).read_all()]
    assert sorted(seeds) == sorted(1000 * w + i for w in range(4) for i in range(25))


def _try_claim(path, key, answer):
    with Store(path).claim(key) as mine:
        answer.send(mine)


def _claims(path, key):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_try_claim, args=(path, key, theirs))
    process.start()
    process.join()
    return ours.recv()


def test_a_claim_keeps_other_processes_out_of_that_trial_only(tmp_path):
    one, other = key_of("t", RULES[0], 0), key_of("t", RULES[0], 1)
    with Store(tmp_path).claim(one) as mine:
        assert mine
        assert not _claims(tmp_path, one)
        assert _claims(tmp_path, other)
    assert _claims(tmp_path, one)


def _claim_and_die(path, key):
    with Store(path).claim(key):
        os.kill(os.getpid(), 9)


def test_a_claim_ends_with_its_process_however_it_ends(tmp_path):
    key = key_of("t", RULES[0], 0)
    process = multiprocessing.get_context("fork").Process(target=_claim_and_die, args=(tmp_path, key))
    process.start()
    process.join()
    assert process.exitcode == -9
    assert _claims(tmp_path, key)


def test_the_manifest_is_replaced_in_one_move(tmp_path, monkeypatch):
    store = Store(tmp_path)
    assert store.read_manifest() is None
    store.write_manifest({"task": {"name": "a"}})

    def full(self, *_, **__):
        self.open("w").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OSError, match=r"study.json cannot be written: No space left on device\."):
        store.write_manifest({"task": {"name": "b"}})
    assert store.read_manifest()["task"] == {"name": "a"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["claims", "study.json", "trials.jsonl"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "x"}'])
def test_a_damaged_manifest_is_one_sentence(content, tmp_path):
    store = Store(tmp_path)
    store.manifest.write_text(content)
    with pytest.raises(ValueError, match=r"study.json is damaged\. Delete it and repeat"):
        store.read_manifest()


def test_a_newer_manifest_is_not_guessed_at(tmp_path):
    store = Store(tmp_path)
    store.manifest.write_text('{"format": 99}')
    with pytest.raises(ValueError, match="newer trainonce"):
        store.read_manifest()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"The folder .*file/out cannot be written: Not a directory\. Choose another"):
        Store(tmp_path / "file" / "out")


def test_a_folder_is_made_with_those_around_it_and_may_be_there(tmp_path):
    for _ in range(2):
        Store(tmp_path / "runs" / "today")
    assert (tmp_path / "runs" / "today" / "trials.jsonl").is_file()


def test_who_only_reads_makes_nothing(tmp_path):
    store = Store(tmp_path / "out", writable=False)
    assert (store.read_all(), store.read_manifest()) == ([], None)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_for_a_folder_that_is_gone_is_one_sentence(tmp_path):
    store = Store(tmp_path / "out")
    shutil.rmtree(store.path)
    with pytest.raises(OSError, match=r"study.json cannot be written: No such file or directory\. Choose another"):
        store.write_manifest({})
