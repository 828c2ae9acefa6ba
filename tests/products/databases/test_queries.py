"""Queries and tables over the API: roles, limits, errors, the activity feed and the state of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.client import Reply
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, yard_of
from tests.products.databases.support import Team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.tx import move
from moorage.core.kit.clock import ManualClock
from moorage.products.databases.queries import service as queries
from moorage.products.databases.states import DATABASE, DatabaseStatus

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


async def query(team: Team, sql: str, role: Role = Role.MEMBER, **given: Any) -> Reply:
    return await team.post("/orders/query", role, json={"sql": sql, **given})


async def activity(team: Team) -> list[Any]:
    items = (await team.api.get("/v1/activity", token=team.tokens[Role.OWNER])).data["items"]
    return [item for item in items if item["action"].startswith("database.query")]


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_members_read_and_admins_write(yard: Yard, kind: str) -> None:
    team = yard.team
    await yard.make(kind)
    await yard.ask("CREATE TABLE boat (id int PRIMARY KEY, name varchar(20))", "INSERT INTO boat VALUES (1, 'Ada')")

    read = await query(team, "SELECT id, name FROM boat")
    refused = await query(team, "DELETE FROM boat", write=True)
    written = await query(team, "DELETE FROM boat", Role.ADMIN, write=True)
    viewer = await query(team, "SELECT 1", Role.VIEWER)

    assert [each.status for each in (read, refused, written, viewer)] == [200, 403, 200, 403]
    duration = read.data.pop("durationMs")
    assert (isinstance(duration, int), [column["name"] for column in read.data["columns"]]) == (True, ["id", "name"])
    assert (read.data["rows"], read.data["rowCount"], read.data["truncated"]) == ([[1, "Ada"]], 1, False)
    assert (written.data["columns"], written.data["rows"], written.data["rowCount"]) == ([], [], 1)
    assert await yard.ask("SELECT count(*) FROM boat") == [(0,)]


async def test_the_activity_feed_has_each_statement_without_passwords(yard: Yard) -> None:
    await yard.make()
    await query(yard.team, "SELECT nope")
    await query(yard.team, "CREATE TABLE t AS SELECT 'pass-1' AS password", Role.ADMIN, write=True)
    await query(yard.team, "SELECT '" + "x" * 5000 + "'")

    long, written, failed = await activity(yard.team)

    assert (failed["action"], failed["details"]["statement"]) == ("database.query_read", "SELECT nope")
    assert (written["action"], written["details"]["statement"]) == (
        "database.query_written",
        "CREATE TABLE t AS SELECT '***' AS password",
    )
    assert len(long["details"]["statement"]) < 2100


async def test_an_error_of_the_server_names_its_place(yard: Yard) -> None:
    await yard.make()

    reply = await query(yard.team, "SELECT 1, nope")

    assert (reply.status, reply.error["code"]) == (400, "bad_request")
    assert reply.error["message"] == 'Column "nope" does not exist'
    assert reply.error["fields"] == {"sql": 'Column "nope" does not exist', "sqlState": "42703", "position": "11"}


async def test_the_tables_of_a_database(yard: Yard) -> None:
    await yard.make()
    await yard.ask('CREATE SCHEMA "odd name"', 'CREATE TABLE "odd name"."t %" (id int PRIMARY KEY)')

    listed = await yard.team.get("/orders/tables")
    found = await yard.team.get("/orders/tables/odd%20name/t%20%25")
    absent = await yard.team.get("/orders/tables/public/nothing")
    rows = await query(yard.team, found.data["selectSql"])

    assert [(item["schema"], item["name"], item["kind"]) for item in listed.data["items"]] == [
        ("odd name", "t %", "table")
    ]
    assert found.data["columns"] == [
        {"name": "id", "type": "integer", "nullable": False, "default": None, "primaryKey": True, "comment": None}
    ]
    assert [index["columns"] for index in found.data["indexes"]] == [["id"]]
    assert (absent.status, rows.status) == (404, 200)
    assert (await yard.team.get("/orders/tables", Role.VIEWER)).status == 403


async def test_a_database_that_does_not_run_or_answer_is_a_conflict(team: Team) -> None:
    await team.create()
    pending = await query(team, "SELECT 1")
    running = await team.set_running()
    silent = await query(team, "SELECT 1")
    await team.db.write(lambda tx: move(tx, DATABASE, running, to=DatabaseStatus.STOPPED))
    stopped = [await query(team, "SELECT 1"), await team.get("/orders/tables"), await team.get("/orders/tables/a/b")]

    assert (pending.status, pending.error["message"]) == (
        409,
        "The database is pending; this needs one that is running",
    )
    assert (silent.status, silent.error["message"]) == (409, "The database does not answer now; try again in a moment")
    assert {(each.status, each.error["message"]) for each in stopped} == {
        (409, "The database is stopped; this needs one that is running")
    }
    assert (await team.post("/nothing/query", json={"sql": "SELECT 1"})).status == 404


@pytest.mark.parametrize("sql", ["", "  ", "SELECT '\x00'", "x" * 65_537, 7, None])
async def test_a_bad_statement_is_refused_before_it_is_sent(team: Team, sql: Any) -> None:
    await team.create()

    reply = await team.post("/orders/query", json={"sql": sql})

    assert (reply.status, list(reply.error["fields"])) == (400, ["sql"])


async def test_a_fourth_statement_at_once_is_refused(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_PER_DATABASE", 1)
    await yard.make()
    slow = asyncio.create_task(query(yard.team, "SELECT pg_sleep(1)"))
    while not (await yard.ask("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"))[0][0]:
        await asyncio.sleep(0.01)

    refused = await query(yard.team, "SELECT 1")

    assert (refused.status, (await slow).status) == (429, 200)
    assert (await query(yard.team, "SELECT 1")).status == 200


async def test_a_stranger_finds_no_database(team: Team, stranger: Team) -> None:
    await team.create()
    await team.set_running()

    replies = [await query(stranger, "SELECT 1"), await stranger.get("/orders/tables")]

    assert [each.status for each in replies] == [404, 404]
    assert await activity(team) == []
