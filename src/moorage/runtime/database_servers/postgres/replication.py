"""Two servers of PostgreSQL: the second streams the log of the first, and holds it before a commit is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.runtime.database_servers import copying
from moorage.runtime.database_servers.ports import (
    ADMIN,
    ARCHIVE,
    CONF,
    DATA,
    RUN,
    TLS,
    Access,
    Primary,
    ServerFailed,
    Software,
)
from moorage.runtime.database_servers.postgres.configuration import REPLICATION_FILE
from moorage.runtime.database_servers.postgres.dumps import connected, environment
from moorage.runtime.database_servers.tools import Toolbox, check_wanted, disk_errors_told

DATABASE = "postgres"
KEPT_LOG = "1GB"  # for a replica that is away; one that needs more is made anew
SILENT_S = 10  # after which either side gives up a connection that says nothing
CATCH_UP_S = 10.0
CHANGE_S = 20.0  # for a running server to read its configuration
PROMOTE_S = 600  # It may have much to apply.
LOOK_S = 0.02

_STREAMS = "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND state = 'streaming'"
_HAS_ALL = """
SELECT count(*) FROM pg_stat_replication
WHERE application_name = %s AND sync_state = 'sync' AND flush_lsn >= %s::pg_lsn
"""
_FREE_SLOTS = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name LIKE 'replica\\_%%' AND NOT active AND (slot_name <> %s OR wal_status = 'lost')
"""
_SLOT = """
SELECT pg_create_physical_replication_slot(%s, true)
WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)
"""


class PostgreSQLReplication:
    needs_loading = False

    def copy(self, software: Software, primary: Access, folder: Path, number: int) -> None:
        self._tell(primary, None)
        with connected(primary, DATABASE) as server:
            server.execute(_FREE_SLOTS, (name_of(number),))
            server.execute(_SLOT, (name_of(number), name_of(number)))
        for name in (RUN, CONF, TLS, ARCHIVE):
            copying.ensure_folder(folder, name)
        copying.put(folder / CONF, REPLICATION_FILE, configuration(waits_for=None, slot=name_of(number)))
        args = ["--format=plain", "--wal-method=stream", "--checkpoint=fast", "--no-password"]
        with disk_errors_told(), Toolbox(software, folder) as box:
            env = environment(box, primary, ADMIN, primary.password, DATABASE)
            target = f"{box.reach(folder)}/{DATA}"
            box.run("pg_basebackup", [*args, f"--slot={name_of(number)}", "-D", target], env)

    def load(self, software: Software, access: Access, primary: Primary) -> None:
        """Do nothing: a copy is complete."""

    def follow(self, replica: Access) -> None:
        """Do nothing: a replica tries by itself, again and again."""

    def is_following(self, primary: Access, replica: Access, number: int) -> bool:
        with connected(primary, DATABASE) as server:
            return bool(_value(server.execute(_STREAMS, (name_of(number),)).fetchone()))

    def is_awaited(self, primary: Access, number: int) -> bool:
        return _awaited(primary) == name_of(number)

    def await_replica(self, primary: Access, replica: Access, number: int) -> None:
        self._tell(primary, number)
        with connected(primary, DATABASE) as server:
            # Whether commits wait is a flag that the checkpointer sets, when it has read the configuration. It does so
            # between two checkpoints: the first of these may have begun before, the second one cannot have.
            server.execute("CHECKPOINT")
            server.execute("CHECKPOINT")
            # What was acknowledged without waiting is before this position.
            reached = _value(server.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone())
            has_all = (name_of(number), reached)
            if not _until(lambda: bool(_value(server.execute(_HAS_ALL, has_all).fetchone())), CATCH_UP_S):
                raise ServerFailed("the replica does not catch up with its primary")

    def go_alone(self, primary: Access) -> None:
        self._tell(primary, None)

    def promote(self, replica: Access) -> None:
        with connected(replica, DATABASE) as server:
            if not _value(server.execute("SELECT pg_is_in_recovery()").fetchone()):
                return
            if not _value(server.execute("SELECT pg_promote(true, %s)", (PROMOTE_S,)).fetchone()):
                raise ServerFailed("the replica does not become a primary")

    def trim(self, primary: Access, replica: Access) -> None:
        """Do nothing: a primary does this by itself."""

    def _tell(self, primary: Access, number: int | None) -> None:
        """Say for whom a primary waits, for good, and return when every session that begins is told the same.

        The process that begins sessions hands on a change of the configuration before it begins another one.
        """
        wanted = "" if number is None else name_of(number)
        copying.put(Path(primary.folder) / CONF, REPLICATION_FILE, configuration(waits_for=number), is_kept=True)
        with connected(primary, DATABASE) as server:
            server.execute("SELECT pg_reload_conf()")
        if not _until(lambda: _awaited(primary) == wanted, CHANGE_S):
            raise ServerFailed("the primary does not read its configuration")


def name_of(number: int) -> str:
    """Return what a primary calls its replica, and the slot that keeps its log for it."""
    return f"replica_{number}"


def configuration(*, waits_for: int | None, slot: str = "") -> str:
    """Return the part of a server's configuration that is about the other one."""
    told = {
        "synchronous_standby_names": "" if waits_for is None else name_of(waits_for),
        "synchronous_commit": "on",
        "max_slot_wal_keep_size": KEPT_LOG,
        "wal_sender_timeout": f"{SILENT_S}s",
        "wal_receiver_timeout": f"{SILENT_S}s",
        "wal_receiver_status_interval": "1s",
        "wal_retrieve_retry_interval": "500ms",
        "primary_slot_name": slot,
    }
    return "".join(f"{name} = '{value}'\n" for name, value in told.items())


def _awaited(primary: Access) -> str:
    with connected(primary, DATABASE) as server:
        return str(_value(server.execute("SHOW synchronous_standby_names").fetchone()))


def _value(row: tuple[Any, ...] | None) -> Any:
    return row[0] if row else None


def _until(is_so: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        check_wanted()
        time.sleep(LOOK_S)
    return True
