"""The spool's format: round trips, and rejection of invalid records."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import END, HEAD_SIZE, SCHEDULE, STDERR, STDOUT, WEB, Entry, Record, SpoolWriter, Torn

ACTIVATION = b"0123456789abcdef" * 2
PAGE = 4096


def encoded(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "kind": END,
        "door": WEB,
        "ok": True,
        "cold": False,
        "function_id": 5,
        "org_id": 12,
        "version": 3,
        "memory_mb": 128,
        "started_ms": 1_767_225_600_000,
        "duration_us": 1500,
        "wait_us": 40,
        "schedule_id": 0,
        "activation": ACTIVATION,
        "error": b"",
        "log": b"",
    }
    fields |= changes
    log: bytes = fields.pop("log")
    return spool.encode(**fields, log_bytes=len(log)) + log


def records_in(path: Path) -> list[Record]:
    data, at, found = path.read_bytes(), 0, []
    while length := spool.length_at(data, at):
        found.append(spool.decode(data, at + spool.LENGTH_SIZE, length))
        at += spool.LENGTH_SIZE + length
    return found


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"), key=lambda path: int(path.stem.split("-")[2]))


def is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@given(
    kind=st.integers(1, 3),
    door=st.integers(1, 3),
    ok=st.booleans(),
    cold=st.booleans(),
    function_id=st.integers(1, 2**63 - 1),
    org_id=st.integers(0, 2**63 - 1),
    version=st.integers(0, 2**31 - 1),
    memory_mb=st.integers(0, 2**20 - 1),
    started_ms=st.integers(0, 2**47 - 1),
    duration_us=st.integers(0, 2**40 - 1),
    wait_us=st.integers(0, 2**40 - 1),
    schedule_id=st.integers(0, 2**63 - 1),
    error=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    log=st.binary(max_size=100),
)
def test_a_record_is_read_as_it_was_written(error: str, log: bytes, **fields: Any) -> None:
    data = encoded(**fields, error=error.encode(), log=log)

    record = spool.decode(data, 0, len(data))

    assert record == Record(**fields, activation=ACTIVATION.decode(), error=error or None, log=log)


def test_what_is_not_text_of_an_error_is_replaced_so_that_every_store_takes_it() -> None:
    data = encoded(ok=False, error=b"a\0b\xff")

    assert spool.decode(data, 0, len(data)).error == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": 0},
        {"kind": 4},
        {"door": 0},
        {"door": 4},
        {"ok": 2},
        {"cold": 2},
        {"function_id": 0},
        {"function_id": 2**63},
        {"org_id": 2**63},
        {"version": 2**31},
        {"memory_mb": 2**20},
        {"started_ms": 2**47},
        {"duration_us": 2**40},
        {"wait_us": 2**40},
        {"schedule_id": 2**63},
        {"activation": b"\0" * 32},
    ],
)
def test_a_record_whose_values_no_store_could_hold_is_torn(changes: dict[str, Any]) -> None:
    data = encoded(**changes)

    with pytest.raises(Torn):
        spool.decode(data, 0, len(data))


@pytest.mark.parametrize("length", [1, HEAD_SIZE - 1, HEAD_SIZE + 4, HEAD_SIZE + 1000, 2**32 - 1])
def test_a_length_that_does_not_fit_its_record_is_torn(length: int) -> None:
    data = encoded() + b"\0" * 100

    with pytest.raises(Torn):
        spool.decode(data, 0, length)


@given(st.binary(max_size=300))
def test_noise_is_a_record_or_torn_and_nothing_else(noise: bytes) -> None:
    try:
        record = spool.decode(noise, 0, len(noise))
    except Torn:
        return
    assert record.kind in (1, 2, 3)


@given(st.lists(st.tuples(st.sampled_from((STDOUT, STDERR)), st.integers(0, 2**46), st.text(max_size=20)), max_size=8))
def test_a_log_block_has_its_lines_in_order(lines: list[tuple[int, int, str]]) -> None:
    lines = [(stream, at, text.encode("utf-8", "ignore").decode().replace("\n", " ")) for stream, at, text in lines]
    block = b"".join(spool.log_entry(stream, at, text.encode()) for stream, at, text in lines)

    assert list(spool.log_entries(block)) == [Entry(*line) for line in lines]
    stdout = "".join(text for stream, _, text in lines if stream == STDOUT)
    stderr = "".join(text for stream, _, text in lines if stream == STDERR)
    assert spool.log_texts(block) == (stdout, stderr)


def test_lines_that_share_an_entry_come_one_by_one() -> None:
    block = spool.log_entry(STDOUT, 5, b"one\ntwo\nrest")

    assert list(spool.log_entries(block)) == [Entry(STDOUT, 5, text) for text in ("one\n", "two\n", "rest")]


@given(st.lists(st.text("aé☃", max_size=12), max_size=8), st.integers(0, 200))
def test_a_log_is_cut_to_a_beginning_of_itself_in_whole_characters(lines: list[str], most: int) -> None:
    block = b"".join(spool.log_entry(STDOUT, 1, line.encode()) for line in lines)

    cut = spool.cut_log(block, most)

    assert len(cut) <= max(most, 0)
    text, whole = spool.log_texts(cut)[0], "".join(lines)
    assert whole.startswith(text)
    assert len(block) > most or text == whole


@given(st.binary(max_size=200))
def test_a_log_block_of_noise_ends_where_it_makes_no_sense(noise: bytes) -> None:
    shown = "".join(entry.text for entry in spool.log_entries(noise))

    assert len(shown.encode("utf-8", "ignore")) <= 3 * len(noise)
    assert len(spool.cut_log(noise, 50)) <= max(len(noise), 50)


def test_records_stand_one_after_the_other_and_each_starts_at_a_multiple_of_four(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, PAGE)
    errors = [b"x" * count for count in range(9)]

    for error in errors:
        writer.append(encoded(error=error))
    (path,) = files_of(tmp_path)

    assert [(record.error or "").encode() for record in records_in(path)] == errors
    assert all(spool.length_at(path.read_bytes(), 0) % 4 == 0 for path in files_of(tmp_path))
    writer.close()


def test_a_file_is_locked_from_the_moment_it_has_its_name_until_its_writer_lets_go(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, PAGE)
    (path,) = files_of(tmp_path)
    while_writing = is_locked(path)

    writer.close()

    assert while_writing
    assert not is_locked(path)
    assert path.stat().st_blocks * 512 >= PAGE


def test_a_record_that_does_not_fit_starts_a_new_file_and_the_old_one_is_let_go_of(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, PAGE)
    count = 3 * PAGE // HEAD_SIZE

    for number in range(count):
        writer.append(encoded(duration_us=number))

    files = files_of(tmp_path)
    assert len(files) > 2
    assert [is_locked(path) for path in files] == [False] * (len(files) - 1) + [True]
    assert [record.duration_us for path in files for record in records_in(path)] == list(range(count))
    writer.close()


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_a_file_may_be_filled_to_its_last_byte(tmp_path: Path, spare: int) -> None:
    writer = SpoolWriter(tmp_path, PAGE)
    first = encoded(log=b"x" * (PAGE - 2 * (HEAD_SIZE + 4) - 4 * spare))

    writer.append(first)
    writer.append(encoded())

    assert len(files_of(tmp_path)) == (2 if spare < 0 else 1)
    assert sum(len(records_in(path)) for path in files_of(tmp_path)) == 2
    writer.close()


def test_a_record_larger_than_a_file_gets_a_file_of_its_size(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, PAGE)
    log = os.urandom(10 * PAGE)

    for record in (encoded(), encoded(log=log), encoded(door=SCHEDULE)):
        writer.append(record)

    found = [record for path in files_of(tmp_path) for record in records_in(path)]
    assert [record.log for record in found] == [b"", log, b""]
    assert found[2].door == SCHEDULE
    writer.close()


@pytest.mark.parametrize("size", [1, spool.MAPPED_LOG_BYTES, spool.MAPPED_LOG_BYTES + 1, 10 * spool.MAPPED_LOG_BYTES])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_log_is_appended_to_its_record(tmp_path: Path, size: int, kind: type) -> None:
    writer = SpoolWriter(tmp_path, 10 * PAGE)
    log = os.urandom(size)

    for number in range(3):
        writer.append(encoded(duration_us=number, log=log)[:-size], kind(log))

    found = [record for path in files_of(tmp_path) for record in records_in(path)]
    assert [(record.duration_us, record.log) for record in found] == [(number, log) for number in range(3)]
    writer.close()


def test_a_disk_without_room_is_an_error_and_what_was_written_stays(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, PAGE)
    writer.append(encoded())

    with pytest.raises(OSError):
        SpoolWriter(tmp_path, 2**62)
    writer.append(encoded())

    (path,) = files_of(tmp_path)
    assert len(records_in(path)) == 2
    assert list(tmp_path.iterdir()) == [path]
    writer.close()


def test_a_writer_that_cannot_open_its_next_file_says_so_each_time_and_goes_on_once_it_can(tmp_path: Path) -> None:
    folder, aside = tmp_path / "spool", tmp_path / "aside"
    writer = SpoolWriter(folder, PAGE)
    folder.rename(aside)
    folder.touch()

    for _ in range(2):
        with pytest.raises(NotADirectoryError):
            writer.append(encoded(log=b"x" * PAGE))
    writer.append(encoded(duration_us=1))
    folder.unlink()
    writer.append(encoded(duration_us=2, log=b"x" * PAGE))

    found = [record for place in (aside, folder) for path in files_of(place) for record in records_in(path)]
    assert [record.duration_us for record in found] == [1, 2]
    writer.close()


def test_two_writers_of_one_process_never_share_a_file(tmp_path: Path) -> None:
    writers = [SpoolWriter(tmp_path, PAGE) for _ in range(20)]

    for number, writer in enumerate(writers):
        writer.append(encoded(duration_us=number))

    assert len(list(tmp_path.glob("*.spool"))) == 20
    for writer in writers:
        writer.close()


def test_the_head_is_laid_out_as_both_sides_agreed() -> None:
    layout = Struct("<BBBBQQIIQQQQ32sII")

    assert layout.unpack(encoded(error=b"ab")[:HEAD_SIZE]) == (
        1, 1, 1, 0, 5, 12, 3, 128, 1_767_225_600_000, 1500, 40, 0, ACTIVATION, 2, 0,
    )  # fmt: skip
