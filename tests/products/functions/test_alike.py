"""Runs of plain records: counted together with the same sums as one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.products.functions.spool_writer import (
    NOON,
    activation,
    invocations,
    log,
    make_function,
    make_recorder,
    minutes,
    record,
    texts,
    writing,
)

from moorage.core.db.store import Database
from moorage.core.kit.clock import MINUTE_MS
from moorage.products.functions.logs import loglines
from moorage.products.functions.records import storing
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.records.similar import MIN_RUN, SIZE, UniformRun
from moorage.products.functions.records.spool import Chunk, SpoolFile
from moorage.products.functions.records.storing import Batch, Minute, next_batch
from moorage.products.functions.records.tables import ADDED
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import (
    API,
    END,
    HEAD_SIZE,
    LATE,
    MOST_MS,
    MOST_US,
    SCHEDULE,
    START,
    WEB,
    Record,
    SpoolWriter,
    pack_plain,
)

LARGE = 2**20
MANY = 1_000_000
RUN = 300  # records, more than MIN_RUN
PAGE = 4096
DURATION = ADDED.index("duration_us")


def written(folder: Path, records: list[bytes]) -> bytes:
    """Return a file with these records."""
    with writing(folder, LARGE) as writer:
        for each in records:
            writer.append(each)
    (path,) = folder.glob("*.spool")
    return path.read_bytes()


def chunk_of(folder: Path, records: list[bytes]) -> Chunk:
    data = written(folder, records)
    return Chunk(data, data, 0, len(data))


def batches(chunk: Chunk, surplus: int) -> Iterator[Batch]:
    """Yield the batches of a chunk with a surplus of calls of the first function."""
    left = Counter({0: surplus, 1: surplus})
    while batch := next_batch(chunk, left, lambda org_id, function_id, block: loglines.pack(block)):
        yield batch


def minutes_of(*found: Batch) -> dict[tuple[int, int], Minute]:
    """Return the summed minutes of batches."""
    sums: dict[tuple[int, int], Minute] = {}
    for batch in found:
        for key, each in batch.minutes.items():
            total = sums.setdefault(key, Minute(each.org_id))
            for name in ("invocations", "errors", "cold_starts", "duration_us", "mb_ms"):
                setattr(total, name, getattr(total, name) + getattr(each, name))
    return sums


def one_by_one(records: list[bytes]) -> dict[tuple[int, int], Minute]:
    batch = Batch(0)
    batch.fill([decoded(each) for each in records], Counter())
    return batch.minutes


def decoded(packed: bytes) -> Record:
    return spool.decode(packed, 0, len(packed))


def exact(number: int, **changes: Any) -> bytes:
    """Return a record of whole milliseconds, so that its memory use needs no rounding."""
    return record(number, **{"duration_us": number * 1000, **changes})


# Counting.


def test_a_run_comes_to_the_numbers_of_its_records(tmp_path: Path) -> None:
    records = [
        record(number, cold=number % 7 == 0, door=(WEB, API)[number % 2], started_ms=NOON + 100 * number)
        for number in range(RUN)
    ]

    run = chunk_of(tmp_path, records).take_run(Counter({1: RUN}))

    (singly,) = one_by_one(records).values()
    assert run == UniformRun(1, 1, 128, NOON // MINUTE_MS, RUN, singly.cold_starts, singly.duration_us)
    batch = Batch(0)
    batch.count_run(run)
    (counted,) = batch.minutes.values()
    assert (counted.invocations, counted.errors, counted.cold_starts) == (RUN, 0, 43)
    assert singly.mb_ms <= counted.mb_ms < singly.mb_ms + RUN


@pytest.mark.parametrize(
    "odd",
    [
        {"function_id": 2},
        {"version": 4},
        {"memory_mb": 256},
        {"started_ms": NOON + MINUTE_MS},
        {"started_ms": NOON - 1},
        {"log": log("said")},
        {"ok": False, "error": b"why"},
        {"ok": False},
        {"error": b"a warning"},
        {"door": SCHEDULE, "schedule_id": 4},
        {"door": SCHEDULE},
        {"schedule_id": 4},
        {"kind": START, "door": SCHEDULE, "schedule_id": 4},
        {"kind": LATE, "log": log("later")},
    ],
    ids=str,
)
def test_a_run_ends_before_a_record_that_differs_and_none_is_lost_or_doubled(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    records = [exact(number) for number in range(2 * RUN)]
    records[RUN] = exact(RUN, **odd)
    data = written(tmp_path, records)

    run = Chunk(data, data, 0, len(data)).take_run(Counter({1: 2 * RUN}))
    chunk = Chunk(data, data, 0, len(data))
    found = list(batches(chunk, 2 * RUN))

    assert run is not None
    assert run.calls == RUN
    assert minutes_of(*found) == one_by_one(records)
    assert [len(batch.ends) + len(batch.starts) for batch in found] == [int(odd.get("door") == SCHEDULE)]
    assert chunk.is_last
    assert chunk.position == found[-1].to == sum(len(each) + 4 for each in records) + (-len(records[RUN]) & 3)


def test_a_run_is_no_longer_than_what_is_too_much_and_the_rest_get_rows(tmp_path: Path) -> None:
    records = [exact(number) for number in range(1000)]

    found = list(batches(chunk_of(tmp_path, records), surplus=RUN))

    assert [row[DURATION] for batch in found for row in batch.rows] == [number * 1000 for number in range(RUN, 1000)]
    assert minutes_of(*found) == one_by_one(records)


@pytest.mark.parametrize(
    ("records", "surplus"),
    [
        pytest.param(MIN_RUN - 1, MIN_RUN, id="few"),
        pytest.param(MIN_RUN, MIN_RUN - 1, id="few too many"),
        pytest.param(0, MIN_RUN, id="none"),
    ],
)
def test_too_few_are_taken_one_by_one(tmp_path: Path, records: int, surplus: int) -> None:
    made = [exact(number) for number in range(records)]
    chunk = chunk_of(tmp_path, made)

    run = chunk.take_run(Counter({1: surplus}))
    found = list(batches(chunk, surplus))

    assert run is None
    assert minutes_of(*found) == one_by_one(made)


@pytest.mark.parametrize("is_longer", [True, False])
def test_what_only_the_second_look_at_a_file_saw_is_left_for_the_next(tmp_path: Path, is_longer: bool) -> None:
    data = written(tmp_path, [exact(number) for number in range(2 * RUN)])
    seen = data[: RUN * SIZE] + bytes(RUN * SIZE if is_longer else 0)
    chunk = Chunk(seen, data, 0, len(data))

    counted = chunk.ends_of_functions()
    found = list(batches(chunk, 2 * RUN))

    assert counted == {1: RUN}
    assert sum(batch.count for batch in found) == RUN
    assert chunk.position == RUN * SIZE


@pytest.mark.parametrize("last", [{}, {"log": log("said")}, {"kind": LATE}], ids=str)
def test_the_calls_of_each_function_are_counted_whether_all_are_plain_or_not(
    tmp_path: Path, last: dict[str, Any]
) -> None:
    records = [record(number, function_id=1 + number % 3 // 2) for number in range(3 * RUN)]

    counted = chunk_of(tmp_path, [*records, record(1, 2, **last)]).ends_of_functions()

    assert counted == {1: 2 * RUN, 2: RUN + ("kind" not in last)}


@pytest.mark.parametrize("count", [1, RUN])
@pytest.mark.parametrize("at", [0, RUN])
@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(exact(1, duration_us=MOST_US), id="a duration"),
        pytest.param(exact(1, function_id=0), id="no function"),
        pytest.param(exact(1, org_id=2**63), id="an organization"),
        pytest.param(exact(1, started_ms=MOST_MS), id="a moment"),
        pytest.param(exact(1)[:-4] + b"\5\0\0\0", id="a log that is not there"),
    ],
)
def test_torn_records_are_in_no_run_and_reading_stops_there(tmp_path: Path, torn: bytes, at: int, count: int) -> None:
    records = [exact(number) for number in range(2 * RUN)]
    records[at : at + count] = [torn] * count
    chunk = chunk_of(tmp_path, records)

    found = list(batches(chunk, 2 * RUN))

    assert minutes_of(*found) == one_by_one(records[:at])
    assert chunk.problem == f"at byte {at * SIZE}: a field has an invalid value"


# Storing.


@pytest.fixture
async def recorder(db: Database, tmp_path: Path) -> AsyncIterator[Recorder]:
    made = make_recorder(db, tmp_path)
    yield made
    made.close()


@pytest.mark.anyio
async def test_a_recorder_that_is_far_behind_counts_all_and_stores_the_newest(
    db: Database, tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "KEPT_INVOCATIONS", RUN)
    busy, other = await make_function(db), await make_function(db, name="other")
    with writing(tmp_path, LARGE) as writer:
        for number in range(3000):
            writer.append(exact(number, function_id=busy, cold=number == 0))
            if number % 1000 == 0:
                writer.append(exact(number, function_id=other, log=log(f"call {number}")))

        while sum(minute["invocations"] for minute in await minutes(db)) < 3003:
            await recorder.catch_up()

    found = {row["function_id"]: row for row in await minutes(db)}
    total_us = 1000 * sum(range(3000))
    assert [found[busy][name] for name in ("invocations", "errors", "cold_starts", "duration_us", "mb_ms")] == [
        *(3000, 0, 1, total_us, 128 * total_us // 1000)
    ]
    assert found[other]["invocations"] == 3
    rows = [row["duration_us"] // 1000 for row in await invocations(db, function_id=busy)]
    assert rows[-RUN:] == list(range(3000 - RUN, 3000))
    assert rows == sorted(set(rows))
    assert len(rows) <= 2 * RUN  # the small first read and the large second one
    printed = [each.stdout for each in await texts(db, recorder.logs, function_id=other)]
    assert printed == ["call 0\n", "call 1000\n", "call 2000\n"]


# Writing.


def plain(numbers: range) -> bytes:
    """Return the records of calls as packed by the edge."""
    return b"".join(
        pack_plain(HEAD_SIZE, END, WEB, 1, 0, 1, 1, 3, 128, NOON, number, 40, 0, activation(number).encode(), 0, 0)
        for number in numbers
    )


def read_back(folder: Path) -> list[list[Record]]:
    """Return the records of each file, oldest first."""
    found = []
    for path in sorted(folder.glob("*.spool"), key=lambda path: int(path.stem.split("-")[2])):
        file = SpoolFile(path, 0)
        found.append(file.read(LARGE).take(MANY, LARGE))
        file.close()
    return found


@pytest.mark.parametrize("capacity", [LARGE, PAGE])
def test_records_that_are_appended_together_are_read_as_if_appended_one_by_one(tmp_path: Path, capacity: int) -> None:
    writer = SpoolWriter(tmp_path, capacity)
    expected: list[Record] = []

    for size in (1, 30, 2, 50, 0, 39, 3):  # A page holds 39 records; 50 need their own file.
        numbers = range(len(expected) + 1, len(expected) + 1 + size)
        if size:
            writer.append_plain(plain(numbers))
        expected += [decoded(record(number)) for number in numbers]
        said = record(len(expected) + 1, log=log("x" * size))
        writer.append(said)
        expected.append(decoded(said))
    writer.close()

    found = read_back(tmp_path)
    assert [each for records in found for each in records] == expected
    assert (len(found) > 1) is (capacity == PAGE)
