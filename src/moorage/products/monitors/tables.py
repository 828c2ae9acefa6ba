"""Tables and queries of monitors, their checks and the probers."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)

from moorage.core.db.query import Command, Query, arg, columns, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.products.monitors.states import MonitorStatus

monitor = table(
    "monitor",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("project_id", Id, nullable=True),
    text("name"),
    text("url"),
    text("status"),  # MonitorStatus
    Column("interval_s", Integer, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("retries", Integer, nullable=False),
    text("http_method"),
    text("status_codes"),  # JSON
    text("keyword", nullable=True),
    # Headers and bodies carry credentials, so they are in the vault; most monitors have neither.
    Column("has_headers", Boolean, nullable=False),
    Column("has_body", Boolean, nullable=False),
    Column("expire_cert_notify", Boolean, nullable=False),
    Column("ignore_tls_error", Boolean, nullable=False),
    Column("is_public", Boolean, nullable=False),  # shown on the organization's status page
    millis("from_at"),  # when the first check is due, after creation or resumption
    Column("revision", Integer, nullable=False),  # incremented by each change; the prober compares it
    text("prober", nullable=True),  # token of the prober that checks it
    millis("created_at"),
    millis("updated_at"),
)
Index("ix_monitor_org_id", monitor.c.org_id)
Index("ix_monitor_prober", monitor.c.status, monitor.c.prober)
Index("ix_monitor_project_id", monitor.c.project_id)

# Columns that change with each check, separate from the settings of a monitor.
state = table(
    "monitor_state",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False, unique=True),
    text("last_status", nullable=True),
    Column("last_response_ms", Integer, nullable=True),
    Column("last_code", Integer, nullable=True),
    millis("last_at", nullable=True),
    millis("last_slot", nullable=True),
    Column("lag_ms", Integer, nullable=True),  # delay of the last check
    Column("missed", Integer, nullable=False),  # checks that were due and did not run
    text("ssl_subject", nullable=True),
    text("ssl_issuer", nullable=True),
    millis("ssl_valid_to", nullable=True),
    text("ssl_fingerprint", nullable=True),
)

# No foreign keys: a maintenance task deletes the rows of deleted monitors later.
heartbeat = table(
    "heartbeat",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    millis("slot"),  # due time; one check per slot
    millis("at"),  # start of the check
    text("status"),  # BeatStatus
    Column("response_ms", Integer, nullable=True),
    Column("code", Integer, nullable=True),
    text("message"),
    UniqueConstraint("monitor_id", "slot"),
)
Index("ix_heartbeat_slot", heartbeat.c.slot)

rollup = table(
    "monitor_rollup",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    Column("span_s", Integer, nullable=False),  # 60, 3600 or 86400
    millis("start"),
    Column("up", Integer, nullable=False),
    Column("down", Integer, nullable=False),
    Column("response_sum", Id, nullable=False),  # ms, of the checks that were up
    UniqueConstraint("monitor_id", "span_s", "start"),
)
Index("ix_monitor_rollup_start", rollup.c.span_s, rollup.c.start)

pause = table(
    "monitor_pause",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    millis("began_at"),
    millis("ended_at", nullable=True),
)
Index("ix_monitor_pause_monitor_id", pause.c.monitor_id)

certificate_notice = table(
    "certificate_notice",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    text("fingerprint"),
    Column("threshold_days", Integer, nullable=False),
    millis("created_at"),
    UniqueConstraint("monitor_id", "fingerprint", "threshold_days"),
)

# Processes that check monitors. When a lease expires, other probers take over the monitors of its process.
prober = table(
    "prober",
    id_column(),
    text("token", unique=True),
    millis("lease_until"),
    millis("created_at"),
)

HEADERS, BODY = "headers", "http_body"  # names in the vault
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
SPANS = (MINUTE_S, HOUR_S, DAY_S)


@dataclass(frozen=True, slots=True)
class Monitor:
    id: int
    org_id: int
    project_id: int | None
    name: str
    url: str
    status: str
    interval_s: int
    timeout_ms: int
    retries: int
    http_method: str
    status_codes: str
    keyword: str | None
    has_headers: bool
    has_body: bool
    expire_cert_notify: bool
    ignore_tls_error: bool
    is_public: bool
    from_at: int
    revision: int
    prober: str | None
    created_at: int
    updated_at: int

    @property
    def codes(self) -> list[str]:
        codes: list[str] = json.loads(self.status_codes)
        return codes

    @property
    def is_running(self) -> bool:
        return self.status == MonitorStatus.RUNNING

    @property
    def resource(self) -> str:
        return f"monitor:{self.id}"


@dataclass(frozen=True, slots=True)
class State:
    id: int
    org_id: int
    monitor_id: int
    last_status: str | None
    last_response_ms: int | None
    last_code: int | None
    last_at: int | None
    last_slot: int | None
    lag_ms: int | None
    missed: int
    ssl_subject: str | None
    ssl_issuer: str | None
    ssl_valid_to: int | None
    ssl_fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    id: int
    org_id: int
    monitor_id: int
    slot: int
    at: int
    status: str
    response_ms: int | None
    code: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Pause:
    id: int
    org_id: int
    monitor_id: int
    began_at: int
    ended_at: int | None


_m, _s, _h, _p = monitor.c, state.c, heartbeat.c, pause.c
_this = (_m.org_id == arg("org_id")) & (_m.id == arg("id"))

ADD: Query[int] = Query(insert(monitor).returning(_m.id), scalar, sets=sets_of(monitor))
ADD_STATE = Command(insert(state), sets=("monitor_id", "org_id", "missed"))
FIND = Query(select(*columns(monitor)).where(_this), Monitor)
LOCK = Query(select(*columns(monitor)).where(_this).with_for_update(), Monitor)
ALL_OF = Query(select(*columns(monitor)).where(_m.org_id == arg("org_id")).order_by(_m.id.desc()), Monitor)
PUBLIC_OF = Query(
    select(*columns(monitor)).where((_m.org_id == arg("org_id")) & _m.is_public).order_by(_m.name, _m.id), Monitor
)
COUNT = Query(select(func.count()).select_from(monitor).where(_m.org_id == arg("org_id")), scalar)
DELETE = Command(delete(monitor).where(_this))
CHANGEABLE = (
    "name", "url", "interval_s", "timeout_ms", "retries", "http_method", "status_codes", "keyword", "has_headers",
    "has_body", "expire_cert_notify", "ignore_tls_error", "is_public",
)  # fmt: skip
SET: dict[str, Command] = {
    column: Command(update(monitor).where(_this).values({column: arg("new"), "updated_at": arg("now")}))
    for column in CHANGEABLE
}
TOUCH = Command(update(monitor).where(_this).values(revision=_m.revision + 1, updated_at=arg("now")))
RESTART = Command(update(monitor).where(_this).values(from_at=arg("now"), revision=_m.revision + 1))
DETACH_PROJECT = Command(
    update(monitor)
    .where((_m.org_id == arg("org_id")) & (_m.project_id == arg("project_id")))
    .values(project_id=None, updated_at=arg("now"))
)

_of_state = (_s.org_id == arg("org_id")) & (_s.monitor_id == arg("id"))
FIND_STATE = Query(select(*columns(state)).where(_of_state), State)
STATES_OF = Query(select(*columns(state)).where(_s.org_id == arg("org_id")), State)
DELETE_STATE = Command(delete(state).where(_of_state))

_of_beats = (_h.org_id == arg("org_id")) & (_h.monitor_id == arg("id"))
HEARTBEATS = Query(
    select(*columns(heartbeat)).where(_of_beats).order_by(_h.slot.desc()).limit(arg("most", Integer)), Heartbeat
)

_of_pauses = (_p.org_id == arg("org_id")) & (_p.monitor_id == arg("id"))
ADD_PAUSE: Query[int] = Query(insert(pause).returning(_p.id), scalar, sets=("org_id", "monitor_id", "began_at"))
END_PAUSE = Command(update(pause).where(_of_pauses & _p.ended_at.is_(None)).values(ended_at=arg("now")))
PAUSES = Query(
    select(*columns(pause))
    .where(_of_pauses & (_p.ended_at.is_(None) | (_p.ended_at > arg("since"))))
    .order_by(_p.began_at),
    Pause,
)


def row(of: Any) -> dict[str, Any]:
    """Return the fields of a row as parameters of an insert."""
    return {name: getattr(of, name) for name in of.__slots__}
