"""Table of the machines that share a store.

The lease of a machine is its heartbeat, written by the clock of the database server, so that clocks of machines need
not agree. `epoch` is the fence: it changes with each start, and a process with an older one writes nothing.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ColumnElement, Integer, cast, delete, extract, func, insert, select
from sqlalchemy import update as sql_update
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, columns, scalar, sets_of
from moorage.core.db.schema import id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.core.machines.states import MachineStatus

machine = table(
    "machine",
    id_column(),
    text("key", unique=True),  # from the data folder; identifies the machine across restarts
    text("name", unique=True),
    text("status"),  # MachineStatus
    text("address", nullable=True),  # `host:port` where other machines connect; null if none can
    text("labels"),  # JSON object
    Column("cpu_count", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("load_milli", Integer, nullable=False),  # load average per CPU, times 1000
    text("facts"),  # JSON: measurements of the last heartbeat, for operators
    text("boot"),  # boot id of the kernel and path of the data folder, of the current process
    Column("epoch", Integer, nullable=False),
    millis("heartbeat_at"),  # by the clock of the database server
    millis("gone_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    id: int
    key: str
    name: str
    status: str
    address: str | None
    labels: str
    cpu_count: int
    memory_mb: int
    load_milli: int
    facts: str
    boot: str
    epoch: int
    heartbeat_at: int
    gone_at: int | None
    created_at: int
    updated_at: int

    @property
    def is_gone(self) -> bool:
        return self.status == MachineStatus.GONE


def server_clock(dialect: str) -> ColumnElement[int]:
    """Return the time of the database server; on SQLite the parameter `now`."""
    if dialect == "sqlite":
        return arg("now")
    seconds = extract("epoch", func.clock_timestamp())
    return cast(func.floor(seconds * 1000), BigInteger)


_m = machine.c
_mine = (_m.id == arg("id")) & (_m.epoch == arg("epoch"))


def _join(dialect: str) -> ClauseElement:
    values = {name: arg(name) for name in ("address", "labels", "cpu_count", "memory_mb", "boot")} | {
        "load_milli": 0,
        "epoch": _m.epoch + 1,
        "heartbeat_at": server_clock(dialect),
        "gone_at": None,
    }
    return sql_update(machine).where(_m.id == arg("id")).values(**values, updated_at=arg("now")).returning(_m.epoch)


def _beat(dialect: str) -> ClauseElement:
    measured = {name: arg(name) for name in ("load_milli", "facts", "address")}
    values = {**measured, "heartbeat_at": server_clock(dialect)}
    return sql_update(machine).where(_mine & (_m.status != MachineStatus.GONE.value)).values(**values)


def _all_with_age(dialect: str) -> ClauseElement:
    return select(*columns(machine), server_clock(dialect) - _m.heartbeat_at).order_by(_m.id)


ALL = Query(select(*columns(machine)).order_by(_m.id), Machine)
ALL_WITH_AGE: Query[tuple[Machine, int]] = Query(_all_with_age, lambda *row: (Machine(*row[:-1]), int(row[-1])))
FIND_BY_NAME = Query(select(*columns(machine)).where(_m.name == arg("name")), Machine)
FIND_BY_KEY = Query(select(*columns(machine)).where(_m.key == arg("key")).with_for_update(), Machine)
LOCK = Query(select(*columns(machine)).where(_m.id == arg("id")).with_for_update(), Machine)
NAMES: Query[str] = Query(select(_m.name), scalar)
ADD: Query[int] = Query(insert(machine).returning(_m.id), scalar, sets=sets_of(machine))
JOIN: Query[int] = Query(_join, scalar)
SET_KEY = Command(sql_update(machine).where(_m.id == arg("id")).values(key=arg("new"), updated_at=arg("now")))
BEAT = Command(_beat)
DELETE = Command(delete(machine).where(_m.id == arg("id")))
# Conflicts with the lock of `LOCK`, under which a machine is marked as gone, and not with heartbeats.
HOLD: Query[int] = Query(
    select(_m.id).where(_mine & (_m.status != MachineStatus.GONE.value)).with_for_update(read=True, key_share=True),
    scalar,
)
# Serialises decisions about the placement of resources; released at the end of the transaction.
LOCK_PLACEMENT = Command(select(func.pg_advisory_xact_lock(0x6D6F6F72)))
