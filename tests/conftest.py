"""What tests share: started servers, a clean store of each kind, the real application in process."""

from __future__ import annotations

import gc
import os
import re
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
from pydantic import SecretStr
from sqlalchemy import create_engine
from tests import compiled
from tests.client import Client
from tests.postgres_server import KeptDatabase, PostgresServer, database_name, running_postgres

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
from moorage.core.worker.pool import Worker
from moorage.products.functions import edge_client
from moorage.settings import Settings

# Tests are collected into memory to stay there: looking for garbage among them takes seconds and finds none.
gc.disable()

# A busy machine takes any time for an example; no test may depend on it.
hypothesis.settings.register_profile("moorage", deadline=None)
hypothesis.settings.load_profile("moorage")

MEMORY = Path("/dev/shm")
NOBODY = "http://127.0.0.1:9"  # a code host that is not there: no test may ask the real one

try:
    from _pytest.nodeid import NodeId
except ImportError:  # An older pytest reads `_nodeid` itself.
    NodeId = None  # type: ignore[assignment,misc]


def pytest_configure(config: pytest.Config) -> None:
    """Compile the code once: tests start hundreds of processes, and each would compile all that it imports.

    Some machines tell Python to keep nothing that it compiled, and a test may start a process as a user who cannot.
    """
    if not hasattr(config, "workerinput"):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        compiled.compile_code(Path(application.__file__).parent)
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS:  # all of them
            compiled.compile_tests(config)


# Tests that another stands for, by what is in their brackets: of one more kind or release of server, of one more
# moment, or on another store where it is not what is tested; and whole modules that take minutes, of what others prove
# piece by piece. `make test-all` runs them too.
TWINS = {
    "tests/products/analytics/": "postgres",
    "tests/products/apps/": "postgres",
    "tests/products/cronjobs/": "postgres",
    "tests/products/databases/": "(^|-)postgres(?!ql)",
    "tests/products/domains/": "postgres",
    "tests/products/functions/": "postgres",
    "tests/products/monitors/": "postgres",
    "tests/products/rules/": "postgres",
    "tests/products/schedules/": "postgres",
    "tests/accounts/webhooks/": "postgres",
    "tests/runtime/sandbox/test_run.py": "user",
    "tests/runtime/sandbox/test_run_streams.py": "user",
    "tests/runtime/workers/test_escapes_host.py": "user",
    "tests/runtime/workers/test_escapes_sockets.py": "user",
    "tests/runtime/engines/": "user",
    "tests/runtime/shim/": "user",
    "tests/core/artifacts/test_artifacts.py": "postgres",
    "tests/core/artifacts/test_collect.py": "postgres",
    "tests/runtime/workers/test_channel_attacks.py": "user",
    "tests/runtime/workers/test_escapes_resources.py": "user",
    "tests/runtime/workers/test_fairness.py": "user",
    "tests/runtime/workers/test_hulls.py": "user",
    "tests/runtime/workers/test_installer.py": "user",
    "tests/runtime/workers/test_installer_attacks.py": "user",
    "tests/runtime/workers/test_invoker.py": "user",
    "tests/runtime/workers/test_templates.py": "user",
    "tests/products/databases/test_backup_routes.py": "postgres",
    "tests/products/databases/test_disk.py": "mysql|postgres$",
    "tests/products/databases/test_lifecycle.py": "mysql",
    "tests/products/databases/test_metrics.py": "postgres",
    "tests/products/databases/test_public.py": "^postgres",
    "tests/products/databases/test_replicator.py": "mysql|-stop-|-start-|-_ensure_port-",
    "tests/products/databases/test_restore.py": "mysql|after_switch",
    "tests/e2e/test_apps_faults.py": "",
    "tests/e2e/test_apps_real.py": "",
    "tests/e2e/test_cronjobs_live.py": "",
    "tests/e2e/test_databases.py": "mysql",
    "tests/e2e/test_databases_faults.py": "50 ms|switched",
    "tests/e2e/test_projects_faults.py": "",
    "tests/accounts/identity/test_roles.py": "postgres",
    "tests/accounts/identity/test_stranger.py": "postgres",
    "tests/platform/test_database_copies.py": "mariadb",
    "tests/platform/test_killed_requests.py": "postgres",
    "tests/runtime/database_servers/test_postgres.py": r"postgresql-14\.",
}

