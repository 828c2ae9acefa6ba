"""Two servers of MariaDB: the second has every transaction in its relay log before the first acknowledges a commit.

A replica is told to follow by us and not by its configuration: when it starts to follow it throws away its relay log
and asks its primary again. If that one has just died, what it acknowledged last would be lost with it. So whatever a
replica has received is applied before anything else happens to it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.mariadb.configuration import MARIADB, REPLICATION_FILE
from moorage.runtime.database_servers.mariadb.dumps import END, SOCKET, connected
from moorage.runtime.database_servers.ports import (
    ADMIN,
    CONF,
    DATA,
    REPLICATOR,
    RUN,
    Access,
    Primary,
    ServerFailed,
    Software,
)
from moorage.runtime.database_servers.tools import CHUNK, Toolbox, check_wanted, disk_errors_told

if TYPE_CHECKING:
    from pymysql.cursors import DictCursor

OWN_DATABASE = "mysql"
SEED = "seed.sql"
FOREVER_MS = 30 * 86_400_000  # How long a commit waits is decided by whoever watches over both, not by the server.
SILENT_S = 10
CATCH_UP_S = 10
APPLY_S = 600.0  # It may have received much more than it has applied.
LOOK_S = 0.02
RELAY_INDEX = "relay.index"
_MAGIC = b"\xfebin"
_HEADER = struct.Struct("<4xB4xI6x")  # of an event: its kind and its length
_GTID = struct.Struct("<QI")  # number and domain of a transaction
_GTID_EVENT = 162
_ALL_APPLIED = "Slave has read all relay log"
_CUT_SHORT = 1594  # The relay log ends within an event: it was not whole when the server died, so not acknowledged.


class MariaDBReplication:
    needs_loading = True

    def copy(self, software: Software, primary: Access, folder: Path, number: int) -> None:
        if software.product != MARIADB:
            raise ServerFailed(f"two servers of {software.product} cannot follow each other here; MariaDB's can")
        self._set_awaited(primary, is_awaited=False)
        copying.fill(Path(software.template), folder)
        copying.put(folder / CONF, REPLICATION_FILE, configuration(is_awaited=False))
        everything = ["--all-databases", "--routines", "--triggers", "--events", "--hex-blob", "--flush-privileges"]
        position = ["--single-transaction", "--quick", "--master-data=1", "--gtid", "--max-allowed-packet=1G"]
        with disk_errors_told(), Toolbox(software, Path(primary.folder)) as box, (folder / SEED).open("xb") as file:
            args = [*_entrance(box, primary), *everything, *position]
            box.read("mariadb-dump", args, {"MYSQL_PWD": primary.password}, file.write)

    def load(self, software: Software, access: Access, primary: Primary) -> None:
        seed = Path(access.folder) / SEED
        with _opened(access) as cursor:
            cursor.execute("RESET MASTER")  # What made this server ours is no part of its history.
        with Toolbox(software, Path(access.folder)) as box:
            args = [*_entrance(box, access), "--binary-mode", "--max-allowed-packet=1G"]
            box.feed(
                "mariadb", [*args, "--init-command=SET sql_log_bin=0"], {"MYSQL_PWD": access.password}, _read(seed)
            )
        with _opened(access) as cursor:
            cursor.execute(
                "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER=%s, MASTER_PASSWORD=%s,"
                " MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=3, MASTER_USE_GTID=slave_pos",
                (primary.port, REPLICATOR, primary.password),
            )
        seed.unlink()

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
        _catch_up(primary, replica)  # Nobody should have to wait for a replica that is far behind.
        self._set_awaited(primary, is_awaited=True)
        _catch_up(primary, replica)  # What was acknowledged without waiting was so before this.
        with _opened(primary) as ours, _opened(replica) as theirs:
            is_on = _figure(ours, "Rpl_semi_sync_master_status") == "ON"
            answers = _figure(theirs, "Rpl_semi_sync_slave_status") == "ON"
        if not (is_on and answers and self.is_following(primary, replica, number)):
            raise ServerFailed("the replica does not answer its primary")

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
        """Say whether a primary waits, for good and for the server that runs."""
        told = configuration(is_awaited=is_awaited)
        copying.put(Path(primary.folder) / CONF, REPLICATION_FILE, told, is_kept=True)
        with _opened(primary) as cursor:
            cursor.execute("SET GLOBAL rpl_semi_sync_master_timeout = %s", (FOREVER_MS,))
            cursor.execute("SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'")
            cursor.execute("SET GLOBAL rpl_semi_sync_master_enabled = %s", (int(is_awaited),))


def configuration(*, is_awaited: bool) -> str:
    """Return the part of a server's configuration that is about the other one."""
    told = {
        "rpl_semi_sync_master_enabled": int(is_awaited),
        "rpl_semi_sync_master_timeout": FOREVER_MS,
        "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
        "rpl_semi_sync_master_wait_no_slave": 1,
        "rpl_semi_sync_slave_enabled": 1,
        "skip_slave_start": 1,
        "slave_net_timeout": SILENT_S,
    }
    return "".join(["[mysqld]\n", *(f"{name} = {value}\n" for name, value in told.items())])


# What a replica has received.


