"""Moves of real SQLite stores to a real PostgreSQL by the real command."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import BigInteger, Boolean, Float, Integer, LargeBinary, Table
from tests.command import fill, in_store, moorage, secret_of
from tests.platform.backup_support import kill_when, settings_for, tree
from tests.postgres_server import PostgresServer

from moorage.core.db.lock import FolderLock
from moorage.core.db.migrations import HEAD
from moorage.platform import opening
from moorage.platform.moving import source, store, target
from moorage.platform.moving.values import Summary

pytestmark = pytest.mark.group("postgres")

ODD_TEXTS = ("", "\\N", "\\.", 'a\tb\nc\rd\\e"f', "ä€😀\x01\x7f", "null", '{"a": [1, null]}', " x ")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database."""
    created = postgres.create_database()
    yield created
    postgres.drop_database(created)


@pytest.fixture
def store_file(data: Path) -> Path:
    return data / "store" / "moorage.db"


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type,unused-ignore]


def tables_of(url: str) -> list[str]:
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
    return [name for (name,) in rows(url, query)]


def contents(path: Path) -> dict[str, Summary]:
    """Return the number of rows of each table of an SQLite store."""
    with source.opened(settings_for(path.parents[1])) as connection:
        return {table.name: Summary(table.rows) for table in source.tables(connection)}


def odd_value(column: Any, number: int) -> Any:
    """Return a value at the edge of what a column can have."""
    if isinstance(column.type, Boolean):
        return number % 2
    if isinstance(column.type, LargeBinary):
        return bytes(range(256)) * (number % 3)
    if isinstance(column.type, Float):
        return (0.1, -1e300, 1 / 3)[number % 3]
    if isinstance(column.type, BigInteger):
        return (2**63 - 1 - number, -(2**63) + number, number)[number % 3]
    if isinstance(column.type, Integer):
        return (2**31 - 1 - number, number)[number % 2]
    return f"{ODD_TEXTS[number % len(ODD_TEXTS)]}{number}"


def fill_every_table(path: Path, count: int = 9) -> None:
    """Add rows with odd values to every table; references are left out, so the store has orphans."""
    with sqlite3.connect(path) as connection:
        for table in opening.all_tables():
            _add_odd_rows(connection, table, count)


