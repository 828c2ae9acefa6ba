"""Ingest of a real gateway's access log, including its rotations."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.products.analytics.support import Log, hours, make_ingest, make_project, requests, top, visitors

from moorage.core.db.store import Database
from moorage.core.kit.clock import SystemClock
from moorage.gateway import caddy
from moorage.gateway.config.hosts import HostConfig
from moorage.gateway.sites import publish
from moorage.products.analytics.tables import PATH, REFERRER
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

HOST = "harbor.localhost"


@pytest.fixture
def clock() -> SystemClock:
    """The system clock, because the gateway logs the system time."""
    return SystemClock()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return settings.model_copy(update={"gateway_port": probe.getsockname()[1]})


def write_config(settings: Settings) -> Path:
    """Write the gateway's configuration with the smallest log rotation size."""
    path = caddy.write_config(settings, HostConfig(logged=frozenset({HOST})))
    made = json.loads(path.read_text())
    made["logging"]["logs"]["access"]["writer"] |= {"roll_size_mb": 1, "roll_keep": 10}
    path.write_text(json.dumps(made))
    return path


@asynccontextmanager
async def running_gateway(settings: Settings) -> AsyncIterator[str]:
    argv = [str(caddy.find_caddy()), "run", "--config", str(write_config(settings))]
    process = await asyncio.create_subprocess_exec(*argv, env=caddy.environment(settings))
    try:
        async with asyncio.timeout(30):
            while not await caddy.is_ready(settings):
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{settings.gateway_port}"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
async def test_requests_to_the_real_gateway_are_counted_across_its_own_rotations(db: Database, tmp_path: Path) -> None:
    settings, log = db.env.settings, Log(db)
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "index.html").write_text("hello")
    publish(settings, HOST, tmp_path / "release")
    project = await make_project(db)

    async with running_gateway(settings) as address, aiohttp.ClientSession(address, headers={"Host": HOST}) as client:
        await client.get("/?token=secret", headers={"Referer": "https://news.example.com/a?b=c"})
        await client.get("/missing.txt")
        await client.get("/", headers={"Host": "other.localhost"})
        await make_ingest(db).catch_up()
        first = await requests(db, project)
        for _ in range(320):  # Each line has more than 7 kB, so that 2 MB fill fast.
            await client.get("/", headers={"User-Agent": "x" * 7_000})
        rotated = list(log.folder.glob("access-*.log"))
        await client.get("/")
    await make_ingest(db).catch_up()

    assert first == 2
    assert len(rotated) == 2
    assert [path.name for path in log.folder.glob("access*")] == ["access.log"]
    assert await top(db, project, PATH) == {"/": 322, "/missing.txt": 1}
    assert await top(db, project, REFERRER) == {"news.example.com": 1}
    assert await visitors(db, project) == 2
    found = await hours(db, project)
    assert [sum(getattr(hour, name) for hour in found) for name in ("s2xx", "s4xx")] == [322, 1]
    assert sum(hour.bytes for hour in found) >= 322 * len("hello")
