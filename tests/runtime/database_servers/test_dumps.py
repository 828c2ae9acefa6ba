"""Dumps of real servers: complete after a load; broken dumps are detected."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gzip
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.runtime.database_servers.server_support import (
    MARIADB,
    POSTGRESQL,
    POSTGRESQL_14,
    Lab,
    Server,
    a_lab,
    find_software,
    rows,
    until,
)

from moorage.runtime.database_servers import tools
from moorage.runtime.database_servers.mariadb import dumps as mariadb_dumps
from moorage.runtime.database_servers.ports import ServerFailed
from moorage.runtime.sandbox.usage import process_tree

SMALL = 512 * 1024


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module", params=[POSTGRESQL, pytest.param(POSTGRESQL_14, marks=pytest.mark.twin), MARIADB])
def server(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Server]:
    made = lab.start(find_software(request.param))
    made.ask(
        "CREATE TABLE ships (id int PRIMARY KEY, name text)",
        "CREATE TABLE berths (id int PRIMARY KEY, ship int REFERENCES ships (id))",
        "INSERT INTO ships VALUES (1, 'Ada'), (2, 'Žofie'), (3, 'a\n''b\\\\')",
        "INSERT INTO berths VALUES (7, 2)",
        "CREATE VIEW moored AS SELECT name FROM ships JOIN berths ON berths.ship = ships.id",
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def harbour(lab: Lab) -> Iterator[Server]:
    """A server for tests of PostgreSQL only."""
    made = lab.start(find_software(POSTGRESQL))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def quay(lab: Lab) -> Iterator[Server]:
    """A server for tests of MariaDB only."""
    made = lab.start(find_software(MARIADB))
    yield made
    made.stop()


def dumped(server: Server, folder: Path) -> Path:
    target = folder / "dump"
    server.kind.dump(server.software, server.access, server.names, target)
    return target


@contextlib.contextmanager
def loaded(server: Server, dump: Path) -> Iterator[Server]:
    """Load a dump into a new server with the same user and another password."""
    other = server.lab.start(server.software)
    try:
        other.kind.load(other.software, other.access, other.names, dump)
        yield other
    finally:
        other.stop()


def tables_in(server: Server, dump: Path) -> int:
    return server.kind.check(server.software, dump)


def test_a_dump_comes_back_whole_in_another_server(server: Server, tmp_path: Path) -> None:
    dump = dumped(server, tmp_path)

    with loaded(server, dump) as other:
        contents = other.kind.count_rows(other.access, other.names)
        moored = other.ask("SELECT name FROM moored")
        ships = other.ask("SELECT id, name FROM ships ORDER BY id")
        other.ask("DROP TABLE berths CASCADE")

    assert tables_in(server, dump) == 2
    assert {name.rpartition(".")[2]: count for name, count in contents.items()} == {"ships": 3, "berths": 1}
    assert moored == [("Žofie",)]
    assert ships == server.ask("SELECT id, name FROM ships ORDER BY id")


@pytest.mark.parametrize("lost", [5, *(pytest.param(lost, marks=pytest.mark.twin) for lost in (200, 700))])
def test_a_dump_that_was_cut_short_is_refused(server: Server, lost: int, tmp_path: Path) -> None:
    dump = dumped(server, tmp_path)
    os.truncate(dump, dump.stat().st_size - lost)

    with pytest.raises(ServerFailed):
        tables_in(server, dump)

    with pytest.raises(ServerFailed), loaded(server, dump):
        pass


def test_what_is_no_dump_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(b"")

    with pytest.raises(ServerFailed):
        tables_in(server, tmp_path / "dump")


def test_a_dump_of_a_server_that_is_away_says_so(server: Server, tmp_path: Path) -> None:
    other = server.lab.new(server.software)
    other.fill()

    with pytest.raises(ServerFailed, match=r"(?i)connect|socket"):
        dumped(other, tmp_path)


def test_a_dump_of_nothing_has_no_tables(harbour: Server, lab: Lab, tmp_path: Path) -> None:
    empty = lab.start(harbour.software)

    dump = dumped(empty, tmp_path)

    empty.stop()
    assert tables_in(empty, dump) == 0


def test_what_runs_while_a_dump_is_loaded_has_the_rights_of_its_user(harbour: Server, tmp_path: Path) -> None:
    harbour.ask(
        "CREATE TABLE guarded (n int, CHECK (session_user = 'keeper_1' AND current_user = 'keeper_1'))",
        "INSERT INTO guarded VALUES (1)",
    )

    with loaded(harbour, dumped(harbour, tmp_path)) as other:
        assert other.ask("SELECT n FROM guarded") == [(1,)]


def test_rows_that_a_policy_hides_are_in_the_dump(harbour: Server, tmp_path: Path) -> None:
    harbour.ask(
        "CREATE TABLE hidden (n int)",
        "INSERT INTO hidden VALUES (1), (2)",
        "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE hidden FORCE ROW LEVEL SECURITY",
    )

    with loaded(harbour, dumped(harbour, tmp_path)) as other:
        contents = other.kind.count_rows(other.access, other.names)

    assert contents["public.hidden"] == 2


def test_extensions_own_schemas_and_partitions_come_back(harbour: Server, tmp_path: Path) -> None:
    harbour.ask(
        "CREATE EXTENSION citext",
        "CREATE EXTENSION pg_stat_statements",
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER away FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '192.0.2.1')",
        "CREATE USER MAPPING FOR PUBLIC SERVER away OPTIONS (user 'u', password 'p')",
        'CREATE SCHEMA "DATA"',
        'CREATE TABLE "DATA".parts (n int) PARTITION BY RANGE (n)',
        'CREATE TABLE "DATA".low PARTITION OF "DATA".parts FOR VALUES FROM (0) TO (10)',
        'CREATE FOREIGN TABLE "DATA".high PARTITION OF "DATA".parts FOR VALUES FROM (10) TO (20) SERVER away',
        'INSERT INTO "DATA".parts VALUES (3)',
        "CREATE TABLE words (word citext)",
        "COMMENT ON SCHEMA public IS 'ours'",
    )
    dump = dumped(harbour, tmp_path)

    with loaded(harbour, dump) as other:
        contents = other.kind.count_rows(other.access, other.names)

    assert contents["DATA.low"] == 1
    assert contents == harbour.kind.count_rows(harbour.access, harbour.names)
    assert len(contents) == tables_in(harbour, dump)


def test_a_schema_that_its_user_made_anew_comes_back(lab: Lab, harbour: Server, tmp_path: Path) -> None:
    server = lab.start(harbour.software)
    server.ask("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "CREATE TABLE t (n int)")

    with loaded(server, dumped(server, tmp_path)) as other:
        contents = other.kind.count_rows(other.access, other.names)

    server.stop()
    assert contents == {"public.t": 0}


def test_names_that_look_like_options_are_names(lab: Lab, harbour: Server, tmp_path: Path) -> None:
    server = lab.new(harbour.software)
    server.names = type(server.names)("--o'dd \"user=", server.names.password, "dbname=o'd\\d x")
    server.fill()
    server.start()
    server.settle()
    server.ask("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
    dump = dumped(server, tmp_path)
    server.ask("DROP TABLE t")

    server.kind.load(server.software, server.access, server.names, dump)

    assert server.kind.count_rows(server.access, server.names) == {"public.t": 1}
    server.stop()


def test_code_that_makes_tables_is_not_counted_as_tables(quay: Server, tmp_path: Path) -> None:
    quay.ask(
        "CREATE TABLE `real` (n int)",
        "INSERT INTO `real` VALUES (1)",
        "CREATE PROCEDURE refit()\nBEGIN\nCREATE TABLE `later` (n int);\nDROP TABLE `later`;\nEND",
        "CREATE TRIGGER twice BEFORE INSERT ON `real` FOR EACH ROW SET NEW.n = NEW.n * 2",
        "CREATE EVENT yearly ON SCHEDULE EVERY 1 YEAR DO DELETE FROM `real`",
    )
    dump = dumped(quay, tmp_path)

    with loaded(quay, dump) as other:
        other.ask("INSERT INTO `real` VALUES (5)", "CALL refit()")
        numbers = other.ask("SELECT n FROM `real` ORDER BY n")
        events = other.ask("SELECT event_name FROM information_schema.events")

    assert tables_in(quay, dump) == 1
    assert numbers == [(1,), (10,)]
    assert events == [("yearly",)]


@pytest.mark.boundary("code-to-host", "The platform's superuser calls no functions that a tenant created.")
def test_a_view_that_replaces_a_table_is_counted_with_the_rights_of_the_user(
    quay: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    quay.ask(
        "CREATE TABLE callers (name varchar(80))",
        "CREATE FUNCTION note_caller() RETURNS int SQL SECURITY INVOKER "
        "BEGIN INSERT INTO callers VALUES (CURRENT_USER()); RETURN 1; END",
        "CREATE SQL SECURITY INVOKER VIEW swapped AS SELECT seq FROM seq_1_to_2 WHERE note_caller() = seq",
    )
    monkeypatch.setattr(mariadb_dumps, "_TABLES", "SELECT 'swapped' FROM dual WHERE %s <> ''")

    counts = quay.kind.count_rows(quay.access, quay.names)

    assert counts == {"swapped": 1}
    assert set(quay.ask("SELECT name FROM callers")) == {("keeper_1@%",)}
    quay.ask("DROP VIEW swapped", "DROP FUNCTION note_caller", "DROP TABLE callers")


def test_a_list_of_entries_above_the_limit_is_refused(
    harbour: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.ask("CREATE TABLE IF NOT EXISTS listed (n int)")
    dump = dumped(harbour, tmp_path)
    monkeypatch.setattr(tools, "MAX_LIST_BYTES", 100)

    with pytest.raises(ServerFailed, match="pg_restore lists more than"):
        tables_in(harbour, dump)


@pytest.mark.parametrize("change", ["COMMENT 'a;;b'", "DO DELETE FROM t /* ;; */"])
def test_an_event_with_which_a_dump_would_not_end_is_named(quay: Server, tmp_path: Path, change: str) -> None:
    quay.ask("CREATE TABLE IF NOT EXISTS t (n int)", "CREATE EVENT hourly ON SCHEDULE EVERY 1 HOUR DO DELETE FROM t")
    quay.ask(f"ALTER EVENT hourly {change}")

    with pytest.raises(ServerFailed, match="the event hourly contains `;;`"):
        dumped(quay, tmp_path)

    quay.ask("DROP EVENT hourly", "DROP TABLE t")


def test_a_very_long_row_does_not_hide_the_end_of_a_dump(quay: Server, tmp_path: Path) -> None:
    quay.ask("CREATE TABLE wide (t longtext)", "INSERT INTO wide VALUES (repeat('CREATE TABLE `x` ', 400000))")

    dump = dumped(quay, tmp_path)

    assert tables_in(quay, dump) == len(quay.kind.count_rows(quay.access, quay.names))


def test_a_dump_without_its_last_line_is_refused(quay: Server, tmp_path: Path) -> None:
    dump = dumped(quay, tmp_path)
    text = gzip.decompress(dump.read_bytes())
    dump.write_bytes(gzip.compress(text[: text.rindex(b"-- Dump completed")]))

    with pytest.raises(ServerFailed, match="incomplete"):
        tables_in(quay, dump)


def test_a_dump_that_somebody_kills_fails_and_says_so(harbour: Server, tmp_path: Path) -> None:
    harbour.ask("CREATE TABLE IF NOT EXISTS locked (n int)")
    failures: list[ServerFailed] = []

    def dump() -> None:
        try:
            dumped(harbour, tmp_path)
        except ServerFailed as error:
            failures.append(error)

    with contextlib.closing(harbour.connect()) as session:
        rows(session, "BEGIN", "LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        thread = Thread(target=dump)
        thread.start()
        pid = until(lambda: child_named("pg_dump"), "pg_dump") or 0
        owner = Path(f"/proc/{pid}").stat().st_uid
        os.kill(pid, signal.SIGKILL)
        thread.join(30)

    assert owner == (harbour.uid or os.getuid())
    assert [str(error) for error in failures] == ["pg_dump was ended by SIGKILL"]


def child_named(name: str) -> int | None:
    """Return a descendant process by its program name."""
    for pid in process_tree.with_descendants(process_tree.children(os.getpid())):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
    return None


def test_a_dump_that_nobody_waits_for_is_ended_at_once(harbour: Server, tmp_path: Path) -> None:
    harbour.ask("CREATE TABLE IF NOT EXISTS locked (n int)")

    async def give_up() -> None:
        work = asyncio.create_task(tools.in_thread(dumped, harbour, tmp_path))
        while child_named("pg_dump") is None:
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with contextlib.closing(harbour.connect()) as session:
        rows(session, "BEGIN", "LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        asyncio.run(give_up())

    assert child_named("pg_dump") is None


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Limit the space of a folder: a small tmpfs as root, else RLIMIT_FSIZE."""
    if os.getuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        mounted = libc.mount(b"small", bytes(folder), b"tmpfs", 0, f"size={SMALL}".encode())
        assert mounted == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            libc.umount2(bytes(folder), 2)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["harbour", "quay"])
def test_a_dump_on_a_full_disk_fails_and_says_so(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(name)
    words = "md5(n::text || 'x')" if name == "harbour" else "md5(seq)"
    source = "generate_series(1, 60000) n" if name == "harbour" else "seq_1_to_60000"
    server.ask("DROP TABLE IF EXISTS bulk", f"CREATE TABLE bulk AS SELECT {words} AS word FROM {source}")

    with small_disk(tmp_path), pytest.raises(ServerFailed, match=r"space|large|SIGXFSZ"):
        dumped(server, tmp_path)
