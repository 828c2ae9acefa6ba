"""MariaDB semi-synchronous replication: commits wait for the replica's relay log.

The platform starts replication (`skip_slave_start`), because a replica that starts it by itself deletes its relay log
and requests the log from its primary again. If the primary has just failed, its last acknowledged transactions would be
lost. So a replica applies its whole relay log before replication starts or the replica is promoted.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.core.kit.decoding import decode
from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.mariadb import programs
from moorage.runtime.database_servers.mariadb.configuration import MARIADB, REPLICATION_FILE
from moorage.runtime.database_servers.mariadb.dumps import END, LOADING, connected, connection_options
from moorage.runtime.database_servers.ports import (
    ADMIN,
    CONF,
    DATA,
    REPLICATOR,
    Access,
    Primary,
    ServerFailed,
    Software,
)
from moorage.runtime.database_servers.tools import CHUNK, Toolbox, raise_if_cancelled, wrap_disk_errors

if TYPE_CHECKING:
    from pymysql.cursors import DictCursor

OWN_DATABASE = "mysql"
SEED, PROGRAMS = "seed.sql", "seed.json"
MAX_PROGRAMS_BYTES = 256 * 2**20
NEVER_MS = 30 * 86_400_000  # The replicator decides when commits stop waiting, not a timeout of the server.
STREAM_TIMEOUT_S = 10
CATCH_UP_TIMEOUT_S = 10
APPLY_TIMEOUT_S = 600.0  # The relay log may be far ahead of the applied position.
POLL_INTERVAL_S = 0.02
RELAY_INDEX = "relay.index"
MAX_INDEX_BYTES = 2**20
_MAGIC = b"\xfebin"
_HEADER = struct.Struct("<4xB4xI6x")  # type and length of an event
_GTID = struct.Struct("<QI")  # sequence number and domain of a transaction
_GTID_EVENT = 162
_ALL_APPLIED = "Slave has read all relay log"
_RELAY_LOG_TRUNCATED = 1594  # The crash cut off the last event, so its transaction was not acknowledged.


class MariaDBReplication:
    needs_loading = True

    def copy(self, software: Software, primary: Access, folder: Path, number: int) -> None:
        if software.product != MARIADB:
            raise ServerFailed(f"replication is supported with MariaDB only, not with {software.product}")
        self._set_awaited(primary, is_awaited=False)
        copying.fill(Path(software.template), folder)
        copying.put(folder / CONF, REPLICATION_FILE, configuration(is_awaited=False))
        everything = ["--all-databases", "--skip-triggers", "--hex-blob", "--flush-privileges"]
        position = ["--single-transaction", "--quick", "--master-data=1", "--gtid", "--max-allowed-packet=1G"]
        with wrap_disk_errors(), Toolbox(software, Path(primary.folder)) as box, (folder / SEED).open("xb") as file:
            args = [*connection_options(box, primary, ADMIN), *everything, *position]
            box.read("mariadb-dump", args, {"MYSQL_PWD": primary.password}, file.write)
        with wrap_disk_errors(), _opened(primary) as cursor:
            copying.put(folder, PROGRAMS, msgspec.json.encode(programs.read(cursor)).decode())

    def load(self, software: Software, access: Access, primary: Primary) -> None:
        seed = Path(access.folder) / SEED
        with _opened(access) as cursor:
            cursor.execute("RESET MASTER")  # removes the platform's own setup statements from the binlog
        with Toolbox(software, Path(access.folder)) as box:
            args = [*connection_options(box, access, ADMIN), *LOADING, "--init-command=SET sql_log_bin=0"]
            box.feed("mariadb", args, {"MYSQL_PWD": access.password}, _read(seed))
        found = copying.read(seed.parent, PROGRAMS, MAX_PROGRAMS_BYTES)
        with _opened(access) as cursor:
            programs.create(cursor, decode(found, list[programs.Program]))
        with _opened(access) as cursor:
            cursor.execute(
                "CHANGE MASTER TO MASTER_HOST=%s, MASTER_PORT=%s, MASTER_USER=%s, MASTER_PASSWORD=%s,"
                " MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=3, MASTER_USE_GTID=slave_pos",
                (primary.address.host, primary.address.port, REPLICATOR, primary.password),
            )
        seed.unlink()
        copying.drop(seed.parent, PROGRAMS)

    def follow(self, replica: Access) -> None:
        with _opened(replica) as cursor:
            status = _status(cursor)
            if status["Slave_SQL_Running"] == "Yes" and status["Slave_IO_Running"] != "No":
                return
            _apply_all(cursor, Path(replica.folder))
            cursor.execute("STOP SLAVE")
            cursor.execute("CHANGE MASTER TO MASTER_USE_GTID=slave_pos")
            cursor.execute("START SLAVE")

    def is_following(self, primary: Access, replica: Access, number: int) -> bool:
        with _opened(replica) as cursor:
            status = _status(cursor)
        return (status["Slave_SQL_Running"], status["Slave_IO_Running"]) == ("Yes", "Yes")

    def is_awaited(self, primary: Access, number: int) -> bool:
        with _opened(primary) as cursor:
            return _figure(cursor, "Rpl_semi_sync_master_status") == "ON"

    def await_replica(self, primary: Access, replica: Access, number: int) -> None:
        _catch_up(primary, replica)  # before commits wait, so that they do not wait for a long catch-up
        self._set_awaited(primary, is_awaited=True)
        _catch_up(primary, replica)  # covers commits that were acknowledged without waiting
        with _opened(primary) as on_primary, _opened(replica) as on_replica:
            is_on = _figure(on_primary, "Rpl_semi_sync_master_status") == "ON"
            acknowledges = _figure(on_replica, "Rpl_semi_sync_slave_status") == "ON"
        if not (is_on and acknowledges and self.is_following(primary, replica, number)):
            raise ServerFailed("the replica does not acknowledge the commits of its primary")

    def go_alone(self, primary: Access) -> None:
        self._set_awaited(primary, is_awaited=False)

    def promote(self, replica: Access) -> None:
        with _opened(replica) as cursor:
            if _find_status(cursor) is not None:
                cursor.execute("STOP SLAVE IO_THREAD")
                _apply_all(cursor, Path(replica.folder))
                cursor.execute("STOP SLAVE")
                cursor.execute("RESET SLAVE ALL")
            cursor.execute("SET GLOBAL read_only = OFF")

    def trim(self, primary: Access, replica: Access) -> None:
        with _opened(replica) as cursor:
            needed = _status(cursor)["Relay_Master_Log_File"]
        if needed:
            with _opened(primary) as cursor:
                cursor.execute("PURGE BINARY LOGS TO %s", (needed,))

    def _set_awaited(self, primary: Access, *, is_awaited: bool) -> None:
        """Turn waiting on or off, in the configuration file and in the running server."""
        text = configuration(is_awaited=is_awaited)
        copying.put(Path(primary.folder) / CONF, REPLICATION_FILE, text, is_kept=True)
        with _opened(primary) as cursor:
            cursor.execute("SET GLOBAL rpl_semi_sync_master_timeout = %s", (NEVER_MS,))
            cursor.execute("SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'")
            cursor.execute("SET GLOBAL rpl_semi_sync_master_enabled = %s", (int(is_awaited),))


def configuration(*, is_awaited: bool) -> str:
    """Return the replication settings of a server."""
    values = {
        "rpl_semi_sync_master_enabled": int(is_awaited),
        "rpl_semi_sync_master_timeout": NEVER_MS,
        "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
        "rpl_semi_sync_master_wait_no_slave": 1,
        "rpl_semi_sync_slave_enabled": 1,
        "skip_slave_start": 1,
        "slave_net_timeout": STREAM_TIMEOUT_S,
    }
    return "".join(["[mysqld]\n", *(f"{name} = {value}\n" for name, value in values.items())])


# Applying the relay log.


def _catch_up(primary: Access, replica: Access) -> None:
    """Wait until a replica has applied the current position of its primary."""
    with _opened(primary) as cursor:
        position = _one(cursor, "SELECT @@gtid_binlog_pos")
    with _opened(replica) as cursor:
        if _one(cursor, "SELECT MASTER_GTID_WAIT(%s, %s)", position, CATCH_UP_TIMEOUT_S) != 0:
            raise ServerFailed("the replica does not catch up with its primary")


def _apply_all(cursor: DictCursor, folder: Path) -> None:
    """Apply the whole relay log of a replica; it receives nothing meanwhile."""
    status = _status(cursor)
    if status["Slave_SQL_Running"] == "Yes":
        _wait_until_applied(cursor)
        return
    if status["Last_SQL_Errno"]:
        raise ServerFailed(f"the replica cannot apply a change: {status['Last_SQL_Error']}")
    missing = find_missing(folder / DATA, str(_one(cursor, "SELECT @@gtid_slave_pos")))
    if missing is None:
        return
    # Only with a file position does a restarted server keep its relay log.
    cursor.execute("CHANGE MASTER TO RELAY_LOG_FILE=%s, RELAY_LOG_POS=%s, MASTER_USE_GTID=no", missing)
    cursor.execute("START SLAVE SQL_THREAD")
    if not _wait_until_applied(cursor, may_fail=True):
        # DDL that was applied before a crash, but not recorded as applied, comes first again and fails.
        cursor.execute("SET GLOBAL sql_slave_skip_counter = 1")
        cursor.execute("START SLAVE SQL_THREAD")
        _wait_until_applied(cursor)


def _wait_until_applied(cursor: DictCursor, *, may_fail: bool = False) -> bool:
    deadline = time.monotonic() + APPLY_TIMEOUT_S
    while time.monotonic() < deadline:
        status = _status(cursor)
        if (
            str(status["Slave_SQL_Running_State"]).startswith(_ALL_APPLIED)  # None while the thread starts
            or status["Last_SQL_Errno"] == _RELAY_LOG_TRUNCATED
        ):
            return True
        if status["Slave_SQL_Running"] == "No":
            if may_fail:
                return False
            raise ServerFailed(f"the replica cannot apply a change: {status['Last_SQL_Error']}")
        raise_if_cancelled()
        time.sleep(POLL_INTERVAL_S)
    raise ServerFailed("the replica has not applied everything yet")


def find_missing(data: Path, applied: str) -> tuple[str, int] | None:
    """Return file and position of the first unapplied transaction in the relay log.

    The SQL thread must be stopped. Uses the exact GTID position, because relay-log.info is written rarely.
    """
    done = {int(domain): int(number) for domain, _, number in (each.split("-") for each in applied.split(",") if each)}
    try:
        index = copying.read(data, RELAY_INDEX, MAX_INDEX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    for name in [Path(line).name for line in index.splitlines()]:
        for position, domain, number in _transactions(data, name):
            if number > done.get(domain, 0):
                return name, position
    return None


def _transactions(data: Path, log: str) -> Iterator[tuple[int, int, int]]:
    """Yield position, GTID domain and number of each complete transaction."""
    with copying.opened_file(data, log) as fd, open(fd, "rb", closefd=False) as file:
        size, position = os.fstat(fd).st_size, len(_MAGIC)
        while position + _HEADER.size + _GTID.size <= size:
            file.seek(position)
            kind, length = _HEADER.unpack(file.read(_HEADER.size))
            if length < _HEADER.size or position + length > size:
                return
            if kind == _GTID_EVENT:
                number, domain = _GTID.unpack(file.read(_GTID.size))
                yield position, domain, number
            position += length


@contextmanager
def _opened(access: Access) -> Iterator[DictCursor]:
    from pymysql.cursors import DictCursor

    with connected(access, OWN_DATABASE) as connection, connection.cursor(DictCursor) as cursor:
        yield cursor


def _find_status(cursor: DictCursor) -> dict[str, Any] | None:
    cursor.execute("SHOW SLAVE STATUS")
    status: dict[str, Any] | None = cursor.fetchone()
    return status


def _status(cursor: DictCursor) -> dict[str, Any]:
    status = _find_status(cursor)
    if status is None:
        raise ServerFailed("the server is not a replica")
    return status


def _one(cursor: DictCursor, query: str, *values: Any) -> Any:
    cursor.execute(query, values)
    row = cursor.fetchone()
    return next(iter(row.values())) if row else None


def _figure(cursor: DictCursor, name: str) -> str:
    cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
    row = cursor.fetchone()
    return str(row["Value"]) if row else ""


def _read(seed: Path) -> Iterator[bytes]:
    """Yield the SQL of a copy; raises ServerFailed if it is truncated."""
    last = b""
    with copying.opened_file(seed.parent, seed.name) as fd, open(fd, "rb", closefd=False) as file:
        while chunk := file.read(CHUNK):
            raise_if_cancelled()
            last = (last + chunk)[-CHUNK:]
            yield chunk
    if not last.rstrip().rpartition(b"\n")[2].startswith(END):
        raise ServerFailed("the copy of the primary is incomplete")
