"""Files in pieces."""

import os

import pytest

from trainonce.study.executors.remote import pieces
from trainonce.study.executors.remote.pieces import Piece


def test_files_of_any_size_arrive_as_they_were(tmp_path):
    sizes = {"empty": 0, "one": 1, "exact": 20, "below/deep/more": 47}
    for name, size in sizes.items():
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(os.urandom(size))
    names = pieces.names_in(tmp_path / "here")
    assert names == sorted(sizes)
    for name in names:
        for piece in pieces.cut(tmp_path / "here", name, size=10):
            assert len(piece.content) <= 10
            pieces.write(tmp_path / "there", piece)
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_a_shorter_file_replaces_a_longer_one(tmp_path):
    pieces.write(tmp_path, Piece("a", 0, b"long"))
    pieces.write(tmp_path, Piece("a", 0, b"s"))
    assert (tmp_path / "a").read_bytes() == b"s"


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b"])
def test_a_file_cannot_leave_the_folder(name, tmp_path):
    with pytest.raises(ValueError, match="must lie below the folder that is sent"):
        pieces.write(tmp_path / "in", Piece(name, 0, b"x"))


def test_a_folder_that_is_not_there_has_no_files(tmp_path):
    assert pieces.names_in(tmp_path / "none") == []
