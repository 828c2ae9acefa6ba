"""What tests share: started servers, a clean store of each kind, the real application in process."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from sqlalchemy import create_engine
from tests import compiled, heavy_server
from tests.client import Client
from tests.postgres_server import KeptDatabase, PostgresServer, database_name, running_postgres
from tests.shared import SharedServers, group_of

from moorage import app as application
from moorage.accounts.identity import gate
from moorage.app import App
from moorage.core.audit import service as audit
from moorage.core.db.schema import metadata
from moorage.core.db.sqlite import SqliteDatabase
from moorage.core.db.store import Database
from moorage.core.env import Env
from moorage.core.http import route
from moorage.core.http.openapi import document as openapi
from moorage.core.http.route import Route
from moorage.core.kit.clock import ManualClock
from moorage.core.kit.crypto import KeyRing
from moorage.core.telemetry import Telemetry
from moorage.core.validated import SecretStr
from moorage.core.worker.pool import Worker
from moorage.products.functions import edge_client
from moorage.runtime.sandbox import heavy
from moorage.settings import Settings

# Tests are collected into memory to stay there: looking for garbage among them takes seconds and finds none.
gc.disable()

# A busy machine takes any time for an example; no test may depend on it.
hypothesis.settings.register_profile("everyday", deadline=None, max_examples=25)
hypothesis.settings.register_profile("all", deadline=None, max_examples=100)  # of `make test-all`
hypothesis.settings.load_profile("everyday")

# One process runs the tests that use PostgreSQL, so that one server is started.
POSTGRES = pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.group("postgres")])
LEFT_OUT = "(both_stores or not postgres)"  # part of the marker expression of `make test`
MEMORY = Path("/dev/shm")
SHARED = pytest.StashKey[SharedServers]()
NOBODY = "http://127.0.0.1:9"  # a code host that is not there: no test may ask the real one


def pytest_configure(config: pytest.Config) -> None:
    """Compile the code once: tests start hundreds of processes, and each would compile all that it imports.

    Some machines tell Python to keep nothing that it compiled, and a test may start a process as a user who cannot.
    """
    config.stash[SHARED] = SharedServers()
    if not hasattr(config, "workerinput"):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        compiled.compile_code(Path(application.__file__).parent)
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS:  # all of them
            compiled.compile_tests()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of a store on SQLite and on PostgreSQL.

    `make test` leaves out most tests on PostgreSQL, so they are not made: each process would collect 1,800 of them.
    """
    function = metafunc.definition
    marks = function.iter_markers("parametrize")
    if "db" not in metafunc.fixturenames or any("db" in str(mark.args[0]).split(",") for mark in marks):
        return
    is_left_out = LEFT_OUT in metafunc.config.option.markexpr and function.get_closest_marker("both_stores") is None
    metafunc.parametrize("db", ["sqlite"] if is_left_out else ["sqlite", POSTGRES], indirect=True)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its parameter: pytest writes the id of a test into its environment."""
    return argname if isinstance(val, str | bytes) and len(val) > 100 else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of a file in one process, so that its fixtures are set up once; a test may name another group."""
    for item in items:
        if item.get_closest_marker("group") is None:
            item.add_marker(pytest.mark.group(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop the servers of a group after its last test."""
    try:
        yield
    finally:
        if group_of(item) != group_of(nextitem):
            item.config.stash[SHARED].stop()


def pytest_collection_finish() -> None:
    """Do not look through thousands of collected tests for garbage again and again while they run."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def documents() -> Iterator[None]:
    """Make the document of the same routes once: it takes far longer than all else that an application is built of."""
    made: dict[Any, dict[str, Any]] = {}
    make = openapi.document

    def document(
        routes: Iterable[Route], *, version: str, server: str, tag_order: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        shown = tuple(routes)
        # A handler that is defined anew for every application is the same one if its code and all else is.
        told = tuple(tuple({**vars(route), "handler": route.handler.__code__}.values()) for route in shown)
        key = (told, version, server, tag_order)
        if key not in made:
            made[key] = make(shown, version=version, server=server, tag_order=tag_order)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi, "document", document)
        yield


@pytest.fixture(scope="session", autouse=True)
def routes() -> Iterator[None]:
    """Read the same handler once: applications are built for thousands of tests, and all of them have the same ones."""
    read: dict[Any, Route] = {}
    declare = route.declare

    def declared(method: str, path: str, handler: Callable[..., Any], **options: Any) -> Route:
        # What a route is made of; a handler that is defined anew for every application has the same.
        told = (handler.__code__, handler.__name__, handler.__doc__, *handler.__annotations__.items())
        key = (method, path, told, *options.items())
        if key not in read:
            read[key] = declare(method, path, handler, **options)
        # As `dataclasses.replace` does, which takes a third of the time in which an application is built.
        copied = object.__new__(Route)
        vars(copied).update(vars(read[key]), handler=handler)
        return copied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "declare", declared)
        yield


@pytest.fixture(scope="session", autouse=True)
def used_tokens_are_noted_soon() -> Iterator[None]:
    """Do not wait, at the end of a test that used a token, for others that could be noted in the same write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "LAST_USED_DELAY_S", 0.001)
        yield


@pytest.fixture(scope="module", autouse=True)
def forked_heavy_processes() -> Iterator[None]:
    """Fork low-priority processes from one that has done their imports: the uploads of each test start one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heavy, "_start", heavy_server.start)
        yield


@pytest.fixture(scope="session", autouse=True)
def plain_tracebacks() -> None:
    """Let what is logged of a crash be plain: with source and variables in colour it takes half a second each time."""
    *processors, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> SharedServers:
    return pytestconfig.stash[SHARED]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests without a function gateway: nobody waits long for one that might just be starting again."""
    monkeypatch.setattr(edge_client, "CONNECT_TIMEOUT_S", 0.2)


def make_settings(**given: Any) -> Settings:
    usual = {"rate_limit": 1_000_000, "codehost_url": NOBODY}
    return Settings(_env_file=None, **{**usual, **given})


@pytest.fixture(scope="session")
def known_settings() -> dict[Any, Settings]:
    """Settings that were made before, by what they were made of: reading them takes longer than many tests do."""
    return {}


@pytest.fixture
def settings(tmp_path: Path, request: pytest.FixtureRequest, known_settings: dict[Any, Settings]) -> Settings:
    """Settings of a test. Mark a test with `@pytest.mark.settings(billing="manual")` to change some."""
    marker = request.node.get_closest_marker("settings")
    given = {"data": tmp_path / "data", **(marker.kwargs if marker else {})}
    key = frozenset((name, value) for name, value in given.items() if name != "data")
    if key not in known_settings:
        known_settings[key] = make_settings(**given)
    return known_settings[key].model_copy(update={"data": given["data"]})


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


@pytest.fixture(scope="session")
def stores() -> Iterator[Path]:
    """Where files of stores are, in memory if there is such a folder: a test that ends its store waits for no disk."""
    with tempfile.TemporaryDirectory(prefix="moorage-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
async def db(request: pytest.FixtureRequest, env: Env, stores: Path) -> AsyncIterator[Database]:
    """A clean store. `make test-all` runs each test on SQLite and on PostgreSQL.

    `make test` uses PostgreSQL only for tests of the store, which carry `@pytest.mark.both_stores`.
    """
    path = stores / "moorage.db"
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        store: Database = SqliteDatabase(path, env)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        store = server.borrow_database(request.getfixturevalue("postgres_template"), env)
    await store.write(audit.ensure_key)
    yield store
    if isinstance(store, KeptDatabase):
        server.return_database(store)
    else:
        store.close()
        path.unlink()


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
