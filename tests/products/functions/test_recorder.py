"""The recorder: each record once, counters, late lines and vanishing files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import delete
from structlog.testing import capture_logs
from tests.products.functions.spool_writer import (
    NOON,
    activation,
    invocations,
    log,
    make_function,
    make_recorder,
    minutes,
    record,
    spool_files,
    texts,
    write,
    writing,
)

from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.products.functions.logs import loglines
from moorage.products.functions.records import tables as records
from moorage.products.functions.records.recorder import Recorder
from moorage.products.functions.tables import function
from moorage.runtime.edge.spool import API, END, LATE, SCHEDULE, START, Record

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
async def recorder(db: Database, folder: Path) -> AsyncIterator[Recorder]:
    made = make_recorder(db, folder)
    yield made
    made.close()


async def numbers(db: Database) -> list[int]:
    return [row["duration_us"] for row in await invocations(db)]


async def test_a_call_becomes_a_row_with_everything_known_of_it(db: Database, folder: Path, recorder: Recorder) -> None:
    function_id = await make_function(db, org_id=7)
    failed = record(
        9,
        function_id,
        org_id=7,
        door=API,
        ok=False,
        cold=True,
        wait_us=77,
        error=b"ran past 5 ms",
        log=log("a"),
    )

    write(folder, failed)
    await recorder.catch_up()

    (row,) = await invocations(db)
    assert await texts(db, recorder.logs) == [("a\n", "", False, False)]
    assert row.pop("log_ref").endswith(":0:23")
    assert row == {
        "id": row["id"],
        "org_id": 7,
        "function_id": function_id,
        "version": 3,
        "activation_id": activation(9),
        "door": "api",
        "schedule_id": None,
        "started_at": NOON,
        "duration_us": 9,
        "wait_us": 77,
        "cold": True,
        "ok": False,
        "error": "ran past 5 ms",
        "logs": None,
    }


async def test_records_are_stored_once_however_often_anybody_looks(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id = await make_function(db)
    with writing(folder) as writer:
        for number in range(5):
            writer.append(record(number, function_id))
            await asyncio.gather(recorder.catch_up(), recorder.catch_up())
    await recorder.catch_up()

    await make_recorder(db, folder).catch_up()

    assert await numbers(db) == [0, 1, 2, 3, 4]


async def test_whoever_catches_up_sees_what_was_written_before_even_while_a_pass_runs(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id = await make_function(db)
    with writing(folder) as writer:
        for number in range(20):
            running = asyncio.create_task(recorder.catch_up())
            await asyncio.sleep(0)
            writer.append(record(number, function_id))

            assert await recorder.catch_up()

            assert await numbers(db) == list(range(number + 1))
            await running


async def test_more_records_than_one_unit_takes_are_stored_in_their_order(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_ids = [await make_function(db, name=f"f{number}") for number in range(3)]
    with writing(folder, 2**20) as writer:
        for number in range(3500):
            writer.append(record(number, function_ids[number % 3]))

        await recorder.catch_up()

    found = await invocations(db)
    for place, function_id in enumerate(function_ids):
        mine = [row["duration_us"] for row in found if row["function_id"] == function_id]
        assert mine == list(range(place, 3500, 3))


async def test_a_finished_file_goes_with_its_row_and_one_that_is_written_to_stays(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id = await make_function(db)
    write(folder, record(1, function_id))
    with writing(folder) as writer:
        writer.append(record(2, function_id))

        await recorder.catch_up()

        (left,) = folder.glob("*.spool")
        (kept,) = await spool_files(db)
        assert kept["name"].endswith("/" + left.name)
    await recorder.catch_up()
    assert list(folder.glob("*.spool")) == []
    assert await spool_files(db) == []
    assert await numbers(db) == [1, 2]


async def test_a_file_that_vanished_loses_its_row(db: Database, folder: Path, recorder: Recorder) -> None:
    function_id = await make_function(db)
    with writing(folder) as writer:
        writer.append(record(1, function_id))
        await recorder.catch_up()
        for path in folder.glob("*.spool"):
            path.unlink()

        await make_recorder(db, folder).catch_up()

    assert await spool_files(db) == []
    assert await numbers(db) == [1]


async def test_two_recorders_of_one_folder_store_each_record_once(db: Database, folder: Path) -> None:
    function_id = await make_function(db)
    pair = [make_recorder(db, folder) for _ in range(2)]
    with writing(folder) as writer:
        for number in range(300):
            writer.append(record(number, function_id, log=log("x" * 400)))
            if number % 10 == 0:
                await asyncio.gather(*(each.catch_up() for each in pair))
    for each in (*pair, *pair):
        await each.catch_up()

    assert await numbers(db) == list(range(300))
    assert sum(minute["invocations"] for minute in await minutes(db)) == 300
    assert list(folder.glob("*.spool")) == []
    assert await spool_files(db) == []


async def test_folders_of_two_machines_may_have_files_of_the_same_name(db: Database, tmp_path: Path) -> None:
    function_id = await make_function(db)
    recorders = []
    for number in range(2):
        folder = tmp_path / str(number)
        write(folder, record(number, function_id))
        (path,) = folder.glob("*.spool")
        path.rename(folder / "1767225600000-1-0.spool")
        recorders.append(make_recorder(db, folder))

    for recorder in recorders:
        await recorder.catch_up()

    assert await numbers(db) == [0, 1]


async def test_a_torn_file_is_set_aside_with_a_warning_and_the_others_are_read(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id = await make_function(db)
    write(folder, record(1, function_id), record(2, function_id))
    (torn,) = folder.glob("*.spool")
    with torn.open("r+b") as file:
        file.seek(len(record()) + 4)
        file.write(b"\x09\x09\x09\x09 nonsense")
    write(folder, record(3, function_id))

    with capture_logs() as logs:
        well = await recorder.catch_up()
        await recorder.catch_up()

    assert well
    assert await numbers(db) == [1, 3]
    assert [(line["event"], line["log_level"]) for line in logs] == [("spool file is torn", "warning")]
    assert torn.with_suffix(".torn").exists()
    assert await spool_files(db) == []


async def test_a_file_that_was_cut_behind_its_position_ends_nothing(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id = await make_function(db)
    with writing(folder) as writer:
        writer.append(record(1, function_id))
        await recorder.catch_up()
        (path,) = folder.glob("*.spool")
        with path.open("r+b") as file:
            file.truncate(20)

        assert await recorder.catch_up()
        write(folder, record(2, function_id))
        assert await recorder.catch_up()

    assert await numbers(db) == [1, 2]


async def test_counters_add_up_over_batches_functions_and_minutes(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    one, other = await make_function(db), await make_function(db, name="other")
    with writing(folder) as writer:
        for _ in range(2):
            writer.append(record(1000, one, started_ms=NOON + 59_999, memory_mb=256))
            writer.append(record(3000, one, started_ms=NOON, ok=False, cold=True))
            writer.append(record(5000, one, started_ms=NOON + MINUTE_MS))
            writer.append(record(7000, other))
            await recorder.catch_up()

    found = {(row["function_id"], row["minute"]): tuple(row.values())[4:] for row in await minutes(db)}
    assert found == {
        (one, NOON): (4, 2, 2, 8000, 2 * (256 + 3 * 128)),
        (one, NOON + MINUTE_MS): (2, 0, 0, 10_000, 2 * 5 * 128),
        (other, NOON): (2, 0, 0, 14_000, 2 * 7 * 128),
    }


async def test_records_of_a_function_that_is_gone_are_dropped(db: Database, folder: Path, recorder: Recorder) -> None:
    told: list[Record] = []
    recorder.on_scheduled = lambda tx, starts, ends: told.extend([*starts, *ends])
    function_id, gone = await make_function(db), await make_function(db, name="gone")
    await db.write(lambda tx: tx.run(Command(delete(function).where(function.c.id == arg("id"))), id=gone))

    write(folder, record(1, gone, door=SCHEDULE), record(2, function_id), record(1, gone, kind=LATE, log=log("late")))
    await recorder.catch_up()

    assert await numbers(db) == [2]
    assert [row["function_id"] for row in await minutes(db)] == [function_id]
    assert told == []


async def test_schedules_hear_of_starts_and_ends_in_the_same_transaction(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    heard: list[tuple[list[str], list[str]]] = []
    is_broken = True

    def on_scheduled(tx: Tx, starts: list[Record], ends: list[Record]) -> None:
        if is_broken:
            raise RuntimeError("not now")
        heard.append(([start.activation for start in starts], [end.activation for end in ends]))

    recorder.on_scheduled = on_scheduled
    function_id = await make_function(db)
    write(
        folder,
        record(1, function_id, kind=START, door=SCHEDULE, schedule_id=4),
        record(2, function_id),
        record(1, function_id, kind=END, door=SCHEDULE, schedule_id=4),
    )

    failed = await recorder.catch_up()
    while_broken = await numbers(db)
    is_broken = False
    again = await recorder.catch_up()

    assert (failed, again) == (False, True)
    assert while_broken == []
    assert heard == [([activation(1)], [activation(1)])]
    assert sorted(await numbers(db)) == [1, 2]
    assert [row["schedule_id"] for row in await invocations(db)] == [None, 4]


async def test_what_was_printed_late_is_appended_to_the_call_that_printed_it(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id, other = await make_function(db), await make_function(db, name="other")
    with writing(folder) as writer:
        writer.append(record(1, function_id, log=log("in time")))
        writer.append(record(1, function_id, kind=LATE, log=log("in the same batch")))
        writer.append(record(2, function_id))
        await recorder.catch_up()
        writer.append(record(1, function_id, kind=LATE, log=log("!in a later batch")))
        writer.append(record(2, function_id, kind=LATE, log=log("x" * 5000)))
        writer.append(record(1, other, kind=LATE, log=log("of another function")))
        writer.append(record(99, function_id, kind=LATE, log=log("of no call")))
        await recorder.catch_up()

    assert await texts(db, recorder.logs) == [
        ("in time\nin the same batch\n", "!in a later batch\n", False, False),
        ("x" * 5000 + "\n", "", False, False),
    ]


async def test_logs_over_ten_megabytes_are_cut_there(db: Database, folder: Path, recorder: Recorder) -> None:
    function_id = await make_function(db)
    with writing(folder) as writer:
        writer.append(record(1, function_id, log=log("x" * (6 * 2**20))))
        await recorder.catch_up()
        writer.append(record(1, function_id, kind=LATE, log=log("y" * (6 * 2**20))))

        await recorder.catch_up()

    ((text, *_),) = await texts(db, recorder.logs)
    assert 10 * 2**20 <= len(text) <= loglines.MAX_TEXT_BYTES
    assert text.startswith("x")
    assert text.endswith("y")


async def test_a_function_keeps_its_newest_ten_thousand_calls_and_counts_all(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id = await make_function(db)
    with writing(folder, 8 * 2**20) as writer:
        for number in range(25_000):
            writer.append(record(number, function_id))
        while len(await minutes(db)) == 0 or (await minutes(db))[0]["invocations"] < 25_000:
            await recorder.catch_up()

    kept = await numbers(db)
    assert kept[-10_000:] == list(range(15_000, 25_000))
    assert len(kept) < 14_000


async def test_a_folder_without_news_costs_no_statement(db: Database, folder: Path, recorder: Recorder) -> None:
    function_id = await make_function(db)
    with writing(folder) as writer:
        writer.append(record(1, function_id))
        await recorder.catch_up()
        before = await spool_files(db)
        db.env.clock.advance(1000)  # type: ignore[attr-defined]

        for _ in range(5):
            await recorder.catch_up()

    assert await spool_files(db) == before


async def test_the_loop_records_until_it_is_cancelled(db: Database, folder: Path, recorder: Recorder) -> None:
    function_id = await make_function(db)
    task = asyncio.create_task(recorder.run())
    with writing(folder) as writer, recorder.changed.following(function_id) as follower:
        for number in range(3):
            writer.append(record(number, function_id))
            async with asyncio.timeout(20):
                await follower.notified.wait()
            follower.notified.clear()
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert await numbers(db) == [0, 1, 2]


async def test_deleting_a_function_forgets_its_calls_but_not_what_they_used(
    db: Database, folder: Path, recorder: Recorder
) -> None:
    function_id, other = await make_function(db), await make_function(db, name="other")
    write(folder, record(1, function_id), record(2, other))
    await recorder.catch_up()

    await db.write(lambda tx: records.delete_all_of(tx, 1, function_id))
    await db.write(lambda tx: records.delete_all_of(tx, 999, other))

    assert await numbers(db) == [2]
    assert len(await minutes(db)) == 2
