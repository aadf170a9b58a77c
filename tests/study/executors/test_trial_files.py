"""The files of a trial in pieces; what a worker sends while the trial goes on, ends or starts anew between two."""

import os

import pytest

from trainonce.study.executors import trial_files
from trainonce.study.executors.trial_files import Batch, Outgoing, Packed, Piece

KEY, LAST = "0123456789abcdef", Packed(b"", True)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(trial_files.cut, "__defaults__", (10,))


@pytest.fixture
def trial(tmp_path):
    folder = tmp_path / "trials" / KEY
    folder.mkdir(parents=True)
    return folder


def save(trial, step):
    """As a trial does: the history first, then the checkpoint in one move, then what it has cost."""
    (trial / "history.jsonl").write_text("row\n" * step)
    (trial / "checkpoint.pt.part").write_text(f"{step} " * 20)
    os.replace(trial / "checkpoint.pt.part", trial / "checkpoint.pt")
    (trial / "spent.json").write_text(str(step))


def arrive(messages, into):
    """What the driver has when a batch is complete, by its name; and the order in which it is put in place."""
    batches = []
    for message in messages:
        if isinstance(message, Piece):
            trial_files.write(into, message)
        elif isinstance(message, Batch):
            batches.append(message)
    names = batches[0].names if batches else ()
    return {os.path.basename(name): (into / name).read_text() for name in names}


def test_a_checkpoint_is_never_newer_than_its_history(trial, tmp_path):
    outgoing = Outgoing(KEY, tmp_path)
    save(trial, 100)
    messages = outgoing.checkpoint()
    first = next(messages)
    save(trial, 150)  # while the first piece is on its way
    found = arrive([first, *messages], tmp_path / "driver")
    assert list(found) == ["history.jsonl", "spent.json", "checkpoint.pt"]  # the checkpoint is put in place last
    assert found["checkpoint.pt"] == "100 " * 20
    assert found["history.jsonl"].count("row") >= 100
    assert outgoing.is_due  # the one of step 150


@pytest.mark.parametrize("gone", [("checkpoint.pt", "spent.json"), ("history.jsonl", "checkpoint.pt")])
@pytest.mark.parametrize("count", range(8))
def test_a_trial_that_ends_or_starts_anew_meanwhile_is_no_error(count, gone, trial, tmp_path):
    outgoing = Outgoing(KEY, tmp_path)
    save(trial, 3)
    messages = outgoing.checkpoint()
    sent = [next(messages) for _ in range(count)]
    for name in gone:
        (trial / name).unlink()
    found = arrive([*sent, *messages], tmp_path / "driver")
    if found:  # it was open already
        assert (found["checkpoint.pt"], found["history.jsonl"]) == ("3 " * 20, "row\n" * 3)
    assert bool(found) == (count > (0 if "spent.json" in gone else 5))
    assert not outgoing.is_due


def test_files_that_go_while_the_others_are_sent_are_left_out_at_the_end(trial, tmp_path):
    for name in "abc":
        (trial / name).write_text(name)
    messages = Outgoing(KEY, tmp_path).everything(LAST)
    next(messages)
    (trial / "b").unlink()
    *_, batch = messages
    assert batch == Batch((f"trials/{KEY}/a", f"trials/{KEY}/c"), LAST)


def test_a_checkpoint_that_came_from_the_driver_is_not_sent_back(trial, tmp_path):
    save(trial, 3)
    outgoing = Outgoing(KEY, tmp_path)
    assert not outgoing.is_due
    save(trial, 4)
    assert outgoing.is_due
    list(outgoing.checkpoint())
    assert not outgoing.is_due


def test_a_checkpoint_in_the_place_of_one_that_was_replaced_is_another(trial, tmp_path):
    """File systems give the inode of a file that is gone to the next one."""
    outgoing = Outgoing(KEY, tmp_path)
    save(trial, 3)
    list(outgoing.checkpoint())
    (trial / "checkpoint.pt").write_text("in the same inode")
    assert outgoing.is_due


def test_the_files_of_a_trial_that_failed_have_the_checkpoint_last(trial, tmp_path):
    save(trial, 3)
    (trial / "z.txt").write_text("z")
    *_, batch = Outgoing(KEY, tmp_path).everything(LAST)
    assert [os.path.basename(name) for name in batch.names] == ["history.jsonl", "spent.json", "z.txt", "checkpoint.pt"]


def test_files_that_changed_come_with_a_checkpoint(trial, tmp_path):
    (trial / "given.txt").write_text("from the driver")
    outgoing = Outgoing(KEY, tmp_path)
    save(trial, 1)
    (trial / "pictures").mkdir()
    (trial / "pictures" / "a.png").write_text("a")
    (trial / "b.part").write_text("not yet")
    first = arrive(outgoing.checkpoint(), tmp_path / "driver")
    assert list(first) == ["history.jsonl", "a.png", "spent.json", "checkpoint.pt"]
    save(trial, 2)
    os.replace(trial / "b.part", trial / "b.txt")
    (trial / "given.txt").write_text("changed")
    second = arrive(outgoing.checkpoint(), tmp_path / "driver")
    assert set(second) == {"history.jsonl", "given.txt", "b.txt", "spent.json", "checkpoint.pt"}
    assert (second["given.txt"], second["b.txt"]) == ("changed", "not yet")


def test_files_of_a_batch_that_was_dropped_come_with_the_next(trial, tmp_path):
    outgoing = Outgoing(KEY, tmp_path)
    save(trial, 1)
    (trial / "a.txt").write_text("a")
    messages = outgoing.checkpoint()
    first = next(messages)
    (trial / "history.jsonl").unlink()
    assert arrive([first, *messages], tmp_path / "driver") == {}
    save(trial, 2)
    assert "a.txt" in arrive(outgoing.checkpoint(), tmp_path / "driver")


def test_files_of_any_size_arrive_as_they_were(tmp_path):
    sizes = {"empty": 0, "one": 1, "exact": 20, "below/deep/more": 47}
    for name, size in sizes.items():
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(os.urandom(size))
    names = trial_files.names_in(tmp_path / "here")
    assert names == sorted(sizes)
    for name in names:
        for piece in trial_files.cut(tmp_path / "here", name, size=10):
            assert len(piece.content) <= 10
            trial_files.write(tmp_path / "there", piece)
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_a_shorter_file_replaces_a_longer_one(tmp_path):
    trial_files.write(tmp_path, Piece("a", 0, b"long"))
    trial_files.write(tmp_path, Piece("a", 0, b"s"))
    assert (tmp_path / "a").read_bytes() == b"s"


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b"])
def test_a_file_cannot_leave_the_folder(name, tmp_path):
    with pytest.raises(ValueError, match="must lie below the folder that is sent"):
        trial_files.write(tmp_path / "in", Piece(name, 0, b"x"))


def test_a_folder_that_is_not_there_has_no_files(tmp_path):
    assert trial_files.names_in(tmp_path / "none") == []
