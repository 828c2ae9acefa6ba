"""Every line of the access log counts exactly once, despite failures."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.products.analytics.support import (
    Log,
    addresses,
    hours,
    line,
    make_ingest,
    make_project,
    requests,
    visitors,
)

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.telemetry import Telemetry
from moorage.products.analytics import ingest as ingest_module
from moorage.products.analytics.counting import Owner
from moorage.products.analytics.ingest import Ingest, find_own_host
from moorage.products.analytics.lines import Hit
from moorage.products.analytics.log_files import BATCH_LINES, CHUNK_BYTES

pytestmark = pytest.mark.anyio
# File handling does not depend on the database.
any_store = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture
def log(db: Database) -> Log:
    return Log(db)


class Killed(BaseException):
    """Simulates the death of a process."""


async def test_lines_are_counted_as_they_come(db: Database, log: Log) -> None:
    project = await make_project(db)
    reader = make_ingest(db)

    counts = []
    for _ in range(3):
        log.visit(2)
        await reader.catch_up()
        counts.append(await requests(db, project))

    assert counts == [2, 4, 6]


@any_store
async def test_without_a_log_there_is_nothing_to_count(db: Database) -> None:
    project = await make_project(db)

    await make_ingest(db).catch_up()

    assert await hours(db, project) == []


@any_store
async def test_a_line_is_counted_once_its_end_is_written(db: Database, log: Log) -> None:
    project = await make_project(db)
    text = line(log.now())
    reader = make_ingest(db)

    log.write(text, text[:50])
    await reader.catch_up()
    before = await requests(db, project)
    log.write(text[50:])
    await reader.catch_up()

    assert (before, await requests(db, project)) == (1, 2)


async def test_a_new_reader_goes_on_where_the_last_one_stopped(db: Database, log: Log) -> None:
    project = await make_project(db)

    for _ in range(4):
        log.visit(3)
        await make_ingest(db).catch_up()

    assert await requests(db, project) == 12
    assert await visitors(db, project) == 1


@any_store
async def test_a_burst_is_counted_in_batches(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.visit(3 * BATCH_LINES + 7)

    await make_ingest(db).catch_up()

    assert await requests(db, project) == 3 * BATCH_LINES + 7


@pytest.mark.parametrize("batch", [1, 4])
async def test_a_reader_that_is_killed_in_a_batch_neither_loses_nor_doubles_a_line(
    db: Database, log: Log, batch: int
) -> None:
    project = await make_project(db)
    log.visit(3 * BATCH_LINES + 7)
    asked = 0

    def find_until_killed(tx: Tx, host: str) -> tuple[int, int] | None:
        nonlocal asked
        asked += 1
        if asked == batch:
            raise Killed
        return find_own_host(tx, host)

    with pytest.raises(Killed):
        await make_ingest(db, find_until_killed).catch_up()
    before = await requests(db, project)
    await make_ingest(db).catch_up()

    assert before == (batch - 1) * BATCH_LINES
    assert await requests(db, project) == 3 * BATCH_LINES + 7


async def test_a_reader_that_is_cancelled_anywhere_can_be_used_again(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.visit(5 * BATCH_LINES)
    reader = make_ingest(db)

    for turns in range(1, 30, 4):
        task = asyncio.create_task(reader.catch_up())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    await reader.catch_up()

    assert await requests(db, project) == 5 * BATCH_LINES


async def test_two_readers_of_one_log_count_each_line_once(db: Database, log: Log) -> None:
    project = await make_project(db)
    one, other = make_ingest(db), make_ingest(db)
    log.visit(4 * BATCH_LINES + 1)

    await asyncio.gather(one.catch_up(), other.catch_up())
    log.visit(10)
    await asyncio.gather(one.catch_up(), other.catch_up())

    assert await requests(db, project) == 4 * BATCH_LINES + 11


async def test_machines_that_share_a_store_count_a_visitor_of_both_once(db: Database, log: Log, tmp_path: Path) -> None:
    project = await make_project(db)
    elsewhere = db.env.settings.model_copy(update={"data": tmp_path / "elsewhere"})
    for address in addresses(2 * BATCH_LINES):
        log.visit(ip=address)
    elsewhere.folder("logs").mkdir(parents=True)
    (elsewhere.folder("logs") / "access.log").write_bytes(log.path.read_bytes())

    readers = make_ingest(db), Ingest(db, elsewhere, Telemetry(quiet=True), find_own_host)
    await asyncio.gather(*(reader.catch_up() for reader in readers))

    assert await requests(db, project) == 4 * BATCH_LINES
    assert await visitors(db, project) == 2 * BATCH_LINES


async def test_what_was_written_before_a_rotation_is_counted_and_the_old_file_removed(db: Database, log: Log) -> None:
    project = await make_project(db)
    reader = make_ingest(db)
    log.visit(3)
    await reader.catch_up()

    log.visit(2)
    old = log.rotate()
    log.visit(4, ip="198.51.100.1")
    await reader.catch_up()

    assert await requests(db, project) == 9
    assert not old.exists()
    assert log.path.exists()


@any_store
async def test_rotations_while_nobody_read_are_all_counted(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.visit(1)
    await make_ingest(db).catch_up()

    for number in range(4):
        log.visit(10**number, ip=f"198.51.100.{number}")
        log.rotate(f"2026-01-0{number + 1}T00-00-00.000-size")
    await make_ingest(db).catch_up()

    assert await requests(db, project) == 1 + 1111
    assert [path.name for path in log.folder.glob("access*")] == []


async def test_a_reader_that_is_killed_between_two_files_counts_the_first_one_once(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.visit(5)
    log.rotate()
    log.visit(7, host="killer.localhost")

    def find_until_killed(tx: Tx, host: str) -> tuple[int, int] | None:
        if host == "killer.localhost":
            raise Killed
        return find_own_host(tx, host)

    with pytest.raises(Killed):
        await make_ingest(db, find_until_killed).catch_up()
    log.visit(2)
    await make_ingest(db).catch_up()

    assert await requests(db, project) == 7


@any_store
async def test_the_last_line_of_a_rotated_file_needs_no_end(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.write(line(log.now()), line(log.now()).rstrip("\n"))
    log.rotate()

    await make_ingest(db).catch_up()

    assert await requests(db, project) == 2


@any_store
async def test_a_log_that_is_cut_and_written_anew_is_read_from_its_start(db: Database, log: Log) -> None:
    project = await make_project(db)
    reader = make_ingest(db)
    log.visit(5)
    await reader.catch_up()

    os.truncate(log.path, 0)
    await reader.catch_up()
    log.visit(8, ip="198.51.100.1")
    await reader.catch_up()

    assert await requests(db, project) == 13


@any_store
async def test_a_log_that_is_copied_and_then_cut_is_counted_once(db: Database, log: Log) -> None:
    project = await make_project(db)
    reader = make_ingest(db)
    log.visit(5)
    await reader.catch_up()
    log.visit(2)

    (log.folder / "access.log.1").write_bytes(log.path.read_bytes())
    await reader.catch_up()
    os.truncate(log.path, 0)
    log.visit(3, ip="198.51.100.1")
    await reader.catch_up()

    assert await requests(db, project) == 10


@any_store
async def test_garbage_is_passed_over(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.write("garbage\n", "\n", line(log.now())[:100] + "\n", "\0" * 5000 + "\n", '{"ts":1}\n')
    log.visit(2)
    log.write("x" * (CHUNK_BYTES + 100) + "\n")
    log.visit(3)

    await make_ingest(db).catch_up()

    assert await requests(db, project) == 5


async def test_only_projects_with_analytics_are_counted(db: Database, log: Log) -> None:
    counted = await make_project(db, name="harbor")
    silent = await make_project(db, name="quiet", analytics=False)
    for host in ("harbor.localhost", "quiet.localhost", "unknown.localhost", "localhost", "harbor.example.com", ""):
        log.visit(host=host)

    await make_ingest(db).catch_up()

    assert await requests(db, counted) == 1
    assert await hours(db, silent) == []


async def test_another_consumer_is_told_of_every_project_whether_it_has_analytics_or_not(
    db: Database, log: Log
) -> None:
    counted = await make_project(db, name="harbor")
    silent = await make_project(db, name="quiet", analytics=False)
    told: dict[int, list[str]] = {}

    def note(tx: Tx, owned: Mapping[Owner, list[Hit]]) -> None:
        told.update({project_id: [hit.path for hit in hits] for (_, project_id), hits in owned.items()})

    for host, uri in (("harbor", "/a"), ("quiet", "/b"), ("unknown", "/c"), ("harbor", "/d"), ("quiet", "/e")):
        log.visit(host=f"{host}.localhost", uri=uri)
    await make_ingest(db, also=[note]).catch_up()

    assert told == {counted.id: ["/a", "/d"], silent.id: ["/b", "/e"]}
    assert (await requests(db, counted), await hours(db, silent)) == (2, [])


async def test_what_a_consumer_could_not_take_is_given_to_it_again(db: Database, log: Log) -> None:
    project = await make_project(db)
    log.visit(2 * BATCH_LINES + 7)
    taken: list[int] = []

    def take(tx: Tx, owned: Mapping[Owner, list[Hit]]) -> None:
        if len(taken) == 1 and "failed" not in seen:
            seen.add("failed")
            raise ConnectionError("the store is away")
        count = sum(map(len, owned.values()))
        tx.after_commit(lambda: taken.append(count))

    seen: set[str] = set()
    reader = make_ingest(db, also=[take])
    with pytest.raises(ConnectionError):
        await reader.catch_up()
    before = await requests(db, project)
    await reader.catch_up()

    assert (before, await requests(db, project)) == (BATCH_LINES, 2 * BATCH_LINES + 7)
    assert taken == [BATCH_LINES, BATCH_LINES, 7]


async def test_a_domain_of_its_own_counts_for_the_project(db: Database, log: Log) -> None:
    project = await make_project(db)

    def find_host(tx: Tx, host: str) -> tuple[int, int] | None:
        return (project.org_id, project.id) if host == "www.example.com" else find_own_host(tx, host)

    log.visit(2, host="WWW.example.com:443")
    log.visit(3)
    await make_ingest(db, find_host).catch_up()

    assert await requests(db, project) == 5
    assert await visitors(db, project) == 1


@any_store
async def test_the_loop_counts_until_it_is_cancelled(db: Database, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "POLL_S", 0.01)
    project = await make_project(db)
    log.visit(2)

    task = asyncio.create_task(make_ingest(db).run())
    async with asyncio.timeout(20):
        while await requests(db, project) < 2:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()


@any_store
async def test_the_loop_outlives_a_store_that_is_away(db: Database, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "POLL_S", 0.01)
    project = await make_project(db)
    log.visit(2)
    failures = 3

    def find_host(tx: Tx, host: str) -> tuple[int, int] | None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ConnectionError("the store is away")
        return find_own_host(tx, host)

    task = asyncio.create_task(make_ingest(db, find_host).run())
    async with asyncio.timeout(20):
        while await requests(db, project) < 2:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})

    assert await requests(db, project) == 2
