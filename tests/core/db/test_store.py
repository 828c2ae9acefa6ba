"""The database: durability, isolation of units of work, and unique key violations, on each dialect."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Boolean, Column, select

from moorage.accounts.identity.tables import platform_fact
from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar
from moorage.core.db.schema import id_column, metadata, table, text
from moorage.core.db.sqlite import MAX_KEPT_RESULTS, SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, UniqueClash
from moorage.core.env import Env

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

_f = platform_fact.c
ADD: Query[int] = Query(platform_fact.insert().returning(_f.id), scalar, sets=("name", "value", "updated_at"))
ADD_ONCE: Query[int] = Query(insert_or_ignore(platform_fact), scalar, sets=("name", "value", "updated_at"))
NAMES: Query[str] = Query(select(_f.name).order_by(_f.id), scalar)
VALUE: Query[str] = Query(select(_f.value).where(_f.name == arg("name")), scalar)


def add(tx: Tx, name: str) -> int:
    return tx.one(ADD, name=name, value="x", updated_at=tx.now)


async def names(db: Database) -> list[str]:
    return await db.read(lambda tx: tx.all(NAMES))


async def test_a_unit_that_raises_leaves_nothing_behind(db: Database) -> None:
    def unit(tx: Tx) -> None:
        add(tx, "a")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await db.write(unit)

    assert await names(db) == []


async def test_one_unit_of_a_group_that_raises_does_not_undo_the_others(db: Database) -> None:
    def unit(number: int) -> object:
        def run(tx: Tx) -> int:
            added = add(tx, f"n{number}")
            if number % 3 == 0:
                raise ValueError(number)
            return added

        return db.write(run)

    outcomes = await asyncio.gather(*(unit(number) for number in range(30)), return_exceptions=True)  # type: ignore[call-overload]

    kept = {f"n{number}" for number in range(30) if number % 3}
    assert set(await names(db)) == kept
    assert sum(isinstance(outcome, ValueError) for outcome in outcomes) == 10


async def test_a_taken_key_is_a_clash_and_the_unit_may_go_on_after_a_savepoint(db: Database) -> None:
    await db.write(lambda tx: add(tx, "a"))

    def unit(tx: Tx) -> bool:
        try:
            with tx.savepoint():
                add(tx, "a")
        except UniqueClash:
            add(tx, "b")
            return True
        return False

    assert await db.write(unit) is True
    assert await names(db) == ["a", "b"]


async def test_inserting_or_ignoring_says_whether_it_inserted(db: Database) -> None:
    row = {"name": "a", "value": "x", "updated_at": 1}

    first = await db.write(lambda tx: tx.find(ADD_ONCE, **row))
    second = await db.write(lambda tx: tx.find(ADD_ONCE, **row))

    assert first is not None
    assert second is None


async def test_what_was_written_is_read_by_whoever_asks_next(db: Database) -> None:
    for number in range(20):
        await db.write(lambda tx, number=number: add(tx, f"n{number}"))  # type: ignore[misc]
        peeked = await db.peek(lambda tx: tx.all(NAMES))
        assert peeked[-1] == f"n{number}"


async def test_a_wake_up_is_called_after_the_commit_and_not_when_the_unit_fails(db: Database) -> None:
    called: list[str] = []

    def good(tx: Tx) -> None:
        tx.after_commit(lambda: called.append("good"))

    def bad(tx: Tx) -> None:
        tx.after_commit(lambda: called.append("bad"))
        raise RuntimeError

    await db.write(good)
    with pytest.raises(RuntimeError):
        await db.write(bad)

    assert called == ["good"]


async def test_a_caller_that_goes_away_does_not_undo_its_unit(db: Database) -> None:
    task = asyncio.create_task(db.write(lambda tx: add(tx, "a")))
    await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with asyncio.timeout(10):
        while await names(db) != ["a"]:
            await asyncio.sleep(0.01)
    assert await names(db) == ["a"]


async def test_a_forgotten_parameter_is_named(db: Database) -> None:
    with pytest.raises(TypeError, match="updated_at"):
        await db.write(lambda tx: tx.one(ADD, name="a", value="x"))


async def test_ids_of_deleted_rows_do_not_come_back(db: Database) -> None:
    remove = Command(platform_fact.delete().where(_f.id == arg("id")))
    first = await db.write(lambda tx: add(tx, "a"))
    await db.write(lambda tx: tx.run(remove, id=first))

    second = await db.write(lambda tx: add(tx, "b"))

    assert second > first


async def test_concurrent_writers_lose_no_update(db: Database) -> None:
    await db.write(lambda tx: add(tx, "counter"))
    bump = Command(
        platform_fact.update().where(_f.name == "counter").values(updated_at=_f.updated_at + 1),
    )

    await asyncio.gather(*(db.write(lambda tx: tx.run(bump)) for _ in range(50)))

    counted = Query(select(_f.updated_at).where(_f.name == "counter"), scalar)
    assert await db.read(lambda tx: tx.one(counted)) == db.env.clock.now() + 50


async def test_a_reader_cannot_write_to_sqlite(sqlite_template: Path, env: Env, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    db = SqliteDatabase(path, env)

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await db.read(lambda tx: add(tx, "a"))

    db.close()


async def test_every_acknowledged_unit_survives_in_the_file(sqlite_template: Path, env: Env, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    db = SqliteDatabase(path, env)

    await asyncio.gather(*(db.write(lambda tx, n=n: add(tx, f"n{n}")) for n in range(200)))  # type: ignore[misc]

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as other:
        assert other.execute("SELECT count(*) FROM platform_fact").fetchone() == (200,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_booleans_come_back_as_booleans_from_sqlite() -> None:
    sample = table("test_boolean_sample", id_column(), text("name"), Column("on", Boolean))
    try:
        query = Query(select(*columns(sample)), tuple)
        assert query.compiled("sqlite").booleans == (2,)
        assert query.compiled("postgresql").booleans == ()
    finally:
        metadata.remove(sample)


async def test_a_store_that_is_closed_right_after_a_read_leaves_nothing_to_fail_later(
    sqlite_template: Path, env: Env, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    db = SqliteDatabase(path, env)
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))

    await db.peek(lambda tx: tx.all(NAMES))
    db.close()
    await asyncio.sleep(0.01)

    assert failures == []


async def test_reads_of_one_turn_see_one_moment_and_the_next_turn_sees_what_was_written(
    sqlite_template: Path, env: Env, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    db = SqliteDatabase(path, env)

    before = db.peek_now(lambda tx: tx.all(NAMES))
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO platform_fact (name, value, updated_at) VALUES ('a', 'x', 1)")
    same_turn = db.peek_now(lambda tx: tx.all(NAMES))
    await asyncio.sleep(0)
    next_turn = db.peek_now(lambda tx: tx.all(NAMES))

    assert (before, same_turn, next_turn) == ([], [], ["a"])
    db.close()


async def test_kept_results_end_with_the_next_commit_of_any_connection(
    sqlite_template: Path, env: Env, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    db = SqliteDatabase(path, env)
    read_values: list[str | None] = []

    async def peek_twice() -> None:
        for _ in range(2):
            read_values.append(db.peek_now(lambda tx: tx.find(VALUE, name="a")))
            await asyncio.sleep(0)

    await peek_twice()
    await db.write(lambda tx: add(tx, "a"))
    await peek_twice()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE platform_fact SET value = 'y'")
    await peek_twice()

    assert read_values == [None, None, "x", "x", "y", "y"]
    db.close()


async def test_the_number_of_kept_results_is_bounded(sqlite_template: Path, env: Env, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    db = SqliteDatabase(path, env)

    for number in range(MAX_KEPT_RESULTS * 2):
        db.peek_now(lambda tx, number=number: tx.find(VALUE, name=f"n{number}"))  # type: ignore[misc]

    assert len(db._inline._results) <= MAX_KEPT_RESULTS
    db.close()


async def test_commits_with_changes_are_counted_where_one_process_writes(db: Database) -> None:
    if db.commits is None:
        assert db.dialect == "postgresql"
        return
    before = db.commits.count

    await db.read(lambda tx: tx.all(NAMES))
    await db.write(lambda tx: tx.all(NAMES))
    unchanged = db.commits.count
    await db.write(lambda tx: add(tx, "a"))

    assert (unchanged, db.commits.count) == (before, before + 1)