def _add_odd_rows(connection: sqlite3.Connection, table: Table, count: int) -> None:
    columns = list(table.c)
    names = ", ".join(f'"{column.name}"' for column in columns)
    for number in range(count):
        values = [
            5000 + number
            if column.name == "id"
            else None
            if column.nullable and number == 8
            else odd_value(column, number)
            for column in columns
        ]
        marks = ", ".join("?" * len(columns))
        connection.execute(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', values)


def test_every_type_of_every_table_arrives_unchanged(
    data: Path, store_file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_every_table(store_file)
    before = contents(store_file)
    # The rows refer to nothing, which both stores would refuse otherwise.
    monkeypatch.setattr(source, "check_intact", lambda connection: None)
    create = target.Target.create_tables

    def create_without_references(self: target.Target) -> None:
        create(self)
        keys = self.connection.execute(
            "SELECT r.relname, k.conname FROM pg_constraint k JOIN pg_class r ON r.oid = k.conrelid "
            "WHERE k.contype = 'f'"
        ).fetchall()
        for key in keys:
            self.connection.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(*map(sql.Identifier, key)))

    monkeypatch.setattr(target.Target, "create_tables", create_without_references)

    moved = store.move(settings_for(data, database_url=url), print)

    assert moved.tables == len(before) == len(tables_of(url)) - 1
    with sqlite3.connect(store_file) as connection:
        for name in before:
            expected = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            names = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
            stored = rows(url, "SELECT " + ", ".join(f'"{each}"' for each in names) + f' FROM "{name}"')
            # Booleans equal 0 and 1.
            assert sorted(map(repr, [tuple(map(_plain, row)) for row in stored])) == sorted(map(repr, expected)), name


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def test_a_moved_platform_has_its_users_secrets_and_history(data: Path, store_file: Path, url: str) -> None:
    before = tree(data, "store/moorage.db", "artifacts", "keys")

    done = moorage("move", "--to-postgres", url, "--data", data)

    assert done.returncode == 0, done.stderr
    assert "MOORAGE_DATABASE_URL=" in done.stdout
    assert str(data / "store" / "moved") in done.stdout
    assert tree(data, "store/moorage.db", "artifacts", "keys") == before
    assert in_store(data, secret_of, database_url=url) == "hunter2"
    assert rows(url, "SELECT version_num FROM alembic_version") == [(HEAD,)]
    verified = moorage("audit", "verify", "--data", data, DATABASE_URL=url)
    assert verified.returncode == 0, verified.stderr
    assert not verified.stdout.startswith("all 0 rows")


def test_ids_of_deleted_rows_are_not_used_again(data: Path, store_file: Path, url: str) -> None:
    with sqlite3.connect(store_file) as connection:
        connection.execute("UPDATE sqlite_sequence SET seq = 4711 WHERE name = 'account'")
        (highest,) = connection.execute("SELECT max(id) FROM organization").fetchone()

    store.move(settings_for(data, database_url=url), print)

    query = "SELECT nextval(pg_get_serial_sequence('{}', 'id'))"
    assert rows(url, query.format("account")) == [(4712,)]
    assert rows(url, query.format("organization")) == [(highest + 1,)]
    assert rows(url, query.format("monitor")) == [(1,)]


def test_the_moved_store_has_all_constraints_of_a_new_one(data: Path, url: str, postgres: PostgresServer) -> None:
    query = (
        "SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"
    )
    fresh = postgres.create_database()
    opening.open_store(settings_for(data.parent / "other", database_url=fresh)).close()

    store.move(settings_for(data, database_url=url), print)

    assert rows(url, query) == rows(fresh, query)
    assert any(row[2] == "f" for row in rows(url, query))
    postgres.drop_database(fresh)


def test_values_that_postgres_cannot_store_are_all_named_and_nothing_is_copied(
    data: Path, store_file: Path, url: str
) -> None:
    with sqlite3.connect(store_file) as connection:
        (org_id,) = connection.execute("SELECT id FROM organization").fetchone()
        connection.execute("UPDATE organization SET name = 'har' || char(0) || 'bor' WHERE id = ?", (org_id,))
        connection.execute("UPDATE account SET email = cast(x'ff41' AS text) WHERE id = (SELECT min(id) FROM account)")
        connection.execute("UPDATE account SET created_at = 'soon' WHERE id = (SELECT max(id) FROM account)")

    done = moorage("move", "--to-postgres", url, "--data", data)

    assert done.returncode == 1
    assert f"table organization, row id = {org_id}: the column name contains the character NUL" in done.stderr
    assert "table account, row id = " in done.stderr
    assert tables_of(url) == []
    assert not (data / "store" / "moved").exists()


def test_a_row_that_refers_to_nothing_is_named(data: Path, store_file: Path, url: str) -> None:
    with sqlite3.connect(store_file) as connection:
        connection.execute("INSERT INTO artifact_ref (org_id, digest, owner) VALUES (1, 'missing', 'nobody')")

    done = moorage("move", "--to-postgres", url, "--data", data)

    assert done.returncode == 1
    assert "of the table artifact_ref refers to a missing row of artifact" in done.stderr
    assert tables_of(url) == []


@pytest.mark.parametrize(
    "held",
    ["another program", pytest.param("another platform", marks=pytest.mark.twin), "a platform that went on"],
)
def test_a_database_that_is_not_empty_is_left_alone(data: Path, url: str, held: str, tmp_path: Path) -> None:
    if held == "another program":
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id int)")
    elif held == "another platform":
        in_store(tmp_path / "other", fill, database_url=url)
    else:
        store.move(settings_for(data, database_url=url), print)
        (data / "store" / "moved").unlink()
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE account SET email = 'eve@example.com'")
    before = tables_of(url)

    done = moorage("move", "--to-postgres", url, "--data", data)

    assert done.returncode == 1
    assert "empty database" in done.stderr
    assert tables_of(url) == before
    assert not (data / "store" / "moved").exists()


CREATES_TABLES = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_xid IS NOT NULL"
)
COPIES_ROWS = "SELECT 1 FROM pg_stat_progress_copy WHERE datname = current_database()"


