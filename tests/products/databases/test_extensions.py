"""The list of a database's extensions, and what the ones that connect to other servers reach."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import psycopg
import pytest
from tests.conftest import RunJobs
from tests.products.databases.backup_support import Yard, yard_of
from tests.products.databases.support import Team

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.kit.clock import ManualClock

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("db", ["sqlite"], indirect=True)]

PASSWORD_REQUIRED, CANNOT_CONNECT = "2F003", "08001"


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: RunJobs) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


async def test_viewers_list_the_extensions_of_a_running_database(yard: Yard) -> None:
    await yard.make()
    await yard.ask("CREATE EXTENSION pg_stat_statements")

    reply = await yard.team.get("/orders/extensions", Role.VIEWER)

    items = {item.pop("name"): item for item in reply.data["items"]}
    assert list(items) == sorted(items)
    assert items["pg_stat_statements"] == {
        "description": "track planning and execution statistics of all SQL statements executed",
        "defaultVersion": "1.10",
        "installedVersion": "1.10",
        "available": True,
        "reason": None,
    }
    assert (items["hstore"]["available"], items["hstore"]["installedVersion"]) == (True, None)
    assert (items["file_fdw"]["available"], items["postgis"]["defaultVersion"]) == (False, None)


async def test_a_mysql_database_has_no_extensions(yard: Yard) -> None:
    await yard.make("mysql")

    assert (await yard.team.get("/orders/extensions")).data == {"items": []}


async def test_the_extensions_of_a_database_that_does_not_run_or_answer_are_a_conflict(team: Team) -> None:
    await team.create()
    pending = await team.get("/orders/extensions")
    await team.set_running()
    unreachable = await team.get("/orders/extensions")

    assert [pending.status, unreachable.status] == [409, 409]
    assert (await team.get("/nothing/extensions")).status == 404


@pytest.mark.boundary("tenant-to-tenant", "A foreign data wrapper reaches no other database and no other service.")
async def test_a_foreign_server_reaches_the_own_database_with_a_password_and_nothing_else(yard: Yard) -> None:
    made = await yard.make()
    login = f"user '{made.username}', password '{await yard.password()}'"
    service = socket.create_server(("127.0.0.1", 0))
    service.setblocking(False)

    async def count(host: str, port: int, options: str) -> object:
        """Return the rows of a foreign table, or the SQLSTATE of the error."""
        statements = (
            "DROP SERVER IF EXISTS away CASCADE",
            f"CREATE SERVER away FOREIGN DATA WRAPPER postgres_fdw "
            f"OPTIONS (host '{host}', port '{port}', dbname '{made.db_name}', connect_timeout '3')",
            f"CREATE USER MAPPING FOR CURRENT_USER SERVER away OPTIONS ({options})",
            "CREATE FOREIGN TABLE far (n int) SERVER away OPTIONS (table_name 'near')",
            "SELECT count(*) FROM far",
        )
        try:
            return (await yard.ask(*statements))[0][0]
        except psycopg.Error as error:
            return error.sqlstate

    await yard.ask("CREATE EXTENSION postgres_fdw", "CREATE TABLE near (n int)", "INSERT INTO near VALUES (1)")
    own = await count("127.0.0.1", made.port, login)
    without_password = [
        await count("127.0.0.1", made.port, f"user '{made.username}'"),
        await count("/data/run", made.port, "user 'moorage'"),
    ]
    outside = [
        await count("127.0.0.1", service.getsockname()[1], login),
        await count(str(yard.team.db.env.settings.folder("run")), made.port, login),
        await count("169.254.169.254", 80, login),
    ]

    assert (own, without_password, outside) == (1, [PASSWORD_REQUIRED] * 2, [CANNOT_CONNECT] * 3)
    with service, pytest.raises(BlockingIOError):
        service.accept()
