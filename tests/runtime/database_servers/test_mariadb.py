"""MariaDB servers: the contract of every server, and the privileges of users."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from tests.runtime.database_servers.server_contract import ServerContract
from tests.runtime.database_servers.server_support import MARIADB, Lab, Server, a_lab, find_software, rows

from moorage.runtime.database_servers.mariadb.configuration import ENVIRONMENT, usable_connections
from moorage.runtime.database_servers.ports import DATA, REPLICATOR


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module")
def server(lab: Lab) -> Server:
    return lab.start(find_software(MARIADB))


class TestMariaDB(ServerContract):
    """The contract of every server."""


@pytest.mark.parametrize("database", ["mysql", "harXbour"])
def test_a_user_enters_no_database_but_their_own(server: Server, database: str) -> None:
    other = type(server.names)("another", "another-password", "harXbour")
    server.kind.provision(server.access, other, None)

    with pytest.raises(pymysql.OperationalError, match="1044"):
        server.connect(database=database)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 INTO OUTFILE '/tmp/out'",
        "CREATE USER another",
        "CREATE DATABASE another",
        "GRANT ALL ON *.* TO keeper_1@'%'",
        "SET GLOBAL max_connections = 1",
        "INSTALL SONAME 'auth_pam'",
        "SELECT * FROM mysql.global_priv",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE anything",
    ],
)
def test_a_user_cannot_leave_their_database(server: Server, statement: str) -> None:
    with pytest.raises(pymysql.MySQLError, match=r"denied|not allowed|1148|4166"):
        server.ask(statement)


def test_a_user_reads_no_file(server: Server) -> None:
    assert server.ask("SELECT load_file('/etc/passwd')") == [(None,)]


def test_the_stock_client_gets_utf8mb4_in_any_locale(server: Server) -> None:
    names = ["-h", "127.0.0.1", "-P", str(server.options.port), "-u", server.names.username, server.names.database]
    query = "SELECT @@character_set_client, @@character_set_results, @@collation_connection, char_length('⚓'), '⚓'"
    client = Path(server.software.tools) / "mariadb"

    done = subprocess.run(
        [client, "--no-defaults", "--skip-column-names", *names, "-e", query],
        env={"LC_ALL": "C", "MYSQL_PWD": server.names.password},
        capture_output=True,
        check=True,
    )

    assert done.stdout.decode().split() == ["utf8mb4", "utf8mb4", "utf8mb4_unicode_ci", "1", "⚓"]
    assert server.ask("SET NAMES latin1", "SELECT @@character_set_client") == [("latin1",)]


def test_text_is_stored_whole(server: Server) -> None:
    with contextlib.closing(server.connect()) as session:
        rows(session, "SET NAMES utf8mb4", "CREATE TABLE words (w text)", "INSERT INTO words VALUES ('⚓')")

        assert rows(session, "SELECT char_length(w) FROM words") == [(1,)]


def test_while_read_only_a_user_deletes_and_adds_nothing(server: Server) -> None:
    server.ask("CREATE TABLE full_ (n int)", "INSERT INTO full_ VALUES (1)")
    before = server.ask("SHOW GRANTS")
    session = server.connect()

    server.kind.set_read_only(server.access, server.names, True)

    with pytest.raises(pymysql.MySQLError):
        rows(session, "SELECT 1")
    for statement in ("INSERT INTO full_ VALUES (2)", "UPDATE full_ SET n = 2", "CREATE TABLE more (n int)"):
        with pytest.raises(pymysql.OperationalError, match="denied"):
            server.ask(statement)
    server.ask("DELETE FROM full_")
    assert server.ask("SELECT count(*) FROM full_") == [(0,)]
    server.kind.set_read_only(server.access, server.names, False)
    server.ask("INSERT INTO full_ VALUES (3)")
    assert server.ask("SHOW GRANTS") == before


def test_saying_read_only_again_ends_nobodys_session_and_providing_again_lifts_nothing(server: Server) -> None:
    server.kind.set_read_only(server.access, server.names, True)
    with contextlib.closing(server.connect()) as session:
        server.kind.set_read_only(server.access, server.names, True)
        server.kind.provision(server.access, server.names, None)

        with pytest.raises(pymysql.OperationalError, match="denied"):
            rows(session, "CREATE TABLE added (n int)")
    server.kind.set_read_only(server.access, server.names, False)


def test_users_cannot_take_the_last_connections(server: Server) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(usable_connections(server.options.memory_mb)):
            opened.enter_context(server.connect())

        with pytest.raises(pymysql.OperationalError, match="max_user_connections"):
            server.connect()
        assert server.kind.version(server.access)


def test_no_password_is_in_the_log(server: Server) -> None:
    server.kind.set_password(server.access, server.names)

    said = server.log()

    assert "ready for connections" in said
    assert server.names.password not in said
    assert server.admin not in said


def test_a_server_is_told_to_give_memory_back(server: Server) -> None:
    told = Path(f"/proc/{server.look().app_pid}/environ").read_text().split("\0")

    assert {f"{name}={value}" for name, value in ENVIRONMENT.items()} <= set(told)


def test_the_user_of_replicas_sees_no_data(server: Server) -> None:
    server.kind.provision(server.access, server.names, "secret-of-replicas")

    with pytest.raises(pymysql.OperationalError, match="1044"):
        server.connect(user=REPLICATOR, password="secret-of-replicas")


def test_one_of_two_servers_writes_down_what_it_does(lab: Lab, server: Server) -> None:
    one = lab.start(server.software, is_replicated=True, number=2)

    one.ask("CREATE TABLE t (n int)")

    assert one.ask("SELECT @@log_bin, @@server_id, @@gtid_strict_mode, @@sync_binlog") == [(1, 2, 1, 1)]
    assert one.ask("SELECT @@gtid_binlog_pos LIKE '0-2-%'") == [(1,)]
    one.stop()


@pytest.mark.parametrize(("engine", "ending"), [("InnoDB", "ibd"), ("MyISAM", "MYD")])
def test_the_file_of_a_table_stays_in_the_data_folder(server: Server, engine: str, ending: str) -> None:
    server.ask(f"CREATE TABLE placed_{ending} (id int) ENGINE={engine} DATA DIRECTORY='/tmp'")

    file = server.folder / DATA / server.names.database / f"placed_{ending}.{ending}"
    assert file.is_file()
    assert not file.is_symlink()
    assert server.ask(f"SELECT count(*) FROM placed_{ending}") == [(0,)]
