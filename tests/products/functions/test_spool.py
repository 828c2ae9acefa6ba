"""The spool folder: its files, their records, and broken files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.products.functions.spool_writer import SMALL_FILE, activation, record, write, writing

from moorage.products.functions.records import spool
from moorage.products.functions.records.spool import SpoolFile
from moorage.runtime.edge.spool import LENGTH_SIZE, SpoolWriter

MANY, LARGE = 1_000_000, 2**40


def opened(folder: Path, position: int = 0) -> SpoolFile:
    (path,) = folder.glob("*.spool")
    return SpoolFile(path, position)


def numbers(file: SpoolFile, most: int = SMALL_FILE) -> list[int]:
    return [found.duration_us for found in file.read(most).take(MANY, LARGE)]


def test_records_are_read_from_a_position_on(tmp_path: Path) -> None:
    write(tmp_path, *(record(number) for number in range(1, 6)))
    file = opened(tmp_path)
    chunk = file.read(SMALL_FILE)
    first = chunk.take(2, LARGE)

    file.position = chunk.position

    assert [found.activation for found in first] == [activation(1), activation(2)]
    assert numbers(file) == [3, 4, 5]


def test_a_file_has_more_exactly_while_a_record_stands_at_its_position(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        file = opened(tmp_path)
        before = file.has_more()
        writer.append(record())
        with_one = file.has_more()

        file.position = file.read(SMALL_FILE).position + len(record()) + LENGTH_SIZE

        assert (before, with_one, file.has_more()) == (False, True, False)


@pytest.mark.parametrize("most", [1, 4, 100, 104, 105, 150, 1000])
def test_records_that_do_not_fit_into_one_look_are_read_in_several(tmp_path: Path, most: int) -> None:
    write(tmp_path, *(record(number, log=b"x" * number) for number in range(1, 50)))
    file = opened(tmp_path)
    found: list[int] = []

    while file.has_more():
        chunk = file.read(max(most, LENGTH_SIZE))
        found += [each.duration_us for each in chunk.take(MANY, LARGE)]
        file.position = chunk.position

    assert found == list(range(1, 50))


def test_a_chunk_tells_whether_there_was_more_when_it_was_read(tmp_path: Path) -> None:
    write(tmp_path, *(record(number) for number in range(1, 11)))
    file = opened(tmp_path)
    whole, part = file.read(SMALL_FILE), file.read(500)

    whole.take(MANY, LARGE)
    part.take(MANY, LARGE)

    assert (whole.is_last, part.is_last) == (True, False)


def test_a_batch_is_bounded_by_count_and_by_size_but_has_at_least_one_record(tmp_path: Path) -> None:
    write(tmp_path, *(record(number, log=b"x" * 1000) for number in range(1, 11)))
    chunk = opened(tmp_path).read(SMALL_FILE)

    taken = [
        len(chunk.take(3, LARGE)),
        len(chunk.take(MANY, 2500)),
        len(chunk.take(MANY, 1)),
        len(chunk.take(0, LARGE)),
    ]

    assert taken == [3, 2, 1, 0]


def test_what_was_written_between_two_looks_is_left_for_the_next(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        file = opened(tmp_path)
        writer.append(record(1))
        chunk = file.read(SMALL_FILE)

        writer.append(record(2))

        assert [found.duration_us for found in chunk.take(MANY, LARGE)] == [1]
        assert chunk.is_last


@pytest.mark.parametrize("damage", [b"\x07", b"\xff\xff\xff\x7f", b"\x64\0\0\0" + b"\xff" * 100])
def test_reading_stops_at_a_torn_record_and_says_where(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, record(1), record(2), record(3))
    (path,) = tmp_path.glob("*.spool")
    at = 2 * (len(record()) + LENGTH_SIZE)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(damage)

    chunk = opened(tmp_path).read(SMALL_FILE)
    found = [each.duration_us for each in chunk.take(MANY, LARGE)]

    assert found == [1, 2]
    assert chunk.problem is not None
    assert f"at byte {at}:" in chunk.problem


def test_a_position_past_the_end_of_a_file_has_nothing_behind_it(tmp_path: Path) -> None:
    write(tmp_path, record())

    file = opened(tmp_path, position=10 * SMALL_FILE)

    assert not file.has_more()
    assert numbers(file) == []


def test_a_file_is_abandoned_when_its_writer_is_gone(tmp_path: Path) -> None:
    with writing(tmp_path):
        while_writing = opened(tmp_path).is_abandoned()

    assert not while_writing
    assert opened(tmp_path).is_abandoned()


def test_files_are_listed_oldest_first_and_nothing_else_is(tmp_path: Path) -> None:
    names = ["1767225600002-9-0.spool", "1767225600001-7-3.spool", "1767225600001-7-2.spool"]
    for name in (*names, "notes.txt", "1767225600000-1-1.torn"):
        (tmp_path / name).touch()
    (tmp_path / "1767225600000-1-0.spool").mkdir()

    assert spool.names_in(tmp_path) == sorted(names)


def test_what_a_writer_left_that_died_at_birth_is_removed_and_a_newborn_file_is_not(tmp_path: Path) -> None:
    leftover = tmp_path / "1767225600001-7-2.new"
    leftover.touch()
    writer = SpoolWriter(tmp_path, SMALL_FILE)
    (living,) = tmp_path.glob("*.spool")
    living.rename(living.with_suffix(".new"))

    spool.names_in(tmp_path)

    assert not leftover.exists()
    assert living.with_suffix(".new").exists()
    writer.close()


def test_a_folder_keeps_its_id_and_no_two_have_the_same(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "deep" / "other"

    first = spool.ensure_id(one)
    moved = one.rename(tmp_path / "moved")

    assert spool.ensure_id(moved) == first
    assert spool.ensure_id(other) != first
    assert [path.name for path in moved.iterdir()] == [spool.ID_FILE]


def test_a_torn_file_is_kept_for_somebody_to_look_at_but_no_longer_listed(tmp_path: Path) -> None:
    write(tmp_path, record())
    file = opened(tmp_path)

    file.set_aside()

    assert spool.names_in(tmp_path) == []
    assert os.path.getsize(file.path.with_suffix(spool.TORN)) == SMALL_FILE
