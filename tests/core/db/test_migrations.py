"""Migrations: they create exactly the declared schema, from every revision, and never a part of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Integer, MetaData, create_engine, text
from tests.postgres_server import PostgresServer

import moorage.app  # noqa: F401 - brings every table into the metadata
from moorage.core.db import migrate, new_store
from moorage.core.db.migrations import HEAD, versions
from moorage.core.db.schema import metadata
from moorage.core.kit.crypto import KeyRing
from moorage.errors import CannotStart

# Read from the names of the files: importing them would take a second of each process of the tests.
REVISIONS = sorted(path.name[:4] for path in Path(versions.__path__[0]).glob("0*.py"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.group("postgres"))])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        engine = migrate._sqlite_engine(tmp_path / "store.db")
        yield engine
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create_database()
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        yield engine
        server.drop_database(url)
    engine.dispose()


def upgrade(engine: Any, to: str, ring: KeyRing | None = None) -> None:
    config = migrate.configuration()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        config.attributes["ring"] = ring
        command.upgrade(config, to)


def test_the_newest_revision_is_the_one_that_the_start_looks_for() -> None:
    script = ScriptDirectory.from_config(migrate.configuration())

    assert [found.revision for found in script.walk_revisions()][::-1] == REVISIONS
    assert REVISIONS[-1] == HEAD


@pytest.mark.parametrize(
    "start",
    [
        start if start in (REVISIONS[0], REVISIONS[-2]) else pytest.param(start, marks=pytest.mark.twin)
        for start in REVISIONS
    ],
)
def test_migrations_from_every_revision_make_the_schema_that_the_code_declares(engine: Any, start: str) -> None:
    upgrade(engine, start)
    upgrade(engine, "head")

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_links_that_were_made_before_origins_are_recognised(engine: Any) -> None:
    upgrade(engine, "0007")
    with engine.begin() as connection:
        before = MetaData()
        before.reflect(connection, only=["database", "vault_secret"])
        database, secret = before.tables["database"], before.tables["vault_secret"]
        usual: dict[str, Any] = {
            column.name: False if isinstance(column.type, Boolean) else 0 if isinstance(column.type, Integer) else ""
            for column in database.c
            if not column.nullable
        }
        for number, deleted_at in ((7, None), (8, 1)):
            row = {"id": number, "org_id": 1, "project_id": number, "name": "orders", "secret_name": "DATABASE_URL"}
            connection.execute(database.insert(), {**usual, **row, "deleted_at": deleted_at})
        for resource, name in (("project:7", "DATABASE_URL"), ("project:7", "TOKEN"), ("project:8", "DATABASE_URL")):
            values = {"org_id": 1, "resource": resource, "name": name, "ciphertext": "", "updated_at": 0}
            connection.execute(secret.insert(), values)

    upgrade(engine, "head")

    with engine.connect() as connection:
        rows = connection.execute(text("SELECT resource, name FROM vault_secret WHERE origin = 'database:7'"))
        assert rows.fetchall() == [("project:7", "DATABASE_URL")]
        assert connection.execute(text("SELECT count(*) FROM vault_secret WHERE origin IS NULL")).scalar() == 2


@pytest.mark.boundary("role-to-role", "An upgrade ends the tokens and invitations that removed members left behind.")
def test_tokens_and_invitations_of_removed_members_are_revoked_by_the_upgrade(engine: Any) -> None:
    upgrade(engine, "0007")
    with engine.begin() as connection:
        before = MetaData()
        before.reflect(connection, only=["account", "organization", "membership", "api_token", "invitation"])
        tables = before.tables

        def add(name: str, **row: Any) -> None:
            usual: dict[str, Any] = {
                column.name: False
                if isinstance(column.type, Boolean)
                else 0
                if isinstance(column.type, Integer)
                else ""
                for column in tables[name].c
                if not column.nullable
            }
            connection.execute(tables[name].insert(), {**usual, **row})

        add("organization", id=1, slug="harbor")
        for user, role in ((1, "owner"), (2, "admin"), (3, None)):
            add("account", id=user, email=f"{user}@example.com")
            if role is not None:
                add("membership", id=user, org_id=1, user_id=user, role=role)
            add("api_token", id=user, org_id=1, user_id=user, hash=f"{user}")
            for number, offered in ((user * 10, "owner"), (user * 10 + 1, "viewer")):
                add("invitation", id=number, org_id=1, invited_by=user, role=offered, status="pending")

    upgrade(engine, "head")

    with engine.connect() as connection:
        valid = connection.execute(text("SELECT id FROM api_token WHERE revoked_at IS NULL ORDER BY id"))
        assert valid.scalars().all() == [1, 2]
        pending = connection.execute(text("SELECT id FROM invitation WHERE status = 'pending' ORDER BY id"))
        assert pending.scalars().all() == [10, 11, 21]


def test_names_that_are_served_already_do_not_count_against_the_budget_of_certificates(engine: Any) -> None:
    upgrade(engine, "0012")
    with engine.begin() as connection:
        before = MetaData()
        before.reflect(connection, only=["project", "preview", "custom_domain"])

        def add(table: str, **row: Any) -> None:
            usual: dict[type, Any] = {Boolean: False, Integer: 0}
            values = {
                column.name: next((value for kind, value in usual.items() if isinstance(column.type, kind)), "")
                for column in before.tables[table].c
                if not column.nullable
            }
            connection.execute(before.tables[table].insert(), {**values, **row})

        add("project", id=1, org_id=7, name="harbor")
        for number, status in ((1, "active"), (2, "closed")):
            add("preview", id=number, org_id=7, project_id=1, number=number, name=f"harbor-pr-{number}", status=status)
        for number, status in ((1, "verified"), (2, "pending")):
            add("custom_domain", id=number, org_id=7, project_id=1, domain=f"{number}.example.com", status=status)

    upgrade(engine, "head")

    with engine.connect() as connection:
        rows = connection.execute(text("SELECT kind, name, at FROM certificate_grant WHERE org_id = 7 ORDER BY id"))
        assert [tuple(row) for row in rows] == [
            ("subdomain", "harbor", 0),
            ("subdomain", "harbor-pr-1", 0),
            ("domain", "1.example.com", 0),
        ]


def add_function(engine: Any, env: str) -> None:
    """Add a function with variables as releases before 0016 stored them, and a secret of the platform."""
    with engine.begin() as connection:
        before = MetaData()
        before.reflect(connection, only=["function", "vault_secret"])
        function, secret = before.tables["function"], before.tables["vault_secret"]
        usual: dict[str, Any] = {
            column.name: False if isinstance(column.type, Boolean) else 0 if isinstance(column.type, Integer) else ""
            for column in function.c
            if not column.nullable
        }
        connection.execute(function.insert(), {**usual, "id": 7, "org_id": 3, "name": "hello", "env": env})
        stored = {"org_id": 0, "resource": "platform", "name": "audit", "updated_at": 0}
        connection.execute(secret.insert(), {**stored, "ciphertext": RING.encrypt("x", place="0/platform/audit")})


RING = KeyRing((b"k" * 32,))
VARIABLES = '[{"name":"TOKEN","value":"of-the-harbor"}]'


@pytest.mark.parametrize("start", ["0007", "0015"])
def test_variables_of_functions_move_to_the_vault(engine: Any, start: str) -> None:
    upgrade(engine, start)
    add_function(engine, VARIABLES)

    upgrade(engine, "head", RING)

    with engine.connect() as connection:
        rows = connection.execute(text("SELECT org_id, resource, name, ciphertext FROM vault_secret WHERE org_id = 3"))
        (row,) = rows.fetchall()
    assert tuple(row)[:3] == (3, "function-env:7", "env")
    assert RING.decrypt(row.ciphertext, place="3/function-env:7/env") == VARIABLES


@pytest.mark.parametrize("ring", [None, KeyRing((b"another key" * 4,))], ids=["none", "another"])
def test_variables_are_not_encrypted_under_a_key_that_is_not_the_store_s(engine: Any, ring: KeyRing | None) -> None:
    upgrade(engine, "0015")
    add_function(engine, VARIABLES)

    with pytest.raises(CannotStart, match=r"master key|MASTER_KEY"):
        upgrade(engine, "head", ring)

    with engine.connect() as connection:
        assert connection.execute(text("SELECT env FROM function")).scalar() == VARIABLES


def test_no_variable_is_left_in_the_file_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    engine = migrate._sqlite_engine(path)
    upgrade(engine, "0015")
    add_function(engine, json.dumps([{"name": "TOKEN", "value": "of-the-harbor" * 1000}]))
    assert b"of-the-harbor" in path.read_bytes()

    upgrade(engine, "head", RING)
    engine.dispose()

    assert b"of-the-harbor" not in path.read_bytes()


def test_migrations_leave_no_table_that_gives_out_ids_of_deleted_rows(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    migrate.upgrade_sqlite(path, tmp_path / "snapshots")
    with sqlite3.connect(path) as connection:
        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())

    declared = [name for name, table in metadata.tables.items() if table.dialect_kwargs.get("sqlite_autoincrement")]
    assert [name for name in declared if "AUTOINCREMENT" not in tables[name].upper()] == []


def test_a_migration_that_is_killed_half_way_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    program = (
        "import os, sys; from pathlib import Path; from moorage.core.db import migrate; from sqlalchemy import event\n"
        "engine = migrate._sqlite_engine(Path(sys.argv[1])); seen = []\n"
        "def count(conn, cursor, statement, *rest):\n"
        "    seen.append(statement)\n"
        "    if len(seen) > 12: os.kill(os.getpid(), 9)\n"
        "event.listen(engine, 'after_cursor_execute', count)\n"
        "migrate._upgrade(engine, None)\n"
    )

    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)

    assert killed.returncode == -9
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    migrate.upgrade_sqlite(path, tmp_path / "snapshots")
    assert migrate.sqlite_revision(path) == HEAD


def test_a_new_store_has_the_tables_that_all_migrations_make(tmp_path: Path) -> None:
    migrate.run_migrations(tmp_path / "migrated.db")
    migrate.upgrade_sqlite(tmp_path / "new.db", tmp_path / "snapshots")

    scripts = [new_store.script_of(tmp_path / name) for name in ("migrated.db", "new.db")]
    assert scripts == [new_store.SCRIPT.read_text()] * 2, "`make docs` writes the script again"


def test_migrations_write_no_rows_that_a_new_store_would_lack(tmp_path: Path) -> None:
    migrate.run_migrations(tmp_path / "store.db")

    with sqlite3.connect(tmp_path / "store.db") as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = {name for name in names if connection.execute(f'SELECT 1 FROM "{name}"').fetchone()}
    assert {name for name in filled if not name.startswith("sqlite_")} == {"alembic_version"}


def test_a_new_store_that_cannot_be_completed_has_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.sql"
    broken.write_text(new_store.SCRIPT.read_text() + "INSERT INTO nowhere VALUES (1);\n")
    path = tmp_path / "store.db"

    with monkeypatch.context() as patched:
        patched.setattr(new_store, "SCRIPT", broken)
        with pytest.raises(sqlite3.OperationalError):
            migrate.upgrade_sqlite(path, tmp_path / "snapshots")

    assert migrate.sqlite_revision(path) is None
    migrate.upgrade_sqlite(path, tmp_path / "snapshots")
    assert migrate.sqlite_revision(path) == HEAD


def test_a_store_that_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    migrate.upgrade_sqlite(path, tmp_path / "snapshots")
    before = path.stat().st_mtime_ns

    assert migrate.upgrade_sqlite(path, tmp_path / "snapshots") == HEAD

    assert path.stat().st_mtime_ns == before
    assert not (tmp_path / "snapshots").exists()


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    migrate.upgrade_sqlite(path, tmp_path / "snapshots")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(migrate.NewerStore, match="9999"):
        migrate.upgrade_sqlite(path, tmp_path / "snapshots")


def test_what_was_there_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    migrate.upgrade_sqlite(path, tmp_path / "snapshots")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(migrate.NewerStore):
        migrate.upgrade_sqlite(path, tmp_path / "snapshots")

    copies = list((tmp_path / "snapshots").iterdir())
    assert [copy.name for copy in copies] == [f"before-{HEAD}-from-9999.db"]
    with sqlite3.connect(copies[0]) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)


@pytest.mark.boundary("code-to-host", "Log text from before the log files is brought within the quotas at the upgrade.")
def test_of_log_text_in_rows_the_oldest_beyond_a_quota_is_deleted(engine: Any) -> None:
    upgrade(engine, "0014")
    add_log_texts(engine, [(1, 60), (1, 60), (2, 10), (3, 100)])
    script = ScriptDirectory.from_config(migrate.configuration()).get_revision("0014").module

    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        script.delete_over_quota(100, 165)

    expected = [("!quota", None), ("!quota", None), (None, 10), (None, 100)]
    assert log_texts(engine) == expected


@pytest.mark.deep
@pytest.mark.boundary("code-to-host", "Log text from before the log files is brought within the quotas at the upgrade.")
def test_log_text_in_rows_stays_readable_within_the_quotas_and_the_oldest_of_the_rest_goes(engine: Any) -> None:
    upgrade(engine, "0007")
    add_log_texts(engine, [(1, 60_000_000), (1, 60_000_000), (2, 1000)])

    upgrade(engine, "head")

    assert log_texts(engine) == [("!quota", None), (None, 60_000_000), (None, 1000)]


def add_log_texts(engine: Any, sizes: list[tuple[int, int]]) -> None:
    """Add an invocation for each function and size of its log text."""
    is_sqlite = engine.dialect.name == "sqlite"
    zeros, false = ("zeroblob({})", "0") if is_sqlite else ("decode(repeat('00', {}), 'hex')", "false")
    with engine.begin() as connection:
        for function_id, size in sizes:
            connection.exec_driver_sql(
                "INSERT INTO invocation (org_id, function_id, version, activation_id, door, started_at, duration_us, "
                f"wait_us, cold, ok, logs) VALUES (7, {function_id}, 1, 'a', 'web', 0, 0, 0, {false}, {false}, "
                f"{zeros.format(size)})"
            )


def log_texts(engine: Any) -> list[tuple[str | None, int | None]]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT log_ref, length(logs) FROM invocation ORDER BY id").fetchall()
    return [(row[0], row[1]) for row in rows]


def test_a_store_that_a_migration_emptied_gives_its_disk_space_back(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    upgrade(made := migrate._sqlite_engine(path), "0007")
    made.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE filler (data BLOB)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(8000000))")
        connection.execute("DROP TABLE filler")
        connection.commit()

    migrate.upgrade_sqlite(path, tmp_path / "snapshots")

    assert path.stat().st_size < 2_000_000