@pytest.mark.parametrize(
    "moment",
    [pytest.param(CREATES_TABLES, id="tables", marks=pytest.mark.twin), pytest.param(COPIES_ROWS, id="rows")],
)
def test_a_move_that_is_killed_in_the_middle_begins_anew(data: Path, store_file: Path, url: str, moment: str) -> None:
    add_artifacts(store_file, 60_000)
    before = store_file.read_bytes()
    with psycopg.connect(url, autocommit=True) as watching:
        code = kill_when(
            lambda: bool(watching.execute(moment).fetchall()),  # type: ignore[arg-type,unused-ignore]
            *("move", "--to-postgres", url, "--data", data),
        )
    _wait_until_alone(url)
    between = tables_of(url)

    again = moorage("move", "--to-postgres", url, "--data", data)

    assert (code, between) == (-signal.SIGKILL, [])
    assert again.returncode == 0, again.stderr
    assert store_file.read_bytes() == before
    assert in_store(data, secret_of, database_url=url) == "hunter2"
    assert rows(url, "SELECT count(*) FROM artifact") == [(60_000,)]


def add_artifacts(path: Path, count: int) -> None:
    """Add rows that refer to nothing."""
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO artifact (digest, size, copy, status, created_at) VALUES (?, 1, 'x', 'present', 1)",
            ((f"{number:064x}",) for number in range(count)),
        )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _wait_until_alone(url: str) -> None:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    deadline = time.monotonic() + 30
    while rows(url, query):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_move_that_was_killed_after_its_commit_is_completed(data: Path, url: str) -> None:
    store.move(settings_for(data, database_url=url), print)
    (data / "store" / "moved").unlink()  # as if the command had been killed just before it wrote this

    again = moorage("move", "--to-postgres", url, "--data", data)

    assert again.returncode == 0, again.stderr
    assert "an earlier move had copied" in again.stdout
    assert (data / "store" / "moved").exists()


def test_a_moved_store_is_not_used_by_mistake_and_a_deleted_mark_brings_it_back(data: Path, url: str) -> None:
    store.move(settings_for(data, database_url=url), print)

    refused = [
        moorage(*words, "--data", data)
        for words in (
            ("up",),
            ("audit", "verify"),
            ("backup", data.parent / "b.tar.gz"),
            ("move", "--to-postgres", url),
        )
    ]
    (data / "store" / "moved").unlink()
    back = moorage("audit", "verify", "--data", data)

    assert [done.returncode for done in refused] == [2, 2, 2, 2]
    assert all("MOORAGE_DATABASE_URL" in done.stderr for done in refused)
    assert back.returncode == 0, back.stderr


def test_a_platform_that_runs_is_not_moved(data: Path, url: str) -> None:
    lock = FolderLock(data / "store")

    done = moorage("move", "--to-postgres", url, "--data", data)

    lock.release()
    assert done.returncode == 2
    assert "in use by another Moorage" in done.stderr
    assert tables_of(url) == []


def test_a_store_of_another_version_has_to_be_migrated_first(data: Path, store_file: Path, url: str) -> None:
    with sqlite3.connect(store_file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0007'")

    done = moorage("move", "--to-postgres", url, "--data", data)

    assert done.returncode == 1
    assert "start and stop the platform once" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "say what to move"),
        (("--to-postgres", "mysql://x"), "should start with postgresql://"),
        (("--to-postgres", "postgresql://ada:secret@127.0.0.1:9/x"), "cannot use PostgreSQL at 127.0.0.1:9"),
        (("--to-s3", "https://x"), "should start with s3://"),
    ],
)
def test_bad_targets_are_explained_without_a_password(data: Path, words: tuple[str, ...], problem: str) -> None:
    done = moorage("move", *words, "--data", data)

    assert done.returncode in (1, 2)
    assert problem in done.stderr
    assert "secret" not in done.stderr + done.stdout


def test_a_folder_without_a_platform_is_not_moved(tmp_path: Path, url: str) -> None:
    done = moorage("move", "--to-postgres", url, "--data", tmp_path / "absent")

    assert done.returncode == 1
    assert "is --data right?" in done.stderr
    assert not (tmp_path / "absent").exists()
