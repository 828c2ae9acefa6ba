"""What tests share: started servers, a clean store of each kind, the real application in process."""

from __future__ import annotations

import gc
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine
from tests.client import Client
from tests.postgres_server import PostgresServer, database_name, running_postgres

from moorage import app as application
from moorage.app import App
from moorage.audit import service as audit
from moorage.db.schema import metadata
from moorage.db.sqlite import SqliteDatabase
from moorage.db.store import Database
from moorage.env import Env
from moorage.kit.clock import ManualClock
from moorage.kit.crypto import KeyRing
from moorage.settings import Settings
from moorage.telemetry import Telemetry
from moorage.worker.pool import Worker

NOBODY = "http://127.0.0.1:9"  # a code host that is not there: no test may ask the real one

try:
    from _pytest.nodeid import NodeId
except ImportError:  # An older pytest reads `_nodeid` itself.
    NodeId = None  # type: ignore[assignment,misc]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of one `xdist_group` run in one process: xdist 3.8 notes the group where pytest 9.2 no longer looks."""
    for item in items:
        marked = getattr(item, "_nodeid", None)
        if NodeId is not None and marked and hasattr(item, "_id"):
            item._id = NodeId.parse(marked)


def pytest_collection_finish() -> None:
    """Do not look through thousands of collected tests for garbage again and again while they run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """Settings of a test. Mark a test with `@pytest.mark.settings(billing="manual")` to change some."""
    marker = request.node.get_closest_marker("settings")
    usual = {"data": tmp_path / "data", "rate_limit": 1_000_000, "codehost_url": NOBODY}
    given: dict[str, Any] = {**usual, **(marker.kwargs if marker else {})}
    return Settings(_env_file=None, **given)  # type: ignore[call-arg]


@pytest.fixture
def env(settings: Settings, clock: ManualClock) -> Env:
    return Env.make(settings, clock, KeyRing((b"k" * 31 + b"1",)), b"s" * 32)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """The name of a database with all tables, to copy."""
    url = postgres.create_database()
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    metadata.create_all(engine)
    engine.dispose()
    return database_name(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tables, to copy."""
    path = tmp_path_factory.mktemp("store") / "template.db"
    engine = create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    engine.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    return path


@pytest.fixture(params=["sqlite", "postgres"])
async def db(request: pytest.FixtureRequest, env: Env, tmp_path: Path) -> AsyncIterator[Database]:
    """A clean store; every test that takes it runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        path = tmp_path / "moorage.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        store: Database = SqliteDatabase(path, env)
    else:
        from moorage.db.postgres import PostgresDatabase

        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.borrow_database(request.getfixturevalue("postgres_template"))
        store = PostgresDatabase(url, env)
    await store.write(audit.ensure_key)
    yield store
    store.close()
    if request.param == "postgres":
        server.return_database(url)


@pytest.fixture
async def app(db: Database) -> AsyncIterator[App]:
    built = application.build(db, Telemetry(quiet=True))
    yield built
    await built.close()


@pytest.fixture
def api(app: App) -> Client:
    return Client(app.asgi)


RunJobs = Callable[[], Awaitable[None]]


@pytest.fixture
def run_jobs(db: Database, app: App, clock: ManualClock) -> RunJobs:
    """Run every due job to its end, with a real worker that the test steps."""

    async def run() -> None:
        await Worker(db, app.handlers, Telemetry(quiet=True), slots=8).run_due(turns=20)

    return run


def secret(value: str) -> SecretStr:
    return SecretStr(value)
