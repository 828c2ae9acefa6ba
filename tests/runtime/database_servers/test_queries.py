"""Statements of users on real servers: values, limits, and attempts to write or to break out of a read."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pymysql
import pytest
from tests.runtime.database_servers.server_support import (
    MARIADB,
    POSTGRESQL,
    POSTGRESQL_14,
    Lab,
    Server,
    a_lab,
    find_software,
    until,
)

from moorage.runtime.database_servers.mariadb import dumps as mariadb_dumps
from moorage.runtime.database_servers.ports import READER
from moorage.runtime.database_servers.postgres import dumps as postgres_dumps
from moorage.runtime.database_servers.queries import model
from moorage.runtime.database_servers.queries.model import Result, StatementFailed, TableDetail, Watchdog
from moorage.runtime.database_servers.queries.runners import runner_of

POSTGRESQL_TABLE = "CREATE TABLE boat (id serial PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x')"
MARIADB_TABLE = "CREATE TABLE boat (id int PRIMARY KEY AUTO_INCREMENT, name varchar(20) NOT NULL DEFAULT 'x')"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


def start(lab: Lab, software: str, table: str) -> Server:
    server = lab.start(find_software(software))
    server.ask(table, "INSERT INTO boat (name) VALUES ('Ada')")
    return server


@pytest.fixture(scope="module", params=[POSTGRESQL, pytest.param(POSTGRESQL_14, marks=pytest.mark.twin)])
def postgres(lab: Lab, request: pytest.FixtureRequest) -> Server:
    return start(lab, request.param, POSTGRESQL_TABLE)


@pytest.fixture(scope="module")
def mariadb(lab: Lab) -> Server:
    return start(lab, MARIADB, MARIADB_TABLE)


@pytest.fixture(scope="module", params=[POSTGRESQL, MARIADB])
def server(lab: Lab, request: pytest.FixtureRequest) -> Server:
    return start(lab, request.param, MARIADB_TABLE if request.param == MARIADB else POSTGRESQL_TABLE)


def query(server: Server, sql: str, *, may_write: bool = False, watchdog: Watchdog | None = None) -> Result:
    runner = runner_of(server.software.type)
    return runner.run(server.access, server.names, sql, may_write=may_write, watchdog=watchdog or Watchdog())


def refusal(server: Server, sql: str, **how: Any) -> StatementFailed:
    with pytest.raises(StatementFailed) as caught:
        query(server, sql, **how)
    return caught.value


def sent(result: Result) -> Any:
    """Return the rows as a client gets them."""
    return json.loads(msgspec.json.encode(result.rows))


def values(result: Result) -> dict[str, tuple[str, str, Any]]:
    """Return type, format and value of the columns of the first row."""
    return {
        column.name: (column.type, column.format, value)
        for column, value in zip(result.columns, sent(result)[0], strict=True)
    }


def test_postgresql_values_are_safe_in_json(postgres: Server) -> None:
    result = query(
        postgres,
        r"""SELECT 7 AS int, 9007199254740993::bigint AS big, 1.50::numeric(5,2) AS num, true AS yes, null AS none,
        '\xdead'::bytea AS bin, '{"a": [1, 9007199254740993]}'::jsonb AS doc, 'NaN'::float8 AS nan, 1.5::real AS real,
        date '2026-01-02' AS day, timestamp '2026-01-02 03:04' AS local, 'infinity'::timestamptz AS ever,
        timestamptz '2026-01-02 03:04:05.6+02' AS moment, array[1, 2] AS list, 'ä⚓'::varchar(20) AS text""",
    )

    assert values(result) == {
        "int": ("integer", "number", 7),
        "big": ("bigint", "text", "9007199254740993"),
        "num": ("numeric(5,2)", "text", "1.50"),
        "yes": ("boolean", "boolean", True),
        "none": ("text", "text", None),
        "bin": ("bytea", "hex", "\\xdead"),
        "doc": ("jsonb", "json", {"a": [1, 9007199254740993]}),
        "nan": ("double precision", "number", "NaN"),
        "real": ("real", "number", 1.5),
        "day": ("date", "datetime", "2026-01-02"),
        "local": ("timestamp without time zone", "datetime", "2026-01-02T03:04:00"),
        "ever": ("timestamp with time zone", "datetime", "infinity"),
        "moment": ("timestamp with time zone", "datetime", "2026-01-02T01:04:05.6Z"),
        "list": ("integer[]", "text", "{1,2}"),
        "text": ("character varying(20)", "text", "ä⚓"),
    }


def test_mariadb_values_are_safe_in_json(mariadb: Server) -> None:
    mariadb.ask(
        """CREATE TABLE kinds (tiny tinyint, num int, big bigint unsigned, dec_ decimal(5,2), flt float, bin blob,
        bits bit(5), doc json, day date, local datetime, moment timestamp NULL, hour_ time, y year, text varchar(20),
        choice enum('a','b'), none int)""",
        """INSERT INTO kinds VALUES (1, 7, 18446744073709551615, 1.50, 1.25, x'dead', b'101', '{"a": 1}',
        '2026-01-02', '2026-01-02 03:04', '2026-01-02 03:04', '10:11:12', 2026, 'ä⚓', 'b', null)""",
    )

    result = query(mariadb, "SELECT * FROM kinds")

    assert values(result) == {
        "tiny": ("tinyint", "number", 1),
        "num": ("int", "number", 7),
        "big": ("bigint", "text", "18446744073709551615"),
        "dec_": ("decimal", "text", "1.50"),
        "flt": ("float", "number", 1.25),
        "bin": ("blob", "hex", "\\xdead"),
        "bits": ("bit", "hex", "\\x05"),
        "doc": ("text", "text", '{"a": 1}'),  # MariaDB stores json as text
        "day": ("date", "datetime", "2026-01-02"),
        "local": ("datetime", "datetime", "2026-01-02T03:04:00"),
        "moment": ("timestamp", "datetime", "2026-01-02T03:04:00Z"),
        "hour_": ("time", "text", "10:11:12"),
        "y": ("year", "number", 2026),
        "text": ("varchar", "text", "ä⚓"),
        "choice": ("char", "text", "b"),
        "none": ("int", "number", None),
    }


MANY = {"postgresql": "SELECT * FROM generate_series(1, {0}) AS n", "mysql": "SELECT seq AS n FROM seq_1_to_{0}"}


def test_an_answer_has_a_thousand_rows_at_most(server: Server) -> None:
    whole = query(server, MANY[server.software.type].format(1000))
    cut = query(server, MANY[server.software.type].format(1001))

    assert (whole.row_count, len(whole.rows), whole.truncated) == (1000, 1000, False)
    assert (cut.row_count, len(cut.rows), cut.truncated) == (1000, 1000, True)


def test_rows_beyond_the_bytes_of_an_answer_are_cut(server: Server) -> None:
    one = model.MAX_ANSWER_BYTES // 3
    rows = MANY[server.software.type].format(10)

    result = query(server, f"SELECT repeat('x', {one}) FROM ({rows}) AS many")

    assert (result.row_count, result.truncated) == (2, True)


def test_a_row_that_is_too_large_is_not_read(server: Server) -> None:
    assert "larger than 8 MB" in refusal(server, "SELECT repeat('x', 30000000)").message

    assert query(server, "SELECT 1").row_count == 1


def test_a_statement_with_write_changes_rows_and_counts_them(server: Server) -> None:
    rows = MANY[server.software.type].format(1200)
    source = f"SELECT 'many' FROM ({rows}) AS many"

    added = query(server, f"INSERT INTO boat (name) {source}", may_write=True)
    gone = query(server, "DELETE FROM boat WHERE name = 'many' RETURNING id", may_write=True)

    assert (added.columns, added.row_count) == ([], 1200)
    assert (gone.row_count, gone.truncated) == (1000, True)
    assert server.ask("SELECT count(*) FROM boat WHERE name = 'many'") == [(0,)]


def test_an_error_has_the_message_and_the_position(postgres: Server, mariadb: Server) -> None:
    unknown, other = refusal(postgres, "SELECT nope FROM boat"), refusal(mariadb, "SELECT nope FROM boat")

    assert (unknown.state, unknown.position) == ("42703", 8)
    assert 'column "nope" does not exist' in unknown.message
    assert (other.state, other.message) == ("1054", "Unknown column 'nope' in 'SELECT'")


SLOW = {
    "postgresql": (
        "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN END; END LOOP; END $$"
    ),
    "mysql": "SET STATEMENT max_statement_time = 0 FOR SELECT sleep(60)",
}
SESSIONS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%pg_sleep%%' AND pid <> pg_backend_pid()",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'",
}


def sessions(server: Server) -> int:
    return int(server.ask(SESSIONS[server.software.type])[0][0])


def test_the_timeout_ends_a_statement_that_ignores_a_cancel_request(server: Server) -> None:
    watchdog = Watchdog(within_s=0.5)

    failed = refusal(server, SLOW[server.software.type], may_write=True, watchdog=watchdog)

    assert "ran longer than 10 s" in failed.message
    until(lambda: sessions(server) == 0, "the end of the statement on the server")


def test_a_cancelled_request_ends_its_statement(server: Server) -> None:
    watchdog, failures = Watchdog(), []

    def run() -> None:
        failures.append(refusal(server, SLOW[server.software.type], may_write=True, watchdog=watchdog))

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: sessions(server) == 1, "the statement")
    watchdog.fire()
    thread.join()

    assert len(failures) == 1
    until(lambda: sessions(server) == 0, "the end of the statement on the server")


def test_the_server_itself_ends_a_slow_statement(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from moorage.runtime.database_servers.queries import postgres as postgres_queries

    short = postgres_queries._SESSION.replace("statement_timeout = 10000", "statement_timeout = 100")
    monkeypatch.setattr(postgres_queries, "_SESSION", short)

    assert "ran longer" in refusal(postgres, "SELECT pg_sleep(60)").message


POSTGRESQL_ATTACKS = [
    "INSERT INTO boat (name) VALUES ('Eve')",
    "SELECT 1; INSERT INTO boat (name) VALUES ('Eve')",
    "COMMIT; INSERT INTO boat (name) VALUES ('Eve')",
    "/* ; */ COMMIT",
    "-- a\n;(ROLLBACK AND CHAIN",
    "SET TRANSACTION READ WRITE",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('transaction_read_only', 'off', false), add_boat()",
    "SELECT add_boat()",
    "SELECT add_boat_as_owner()",
    "WITH gone AS (DELETE FROM boat RETURNING *) SELECT * FROM gone",
    "EXPLAIN ANALYZE DELETE FROM boat",
    "DO $$ BEGIN COMMIT; INSERT INTO boat (name) VALUES ('Eve'); END $$",
    "DO $$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); DELETE FROM boat; END $$",
    "DO $$ BEGIN EXECUTE 'SET TRANSACTION READ WRITE'; DELETE FROM boat; END $$",
    "CALL leave()",
    "SELECT nextval('boat_id_seq')",
    "SELECT setval('boat_id_seq', 99)",
    "SELECT * FROM boat FOR UPDATE",
    "LOCK TABLE boat IN ACCESS EXCLUSIVE MODE",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "COPY boat TO '/tmp/boat'",
    "COPY boat TO PROGRAM 'true'",
    "COPY boat TO STDOUT",
    "COPY boat FROM STDIN",
    "SELECT dblink_connect('dbname=har_bour')",
    "SELECT * FROM dblink('dbname=har_bour', 'DELETE FROM boat') AS t (n int)",
    "SELECT query_to_xml('DELETE FROM boat', true, false, '')",
    "SELECT query_to_xml('SET TRANSACTION READ WRITE', true, false, '')",
    "SELECT * INTO copied FROM boat",
    "CREATE EXTENSION dblink",
    "SET ROLE moorage",
    "SELECT set_config('role', 'moorage', false)",
    "SELECT set_config('session_authorization', 'moorage', false)",
    "ALTER ROLE keeper_1 PASSWORD 'x'",
    "LISTEN boats",
    "ALTER SYSTEM SET log_statement = 'all'",
    "PREPARE TRANSACTION 'x'",
    "SELECT rolpassword FROM pg_authid",
    "SELECT passwd FROM pg_shadow",
    "SELECT pg_reload_conf()",
    "SELECT pg_promote()",
    "SELECT pg_switch_wal()",
    "SELECT pg_create_physical_replication_slot('x')",
    "VACUUM boat",
    "TRUNCATE boat",
    "DROP TABLE boat",
]
MARIADB_ATTACKS = [
    "INSERT INTO boat (name) VALUES ('Eve')",
    "SELECT 1; INSERT INTO boat (name) VALUES ('Eve')",
    "COMMIT",
    "/*! INSERT INTO boat (name) VALUES ('Eve') */",
    "/*M! DROP TABLE boat */",
    "/*!50000 SELECT */ 1",
    "-- select\nDROP TABLE boat",
    "# select\nDROP TABLE boat",
    "SET SESSION TRANSACTION READ WRITE",
    "SET PASSWORD = PASSWORD('x')",
    "SET STATEMENT max_statement_time = 0 FOR SELECT 1",
    "ALTER USER CURRENT_USER() IDENTIFIED BY 'x'",
    "BEGIN NOT ATOMIC DELETE FROM boat; END",
    "SELECT add_boat()",
    "SELECT * FROM adding",
    "SELECT nextval(numbers)",
    "CALL leave_()",
    "SELECT * FROM boat FOR UPDATE",
    "SELECT * FROM boat LOCK IN SHARE MODE; SELECT 1",
    "LOCK TABLES boat WRITE",
    "SELECT 1 INTO OUTFILE '/tmp/out'",
    "SELECT 1 INTO DUMPFILE '/tmp/out'",
    "LOAD DATA INFILE '/etc/passwd' INTO TABLE boat (name)",
    "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE boat (name)",
    "WITH x AS (SELECT 1) DELETE FROM boat",
    "EXPLAIN FORMAT=JSON DELETE FROM boat; SELECT 1",
    "ANALYZE DELETE FROM boat",
    "SELECT * FROM mysql.global_priv",
    "KILL 1",
    "FLUSH TABLES",
    "DO sleep(0)",
    "HANDLER boat OPEN",
    "PREPARE x FROM 'DELETE FROM boat'",
    "EXECUTE IMMEDIATE 'DELETE FROM boat'",
    "XA START 'x'",
    "TRUNCATE boat",
    "DROP TABLE boat",
]


@pytest.mark.boundary("role-to-role", "A statement of a member changes no data of a database.")
def test_no_statement_for_reading_writes_to_postgresql(postgres: Server, subtests: Any) -> None:
    adds = "LANGUAGE sql {0} AS $$ INSERT INTO boat (name) VALUES ('Eve') RETURNING id $$"
    postgres.ask(
        f"CREATE FUNCTION add_boat() RETURNS int {adds.format('')}",
        f"CREATE FUNCTION add_boat_as_owner() RETURNS int {adds.format('SECURITY DEFINER')}",
        "CREATE PROCEDURE leave() LANGUAGE plpgsql AS $$ BEGIN COMMIT; DELETE FROM boat; END $$",
    )

    for attack in POSTGRESQL_ATTACKS:
        with subtests.test(attack):
            assert refusal(postgres, attack).message

    assert postgres.ask(
        "SELECT name FROM boat",
    ) == [("Ada",)]
    assert postgres.ask("SELECT last_value FROM boat_id_seq") != [(99,)]


@pytest.mark.boundary("role-to-role", "A statement of a member changes no data of a database.")
def test_no_statement_for_reading_writes_to_mariadb(mariadb: Server, subtests: Any) -> None:
    mariadb.ask(
        "CREATE FUNCTION add_boat() RETURNS INT BEGIN INSERT INTO boat (name) VALUES ('Eve'); RETURN 1; END",
        "CREATE VIEW adding AS SELECT add_boat() AS n",
        "CREATE PROCEDURE leave_() BEGIN COMMIT; DELETE FROM boat; END",
        "CREATE SEQUENCE numbers",
    )

    for attack in MARIADB_ATTACKS:
        with subtests.test(attack):
            assert refusal(mariadb, attack).message

    assert mariadb.ask("SELECT name FROM boat") == [("Ada",)]
    assert query(mariadb, "SELECT load_file('/etc/passwd')").rows == [[None]]


@pytest.mark.boundary("role-to-role", "A statement of a member changes no data of a database.")
def test_effects_that_a_read_allows_are_gone_with_its_session(postgres: Server) -> None:
    """Settings, locks, notifications and, before PostgreSQL 16, large objects."""
    query(postgres, "SELECT pg_advisory_lock(1)")
    query(postgres, "SELECT set_config('statement_timeout', '0', false)")
    query(postgres, "SELECT pg_notify('boats', 'x')")
    with contextlib.suppress(StatementFailed):  # PostgreSQL 16 refuses it.
        query(postgres, "SELECT lo_create(4711)")

    assert postgres.ask("SELECT pg_try_advisory_lock(1)") == [(True,)]
    assert postgres.ask("SELECT count(*) FROM pg_largeobject_metadata") == [(0,)]
    assert sent(query(postgres, "SHOW statement_timeout")) == [["10s"]]


@pytest.mark.boundary("role-to-role", "A statement of a member changes no data of a database.")
def test_a_read_cannot_end_sessions_of_the_platform(postgres: Server, mariadb: Server) -> None:
    """A read can end other sessions of the tenant's user in PostgreSQL, as that user always can."""
    with postgres_dumps.connected(postgres.access, "postgres") as connection:
        session = connection.info.backend_pid
        assert refusal(postgres, f"SELECT pg_terminate_backend({session})").state == "42501"
    with contextlib.closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        refusal(mariadb, f"KILL {connection.thread_id()}")
        cursor.execute("SELECT 1")


