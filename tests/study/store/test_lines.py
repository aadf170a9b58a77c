"""Reading what is new: at any moment the same as reading everything."""

import json
import multiprocessing
import os
import tempfile
import warnings

import pytest
from _records import record
from hypothesis import given
from hypothesis import strategies as st

from trainonce.study import DamagedStore, Record
from trainonce.study.record import as_json
from trainonce.study.store import START, Store, lines


def line(seed, **more):
    return json.dumps(as_json(record(seed, **more).to_json())).encode() + b"\n"


def add(store, content):
    with store.trials.open("ab") as file:
        file.write(content)


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 5), st.sampled_from(["done", "failed"])),
    st.tuples(st.just("torn"), st.integers(0, 5), st.integers(1, 400)),
    st.tuples(st.just("damaged"), st.sampled_from([b"\n", b"{}\n", b"\x00\xff\n", b'{"format": 2\n'])),
    st.tuples(st.just("read"), st.integers(0, 2)),
)


@given(st.lists(OPERATIONS, max_size=25))
def test_what_is_read_bit_by_bit_is_what_is_there(operations):
    """Three readers at different places, writers that append, are killed within a line, or write what is no record."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedStore)
        patch.setattr(os, "fsync", lambda descriptor: None)
        writer, readers, marks = Store(folder), [Store(folder) for _ in range(3)], [(START, 0)] * 3
        for kind, *details in [*operations, ("read", 0), ("read", 1), ("read", 2)]:
            match kind:
                case "append":
                    writer.append(record(details[0], status=details[1]))
                case "torn":
                    add(writer, line(details[0])[: details[1]].removesuffix(b"\n"))
                case "damaged":
                    add(writer, details[0])
                case "read":
                    reader, everything = readers[details[0]], Store(folder).read_all()
                    assert reader.read_all() == everything
                    position, count = marks[details[0]]
                    assert reader.read_since(position) == (everything[count:], reader.position)
                    for seed in range(6):
                        new = [r for r in everything[count:] if r.seed == seed]
                        assert reader.find(record(seed).key, position) == (new[-1] if new else None)
                    marks[details[0]] = reader.position, len(everything)


def _append_some(path, writer, count):
    for i in range(count):
        Store(path).append(record(1000 * writer + i, error={"type": "x" * 3000, "message": "", "traceback": ""}))


def test_a_reader_follows_several_writers(tmp_path):
    store, seen, position = Store(tmp_path), [], START
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_some, args=(tmp_path, writer, 20)) for writer in range(3)]
    for writer in writers:
        writer.start()
    while len(seen) < 60 and (any(writer.is_alive() for writer in writers) or position != lines.read(store.trials).end):
        new, position = store.read_since(position)
        seen += new
    for writer in writers:
        writer.join()
    assert seen == Store(tmp_path).read_all()
    assert sorted(r.seed for r in seen) == [1000 * writer + i for writer in range(3) for i in range(20)]


def test_what_was_read_is_not_read_again(tmp_path, monkeypatch):
    store, parsed, parse = Store(tmp_path), [], Record.from_json
    monkeypatch.setattr(Record, "from_json", lambda content: parsed.append(content["seed"]) or parse(content))
    for seed in range(3):
        store.append(record(seed))
    assert len(store.read_all()) == 3
    store.append(record(3))
    for _ in range(3):
        assert len(store.read_all()) == len(store.read()) == 4
    assert parsed == [0, 1, 2, 3]


def test_a_list_of_records_is_the_readers_own(tmp_path):
    store = Store(tmp_path)
    store.append(record())
    store.read_all().clear()
    assert len(store.read_all()) == 1


@pytest.mark.parametrize("how", ["shorter", "another file", "gone"])
def test_a_file_that_was_replaced_is_read_from_its_start(how, tmp_path):
    store = Store(tmp_path)
    for seed in range(3):
        store.append(record(seed, status="failed"))
    store.read_all()
    position = store.position
    if how == "another file":
        partial = tmp_path / "partial"
        partial.write_bytes(b"".join(line(seed, status="failed") for seed in range(5, 9)) + line(9))
        partial.replace(store.trials)
    elif how == "shorter":
        store.trials.write_bytes(line(9))
    else:
        store.trials.unlink()
    assert store.read_all() == Store(tmp_path, writable=False).read_all()
    if how != "gone":
        assert [r.seed for r in store.read_since(position)[0]] == [9]  # when the others failed is not known


def test_a_line_that_is_replaced_while_it_is_read_gets_a_second_look(tmp_path, monkeypatch):
    """The torn end of a killed writer, of which a reader got the first bytes before the next writer removed it."""
    store, look, looks = Store(tmp_path), lines._complete_lines, []
    store.append(record(1))
    good = store.trials.read_bytes()

    def mixed(path, since):
        looks.append(path)
        path.write_bytes(b'{"format": 4, "key": "0' + good[20:] if len(looks) == 1 else good)
        return look(path, since)

    monkeypatch.setattr(lines, "_complete_lines", mixed)
    assert [r.seed for r in store.read_all()] == [1]
    assert len(looks) == 2


@pytest.mark.parametrize("content", [b"", b"\n", b"abc", b"\nabc", b"ab\ncd\nefgh", b"ab\n\n", b"ab\ncdefghijk"])
def test_the_end_of_the_last_line_is_found_block_by_block(content, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(content)
    with path.open("rb") as file:
        found = [lines.end_of_lines(file.fileno(), block) for block in (1, 2, 3, 4, 5, 6, 100)]
    assert found == [content.rfind(b"\n") + 1] * 7


def test_damage_is_told_once_with_its_number_in_the_file(tmp_path):
    store = Store(tmp_path)
    store.append(record(0))
    store.read_all()
    add(store, b"?\n")
    store.append(record(1))
    with pytest.warns(DamagedStore, match=r"trials\.jsonl: line 2 cannot be read"):
        assert len(store.read_all()) == 2
    add(store, b"?\n?\n")
    with pytest.warns(DamagedStore, match=r"trials\.jsonl: line 4, 5 cannot be read"):
        assert len(store.read_all()) == 2
    assert len(store.read_all()) == 2


def test_a_newer_line_is_an_error_each_time_and_names_its_number(tmp_path):
    store = Store(tmp_path)
    store.append(record(0))
    store.read_all()
    add(store, b'{"format": 99}\n')
    for _ in range(2):
        with pytest.raises(ValueError, match=r"trials\.jsonl: line 2 was written by a newer trainonce"):
            store.read_all()
