"""Public databases: TLS only, and not blocked by connections without a login."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pymysql
import pytest
from tests.products.databases.backup_support import KINDS, Yard, yard_of
from tests.products.databases.support import Team
from tests.runtime.sandbox.sandbox_support import outside_address

from moorage.app import App
from moorage.core.kit.clock import ManualClock
from moorage.products.databases.tables import Database

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.settings(
        mode="production",
        master_key=os.urandom(32).hex(),
        session_secret=os.urandom(32).hex(),
        base_url="https://api.example.com",
        engine_substitution="any",
    ),
]

CROWD = 200
TLS_REQUESTS = {
    "postgresql": struct.pack("!II", 8, 80877103),
    "mysql": bytes([32, 0, 0, 1]) + struct.pack("<II", 0x0200 | 0x0800 | 0x8000, 1 << 24) + bytes(24),
}


@pytest.fixture
async def yard(team: Team, app: App, clock: ManualClock, run_jobs: Callable[[], Any]) -> AsyncIterator[Yard]:
    async with yard_of(team, app, clock, run_jobs) as made:
        yield made


def log_in(found: Database, password: str, host: str, *, tls: bool) -> bool:
    """Log in, and return whether the server says that the session is encrypted."""
    options: dict[str, Any] = {"host": host, "port": found.port, "user": found.username, "password": password}
    if found.engine == "postgresql":
        mode = "require" if tls else "disable"
        with psycopg.connect(**options, dbname=found.db_name, sslmode=mode, connect_timeout=20) as connection:
            row = connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
            assert row is not None
            return bool(row[0])
    client = pymysql.connect(
        **options,
        database=found.db_name,
        ssl={"verify_mode": "none"} if tls else None,
        ssl_disabled=not tls,
        connect_timeout=20,
    )
    with client, client.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        row = cursor.fetchone()
        assert row is not None
        return bool(row[1])


class Crowd:
    """Connections that never log in, from one address."""

    def __init__(self, port: int, host: str, says: bytes = b"") -> None:
        self._held = contextlib.ExitStack()
        for _ in range(CROWD):
            sock = self._held.enter_context(socket.create_connection((host, port), timeout=20))
            with contextlib.suppress(ConnectionError):
                sock.sendall(says)

    def close(self) -> None:
        self._held.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.boundary(
    "stranger-to-platform", "A public database accepts connections from other machines with TLS only."
)
async def test_a_public_database_takes_connections_from_other_addresses_with_tls_only(yard: Yard, kind: str) -> None:
    found = await yard.make(kind, visibility="public")
    password, outside = await yard.password(), outside_address()

    def attempt(host: str, tls: bool) -> str:
        try:
            return f"in, tls={log_in(found, password, host, tls=tls)}"
        except (psycopg.OperationalError, pymysql.err.OperationalError) as error:
            return str(error)

    plain = await asyncio.to_thread(attempt, outside, False)
    encrypted = await asyncio.to_thread(attempt, outside, True)
    here = await asyncio.to_thread(attempt, "127.0.0.1", False)
    here_encrypted = await asyncio.to_thread(attempt, "127.0.0.1", True)

    assert "accepts connections from outside with TLS only" in plain
    assert (encrypted, here, here_encrypted) == ("in, tls=True", "in, tls=False", "in, tls=True")


@pytest.mark.deep
async def test_a_server_that_starts_again_has_its_proxy_again(yard: Yard) -> None:
    found = await yard.make(visibility="public")
    password, outside = await yard.password(), outside_address()
    await yard.servers.stop(await yard.primary())

    await yard.settle()

    assert await asyncio.to_thread(log_in, found, password, outside, tls=True) is True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.boundary("stranger-to-platform", "Connections that do not log in lock nobody out of a public database.")
async def test_silent_connections_lock_neither_the_owner_nor_the_platform_out(yard: Yard, kind: str) -> None:
    found = await yard.make(kind, visibility="public")
    password, outside = await yard.password(), outside_address()

    crowd = await asyncio.to_thread(Crowd, found.port, outside)
    same_address = await asyncio.to_thread(log_in, found, password, outside, tls=True)
    app = await asyncio.to_thread(log_in, found, password, "127.0.0.1", tls=False)
    version = await asyncio.to_thread(yard.servers.kind(found).version, await access(yard, found))
    crowd.close()

    assert (same_address, app) == (True, False)
    assert version


@pytest.mark.parametrize("kind", KINDS)
async def test_connections_that_stop_before_they_log_in_leave_room_for_others(yard: Yard, kind: str) -> None:
    found = await yard.make(kind, visibility="public")
    password, outside = await yard.password(), outside_address()

    crowd = await asyncio.to_thread(Crowd, found.port, outside, TLS_REQUESTS[kind])
    app = await asyncio.to_thread(log_in, found, password, "127.0.0.1", tls=False)
    version = await asyncio.to_thread(yard.servers.kind(found).version, await access(yard, found))
    crowd.close()

    assert app is False
    assert version


@pytest.mark.deep
async def test_the_public_url_asks_for_tls(yard: Yard) -> None:
    await yard.make("postgresql", visibility="public")

    read = await yard.team.read()

    assert read["publicUrl"].endswith("/orders?sslmode=require")
    assert read["privateUrl"].endswith("/orders")


async def access(yard: Yard, found: Database) -> Any:
    return await yard.servers.access(found, await yard.primary())
