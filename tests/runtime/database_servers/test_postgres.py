"""PostgreSQL servers of both majors: the contract, and privileges of users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from tests.runtime.database_servers.server_contract import ServerContract
from tests.runtime.database_servers.server_support import (
    POSTGRESQL,
    POSTGRESQL_14,
    Lab,
    Server,
    a_lab,
    find_software,
    rows,
    until,
)

from moorage.runtime.database_servers.ports import REPLICATOR, Primary
from moorage.runtime.engines.ports import Address


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module", params=[POSTGRESQL, pytest.param(POSTGRESQL_14, marks=pytest.mark.twin)])
def server(lab: Lab, request: pytest.FixtureRequest) -> Server:
    return lab.start(find_software(request.param))


class TestPostgreSQL(ServerContract):
    """The contract of every server."""


@pytest.mark.parametrize("database", ["postgres", "template0", "template1"])
def test_a_user_enters_no_database_but_their_own(server: Server, database: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        server.connect(database=database)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_read_file('/etc/passwd')",
        "COPY (SELECT 1) TO PROGRAM 'cat'",
        "COPY (SELECT 1) TO '/tmp/out'",
        "ALTER SYSTEM SET work_mem = '1GB'",
        "CREATE ROLE another LOGIN",
        "CREATE DATABASE another",
        "ALTER ROLE moorage PASSWORD 'x'",
        "SET ROLE moorage",
        "CREATE EXTENSION file_fdw",
    ],
)
def test_a_user_cannot_leave_their_database(server: Server, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        server.ask(statement)


def test_a_user_owns_their_database_and_its_schema(server: Server) -> None:
    server.ask("CREATE SCHEMA own", "CREATE EXTENSION hstore", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")

    server.kind.provision(server.access, server.names, None)

    assert server.ask("SELECT count(*) FROM pg_namespace WHERE nspname IN ('own', 'public')") == [(2,)]


def test_the_database_is_not_known_to_have_been_a_template(server: Server) -> None:
    found = server.ask(
        "SELECT datistemplate, shobj_description(oid, 'pg_database'), pg_encoding_to_char(encoding), datallowconn "
        "FROM pg_database WHERE datname = current_database()"
    )

    assert found == [(False, None, "UTF8", True)]


def test_a_database_is_made_also_where_the_one_to_rename_is_gone(server: Server) -> None:
    with contextlib.closing(server.connect()):
        other = Server(server.lab, server.software, server.folder, server.options, admin=server.admin)
        other.names = type(server.names)("second", "second-password", "second db")

        server.kind.provision(server.access, other.names, None)

    assert other.ask("CREATE TABLE t (n int)", "SELECT current_user") == [("second",)]


def test_while_read_only_a_user_deletes_by_saying_so_and_adds_nothing_else(server: Server) -> None:
    server.ask("CREATE TABLE full_ (n int)", "INSERT INTO full_ VALUES (1)")
    session = server.connect()

    server.kind.set_read_only(server.access, server.names, True)

    with pytest.raises(psycopg.OperationalError):
        rows(session, "SELECT 1")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        server.ask("INSERT INTO full_ VALUES (2)")
    server.ask("BEGIN READ WRITE", "DELETE FROM full_", "COMMIT")
    assert server.ask("SELECT count(*) FROM full_") == [(0,)]
    server.kind.set_read_only(server.access, server.names, False)
    server.ask("INSERT INTO full_ VALUES (3)")
    assert server.ask("SELECT count(*) FROM pg_db_role_setting") == [(0,)]


def test_saying_read_only_again_ends_nobodys_session(server: Server) -> None:
    server.kind.set_read_only(server.access, server.names, True)
    with contextlib.closing(server.connect()) as session:
        server.kind.set_read_only(server.access, server.names, True)

        assert rows(session, "SELECT 1") == [(1,)]
    server.kind.set_read_only(server.access, server.names, False)


def test_no_password_and_no_statement_is_in_the_log(server: Server) -> None:
    with pytest.raises(psycopg.Error):
        server.ask("SELECT 'a-secret-in-a-statement'::int")
    server.kind.set_password(server.access, server.names)

    said = server.log()

    assert "a-secret" not in said
    assert server.names.password not in said
    assert server.admin not in said


def test_a_replica_follows_and_then_goes_on_by_itself(lab: Lab, server: Server) -> None:
    server.kind.provision(server.access, server.names, "secret:of\\replicas")
    server.stop()
    copy = lab.new(server.software, primary=Primary(Address(server.options.port), "secret:of\\replicas"), number=2)
    copy.copy_of(server)
    server.start()

    copy.start()
    server.ask("CREATE TABLE followed (n int)", "INSERT INTO followed VALUES (5)")
    until(lambda: copy.ask("SELECT to_regclass('followed') IS NOT NULL") == [(True,)], "what the primary has")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        copy.ask("INSERT INTO followed VALUES (6)")
    copy.stop()
    copy.be(primary=None)
    copy.start()

    copy.ask("INSERT INTO followed VALUES (6)")
    assert copy.ask("SELECT n FROM followed ORDER BY n") == [(5,), (6,)]
    assert copy.timeline() > server.timeline()
    copy.stop()


def test_the_user_of_replicas_can_do_nothing_else(server: Server) -> None:
    server.kind.provision(server.access, server.names, "secret-of-replicas")

    with pytest.raises(psycopg.OperationalError):
        server.connect(user=REPLICATOR, password="secret-of-replicas")


def test_pieces_of_the_log_are_archived_and_replayed(lab: Lab, server: Server) -> None:
    first = lab.new(server.software, archives=True)
    first.fill()
    first.start()
    first.settle()
    later = lab.new(server.software, is_open=False)
    first.stop()
    later.copy_of(first)
    first.start()
    first.ask("CREATE TABLE archived (n int)", "INSERT INTO archived VALUES (1)")
    moment_ms = first.now_ms()
    first.ask("INSERT INTO archived VALUES (2)")
    first.archive_log()

    later.recover(first.folder / "archive", moment_ms)
    later.start()

    assert later.kind.count_rows(later.access, first.names)["public.archived"] == 1
    first.stop()
    later.stop()