# Tests that take long, by their names, in modules whose other tests prove the same promises in a quicker way.
# `make test-all` runs them too.
DEEP = {
    "tests/core/artifacts/test_collect.py": r"killed_again_and_again.*s3|race_with_collections.*s3",
    "tests/runtime/workers/test_installer.py": (
        "without_a_lock_file|not_pinned_is_looked_up|pipes_and_locked_folders|endlessly"
    ),
    "tests/runtime/workers/test_installer_attacks.py": (
        "requirement_files_that_are_named|wheel_of_the_upload|hides_its_script|became_a_link|install_script_changes"
    ),
    "tests/runtime/workers/test_templates.py": "its_deadline|printed_while_loading|end_with_their_revision",
    "tests/cli/test_cli_keys.py": r"UPDATE activity|given_key_is_rotated|\[(unsuspend|session|verify-card|approve)\]",
    "tests/products/cronjobs/test_runs.py": (
        "no_more_of_the_machine|while_the_platform_was_away|its_own_moment|cannot_be_run"
    ),
    "tests/products/databases/test_archiving.py": "again_and_again|pieces_go",
    "tests/products/databases/test_lifecycle.py": "starts_with_no_tier|is_taken_back|somebody_has_taken",
    "tests/products/databases/test_public.py": "starts_again_has_its_proxy|public_url_asks",
    "tests/products/databases/test_replicator.py": (
        "cut_short|dismissed|hangs|nothing_is_done|goes_on_alone|looks_at_every_pair"
    ),
    "tests/products/databases/test_restore.py": (
        "kept_twice|number_of_tables|between_the_row|goes_after_a_day|without_room"
    ),
    "tests/e2e/openapi/test_operations.py": "generated_calls",
    "tests/runtime/workers/test_fairness.py": r"\[none\]",
    "tests/e2e/test_databases_faults.py": "shim_is_killed|folder_vanished|outlive_the_platform",
    "tests/e2e/test_functions_failures.py": "node_uses_too_much_memory_of_its_heap|a_child_of_node_floods",
    "tests/e2e/test_functions_records.py": "over_many_crashes",
    "tests/e2e/test_monitors_live.py": "told_once_though|checks_go_on_where_they_were",
    "tests/products/functions/test_recorder_crashes.py": "at_any_line|again_and_again",
    "tests/bench/test_strangers_bench.py": "",
    "tests/runtime/sandbox/test_network_attacks.py": "hundreds_of_sandboxes|a_flood_of_connections",
    "tests/e2e/test_projects_github.py": "while_it_is_built|after_its_approval",
}


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark twins before any are chosen, and let tests of one `xdist_group` run in one process at last.

    xdist 3.8 notes the group where pytest 9.2 no longer looks.
    """
    for item in items:
        module, _, name = item.nodeid.partition("::")
        folder, brackets = f"{os.path.dirname(module)}/", name.partition("[")[2]
        tables = ((TWINS, module, brackets), (TWINS, folder, brackets), (DEEP, module, name))
        if any(re.search(table[key], text) for table, key, text in tables if key in table):
            item.add_marker("twin")
    yield
    for item in items:
        marked = getattr(item, "_nodeid", None)
        if NodeId is not None and marked and hasattr(item, "_id"):
            item._id = NodeId.parse(marked)


def pytest_collection_finish() -> None:
    """Do not look through thousands of collected tests for garbage again and again while they run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def documents() -> Iterator[None]:
    """Make the document of the same routes once: it takes far longer than all else that an application is built of."""
    made: dict[Any, dict[str, Any]] = {}
    make = openapi.document

    def document(routes: Iterable[Route], *, version: str, server: str) -> dict[str, Any]:
        shown = tuple(routes)
        # A handler that is defined anew for every application is the same one if its code and all else is.
        told = tuple(tuple({**vars(route), "handler": route.handler.__code__}.values()) for route in shown)
        key = (told, version, server)
        if key not in made:
            made[key] = make(shown, version=version, server=server)
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


@pytest.fixture(scope="session", autouse=True)
def plain_tracebacks() -> None:
    """Let what is logged of a crash be plain: with source and variables in colour it takes half a second each time."""
    *processors, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests without a function gateway: nobody waits long for one that might just be starting again."""
    monkeypatch.setattr(edge_client, "CONNECT_TIMEOUT_S", 0.2)


def make_settings(**given: Any) -> Settings:
    usual = {"rate_limit": 1_000_000, "codehost_url": NOBODY}
    return Settings(_env_file=None, **{**usual, **given})  # type: ignore[call-arg]


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


@pytest.fixture(params=["sqlite", "postgres"])
async def db(request: pytest.FixtureRequest, env: Env, stores: Path) -> AsyncIterator[Database]:
    """A clean store; every test that takes it runs on SQLite and on PostgreSQL."""
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
