"""PostgreSQL streaming replication with synchronous commit to one standby."""

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
from moorage.runtime.database_servers.tools import Toolbox, raise_if_cancelled, wrap_disk_errors

DATABASE = "postgres"
MAX_RETAINED_WAL = "1GB"  # for a disconnected replica; one that needs more is rebuilt
STREAM_TIMEOUT_S = 10  # after which either side drops a silent connection
CATCH_UP_TIMEOUT_S = 10.0
RELOAD_TIMEOUT_S = 20.0
PROMOTE_TIMEOUT_S = 600  # The replica may have much WAL to replay.
POLL_INTERVAL_S = 0.02

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
        self._set_standby(primary, None)
        with connected(primary, DATABASE) as server:
            server.execute(_FREE_SLOTS, (name_of(number),))
            server.execute(_SLOT, (name_of(number), name_of(number)))
        for name in (RUN, CONF, TLS, ARCHIVE):
            copying.ensure_folder(folder, name)
        copying.put(folder / CONF, REPLICATION_FILE, configuration(waits_for=None, slot=name_of(number)))
        args = ["--format=plain", "--wal-method=stream", "--checkpoint=fast", "--no-password"]
        with wrap_disk_errors(), Toolbox(software, folder) as box:
            env = environment(box, primary, ADMIN, primary.password, DATABASE)
            target = f"{box.reach(folder, is_writable=True)}/{DATA}"
            box.run("pg_basebackup", [*args, f"--slot={name_of(number)}", "-D", target], env)

    def load(self, software: Software, access: Access, primary: Primary) -> None:
        """No-op: the copy is complete."""

    def follow(self, replica: Access) -> None:
        """No-op: the server reconnects by itself."""

    def is_following(self, primary: Access, replica: Access, number: int) -> bool:
        with connected(primary, DATABASE) as server:
            return bool(_value(server.execute(_STREAMS, (name_of(number),)).fetchone()))

    def is_awaited(self, primary: Access, number: int) -> bool:
        return _read_standby(primary) == name_of(number)

    def await_replica(self, primary: Access, replica: Access, number: int) -> None:
        self._set_standby(primary, number)
        with connected(primary, DATABASE) as server:
            # Commits wait once the checkpointer has read the configuration, which it does between two checkpoints. The
            # first of these may have started before the reload, the second one cannot have.
            server.execute("CHECKPOINT")
            server.execute("CHECKPOINT")
            # Commits that were acknowledged without waiting are before this position.
            flushed = _value(server.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone())
            parameters = (name_of(number), flushed)
            if not _until(lambda: bool(_value(server.execute(_HAS_ALL, parameters).fetchone())), CATCH_UP_TIMEOUT_S):
                raise ServerFailed("the replica does not catch up with its primary")

    def go_alone(self, primary: Access) -> None:
        self._set_standby(primary, None)

    def promote(self, replica: Access) -> None:
        with connected(replica, DATABASE) as server:
            if not _value(server.execute("SELECT pg_is_in_recovery()").fetchone()):
                return
            if not _value(server.execute("SELECT pg_promote(true, %s)", (PROMOTE_TIMEOUT_S,)).fetchone()):
                raise ServerFailed("the replica does not become a primary")

    def trim(self, primary: Access, replica: Access) -> None:
        """No-op: the primary removes old WAL by itself."""

    def _set_standby(self, primary: Access, number: int | None) -> None:
        """Set synchronous_standby_names durably; return when new sessions use it.

        A new session that shows the value is proof: the postmaster reloads before it starts another session.
        """
        standby = "" if number is None else name_of(number)
        copying.put(Path(primary.folder) / CONF, REPLICATION_FILE, configuration(waits_for=number), is_kept=True)
        with connected(primary, DATABASE) as server:
            server.execute("SELECT pg_reload_conf()")
        if not _until(lambda: _read_standby(primary) == standby, RELOAD_TIMEOUT_S):
            raise ServerFailed("the primary does not read its configuration")


def name_of(number: int) -> str:
    """Return the application_name of a replica, also the name of its replication slot."""
    return f"replica_{number}"


def configuration(*, waits_for: int | None, slot: str = "") -> str:
    """Return the replication settings of a server."""
    values = {
        "synchronous_standby_names": "" if waits_for is None else name_of(waits_for),
        "synchronous_commit": "on",
        "max_slot_wal_keep_size": MAX_RETAINED_WAL,
        "wal_sender_timeout": f"{STREAM_TIMEOUT_S}s",
        "wal_receiver_timeout": f"{STREAM_TIMEOUT_S}s",
        "wal_receiver_status_interval": "1s",
        "wal_retrieve_retry_interval": "500ms",
        "primary_slot_name": slot,
    }
    return "".join(f"{name} = '{value}'\n" for name, value in values.items())


def _read_standby(primary: Access) -> str:
    with connected(primary, DATABASE) as server:
        return str(_value(server.execute("SHOW synchronous_standby_names").fetchone()))


def _value(row: tuple[Any, ...] | None) -> Any:
    return row[0] if row else None


def _until(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        raise_if_cancelled()
        time.sleep(POLL_INTERVAL_S)
    return True