def _catch_up(primary: Access, replica: Access) -> None:
    """Wait until a replica has applied what its primary has now."""
    with _opened(primary) as cursor:
        reached = _one(cursor, "SELECT @@gtid_binlog_pos")
    with _opened(replica) as cursor:
        if _one(cursor, "SELECT MASTER_GTID_WAIT(%s, %s)", reached, CATCH_UP_S) != 0:
            raise ServerFailed("the replica does not catch up with its primary")


def _apply_all(cursor: DictCursor, folder: Path) -> None:
    """Apply everything that a replica has received; nothing more comes in meanwhile."""
    status = _status(cursor)
    if status["Slave_SQL_Running"] == "Yes":
        _wait_until_applied(cursor)
        return
    if status["Last_SQL_Errno"]:
        raise ServerFailed(f"the replica cannot apply a change: {status['Last_SQL_Error']}")
    missing = find_missing(folder / DATA, str(_one(cursor, "SELECT @@gtid_slave_pos")))
    if missing is None:
        return
    # Only like this does a server that was started anew read its relay log on, and not throw it away.
    cursor.execute("CHANGE MASTER TO RELAY_LOG_FILE=%s, RELAY_LOG_POS=%s, MASTER_USE_GTID=no", missing)
    cursor.execute("START SLAVE SQL_THREAD")
    if not _wait_until_applied(cursor, may_fail=True):
        # A change to the schema that was made when the server died, and not noted yet, is met again as the first.
        cursor.execute("SET GLOBAL sql_slave_skip_counter = 1")
        cursor.execute("START SLAVE SQL_THREAD")
        _wait_until_applied(cursor)


def _wait_until_applied(cursor: DictCursor, *, may_fail: bool = False) -> bool:
    deadline = time.monotonic() + APPLY_S
    while time.monotonic() < deadline:
        status = _status(cursor)
        if status["Slave_SQL_Running_State"].startswith(_ALL_APPLIED) or status["Last_SQL_Errno"] == _CUT_SHORT:
            return True
        if status["Slave_SQL_Running"] == "No":
            if may_fail:
                return False
            raise ServerFailed(f"the replica cannot apply a change: {status['Last_SQL_Error']}")
        check_wanted()
        time.sleep(LOOK_S)
    raise ServerFailed("the replica has not applied everything yet")


def find_missing(data: Path, applied: str) -> tuple[str, int] | None:
    """Return where in the relay log of a server that does not run on the first transaction is that it has not applied.

    The server's own note of how far it came is written seldom; what it has applied it knows exactly.
    """
    done = {int(domain): int(number) for domain, _, number in (each.split("-") for each in applied.split(",") if each)}
    index = data / RELAY_INDEX
    names = [Path(line).name for line in index.read_text().splitlines()] if index.exists() else []
    for name in names:
        for position, domain, number in _transactions(data / name):
            if number > done.get(domain, 0):
                return name, position
    return None


def _transactions(log: Path) -> Iterator[tuple[int, int, int]]:
    """Yield where each transaction of a log begins, with its domain and number. The last event may be cut short."""
    with log.open("rb") as file:
        size, position = log.stat().st_size, len(_MAGIC)
        while position + _HEADER.size + _GTID.size <= size:
            file.seek(position)
            kind, length = _HEADER.unpack(file.read(_HEADER.size))
            if length < _HEADER.size or position + length > size:
                return
            if kind == _GTID_EVENT:
                number, domain = _GTID.unpack(file.read(_GTID.size))
                yield position, domain, number
            position += length


# Speaking to a server.


@contextmanager
def _opened(access: Access) -> Iterator[DictCursor]:
    from pymysql.cursors import DictCursor

    with connected(access, OWN_DATABASE) as connection, connection.cursor(DictCursor) as cursor:
        yield cursor


def _find_status(cursor: DictCursor) -> dict[str, Any] | None:
    cursor.execute("SHOW SLAVE STATUS")
    found: dict[str, Any] | None = cursor.fetchone()
    return found


def _status(cursor: DictCursor) -> dict[str, Any]:
    found = _find_status(cursor)
    if found is None:
        raise ServerFailed("the server follows nobody")
    return found


def _one(cursor: DictCursor, query: str, *values: Any) -> Any:
    cursor.execute(query, values)
    row = cursor.fetchone()
    return next(iter(row.values())) if row else None


def _figure(cursor: DictCursor, name: str) -> str:
    cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
    row = cursor.fetchone()
    return str(row["Value"]) if row else ""


def _entrance(box: Toolbox, access: Access) -> list[str]:
    socket = f"{box.reach(Path(access.folder) / RUN)}/{SOCKET}"
    return ["--no-defaults", f"--socket={socket}", f"--user={ADMIN}", "--default-character-set=utf8mb4"]


def _read(seed: Path) -> Iterator[bytes]:
    """Yield a copy's statements; raises ServerFailed where it ends too early."""
    last = b""
    with seed.open("rb") as file:
        while chunk := file.read(CHUNK):
            check_wanted()
            last = (last + chunk)[-CHUNK:]
            yield chunk
    if not last.rstrip().rpartition(b"\n")[2].startswith(END):
        raise ServerFailed("the copy of the primary is incomplete")