@pytest.mark.boundary("role-to-role", "A statement of a member changes no data of a database.")
def test_the_reading_account_of_mariadb_logs_in_over_the_socket_only(mariadb: Server) -> None:
    query(mariadb, "SELECT 1")

    with pytest.raises(pymysql.MySQLError, match="Access denied"):
        mariadb.connect(user=READER, password=model.reader_password(mariadb.access))


def test_a_changed_reading_account_is_repaired(mariadb: Server) -> None:
    query(mariadb, "SELECT 1")
    with mariadb_dumps.connected(mariadb.access, "mysql") as connection, connection.cursor() as cursor:
        cursor.execute(f"SET PASSWORD FOR {READER}@localhost = PASSWORD('another')")

    assert query(mariadb, "SELECT 1").row_count == 1


def test_tables_have_columns_and_indexes(server: Server) -> None:
    runner, logins = runner_of(server.software.type), (server.access, server.names)
    schema = "public" if server.software.type == "postgresql" else server.names.database
    server.ask("CREATE INDEX by_name ON boat (name, id)", "CREATE VIEW fleet AS SELECT name FROM boat")

    listed = {(each.schema, each.name): each for each in runner.tables(*logins, Watchdog())}
    table = runner.find_table(*logins, schema, "boat", Watchdog())

    assert listed[schema, "fleet"].kind == "view"
    assert (listed[schema, "boat"].kind, (listed[schema, "boat"].size_bytes or 0) > 0) == ("table", True)
    assert isinstance(table, TableDetail)
    assert [(column.name, column.nullable, column.is_primary_key) for column in table.columns] == [
        ("id", False, True),
        ("name", False, False),
    ]
    assert [(index.columns, index.unique, index.primary, index.method) for index in table.indexes] == [
        (["id"], True, True, "btree"),
        (["name", "id"], False, False, "btree"),
    ]
    assert query(server, table.select_sql).row_count == 1
    assert runner.find_table(*logins, schema, "nothing", Watchdog()) is None
    assert runner.find_table(*logins, "elsewhere", "boat", Watchdog()) is None


@pytest.mark.boundary("tenant-to-tenant", "Catalogs of a database cannot fill the memory of the platform.")
def test_long_texts_of_the_catalog_are_cut(postgres: Server, mariadb: Server) -> None:
    long = "x" * 3_000_000
    postgres.ask(
        f"CREATE TABLE wordy (n text DEFAULT '{long}')",
        f"COMMENT ON TABLE wordy IS '{long}'",
        f"COMMENT ON COLUMN wordy.n IS '{long}'",
        f"CREATE INDEX ON wordy ((n || '{long[:50_000]}'))",
    )
    names = ", ".join(f"'{number:0250}'" for number in range(100))
    mariadb.ask(f"CREATE TABLE wordy (n enum({names}) COMMENT '{long[:1024]}') COMMENT '{long[:2048]}'")

    for server, schema in ((postgres, "public"), (mariadb, mariadb.names.database)):
        runner, logins = runner_of(server.software.type), (server.access, server.names)
        listed = next(each for each in runner.tables(*logins, Watchdog()) if each.name == "wordy")
        table = runner.find_table(*logins, schema, "wordy", Watchdog())
        assert table is not None
        texts = [listed.comment, *(text for each in table.columns for text in (each.type, each.default, each.comment))]
        texts += [text for index in table.indexes for text in index.columns]
        lengths = [len(text or "") for text in texts]
        assert (max(lengths), lengths.count(1000)) == (1000, 4 if server is postgres else 3)
    postgres.ask("DROP TABLE wordy")
    mariadb.ask("DROP TABLE wordy")


@pytest.mark.boundary("tenant-to-tenant", "Catalogs of a database cannot fill the memory of the platform.")
def test_a_catalog_above_the_limit_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, logins = runner_of(server.software.type), (server.access, server.names)
    watchdog = Watchdog()
    monkeypatch.setattr(model, "MAX_CATALOG_BYTES", 100)

    with pytest.raises(StatementFailed, match="catalog of the database is larger"):
        runner.tables(*logins, watchdog)

    assert watchdog.has_fired
