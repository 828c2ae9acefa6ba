"""Alerts, their incidents, and what is to be told about them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Boolean, Column, Float, Index, Integer, UniqueConstraint, delete, insert, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.products.monitors.states import AlertStatus
from moorage.products.monitors.tables import sets_of

alert = table(
    "alert",
    id_column(),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    text("metric"),
    text("condition"),
    Column("threshold", Float, nullable=False),
    Column("duration_min", Integer, nullable=False),
    text("severity"),
    Column("by_email", Boolean, nullable=False),
    Column("by_slack", Boolean, nullable=False),
    Column("by_webhook", Boolean, nullable=False),
    text("slack_off", nullable=True),  # why nothing is sent there any more
    text("webhook_off", nullable=True),
    text("status"),  # AlertStatus
    Column("is_enabled", Boolean, nullable=False),
    Column("acknowledged", Boolean, nullable=False),
    millis("last_triggered_at", nullable=True),
    # Where it is on the way from one status to the next.
    millis("pending_since", nullable=True),  # the first of the samples in a row that match
    Column("good_samples", Integer, nullable=False),  # in a row, while it is triggered
    millis("good_since", nullable=True),
    text("fired_at"),  # JSON: when it was triggered, of late
    Column("is_flapping", Boolean, nullable=False),
    Column("incident_id", Id, nullable=True),  # the one that is open
    millis("created_at"),
    millis("updated_at"),
)
Index("ix_alert_monitor_id", alert.c.monitor_id)

incident = table(
    "alert_incident",
    id_column(),
    text("uuid", unique=True),
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    Column("alert_id", Id, nullable=False),
    Column("is_flapping", Boolean, nullable=False),
    text("observed"),  # JSON: what triggered it
    millis("started_at"),
    millis("resolved_at", nullable=True),
)
Index("ix_alert_incident_monitor_id", incident.c.monitor_id, incident.c.started_at)

# The outbox: a row is written in the transaction that makes it necessary, once, and a job with it.
notice = table(
    "alert_notice",
    id_column(),
    text("uuid", unique=True),  # receivers tell a repeated delivery by it
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    Column("alert_id", Id, nullable=True),  # null where it is about a certificate
    Column("incident_id", Id, nullable=True),
    text("about"),  # the incident, or what else it is told once for
    text("kind"),  # triggered, resolved, flapping, test, certificate
    text("channel"),  # email, slack, webhook
    text("target"),  # an address; empty where the vault has it, or whose of several, for a certificate
    text("payload"),  # JSON: what there is to tell, as it was then
    text("status"),  # NoticeStatus
    Column("attempts", Integer, nullable=False),
    text("last_error", nullable=True),
    millis("delivered_at", nullable=True),
    millis("created_at"),
    millis("updated_at"),
    UniqueConstraint("about", "kind", "channel", "target"),
)
Index("ix_alert_notice_alert_id", notice.c.alert_id)
Index("ix_alert_notice_created_at", notice.c.created_at)

SLACK_WEBHOOK, WEBHOOK_URL = "slack_webhook", "webhook_url"  # what the vault keeps of an alert


@dataclass(frozen=True, slots=True)
class Alert:
    id: int
    org_id: int
    monitor_id: int
    metric: str
    condition: str
    threshold: float
    duration_min: int
    severity: str
    by_email: bool
    by_slack: bool
    by_webhook: bool
    slack_off: str | None
    webhook_off: str | None
    status: str
    is_enabled: bool
    acknowledged: bool
    last_triggered_at: int | None
    pending_since: int | None
    good_samples: int
    good_since: int | None
    fired_at: str
    is_flapping: bool
    incident_id: int | None
    created_at: int
    updated_at: int

    @property
    def recent_fires(self) -> list[int]:
        found: list[int] = json.loads(self.fired_at)
        return found

    @property
    def is_watched(self) -> bool:
        return self.status != AlertStatus.INACTIVE

    @property
    def resource(self) -> str:
        """Return what the vault calls it."""
        return f"alert:{self.id}"


@dataclass(frozen=True, slots=True)
class Incident:
    id: int
    uuid: str
    org_id: int
    monitor_id: int
    alert_id: int
    is_flapping: bool
    observed: str
    started_at: int
    resolved_at: int | None


@dataclass(frozen=True, slots=True)
class Notice:
    id: int
    uuid: str
    org_id: int
    monitor_id: int
    alert_id: int | None
    incident_id: int | None
    about: str
    kind: str
    channel: str
    target: str
    payload: str
    status: str
    attempts: int
    last_error: str | None
    delivered_at: int | None
    created_at: int
    updated_at: int


_a, _i, _n = alert.c, incident.c, notice.c
_mine = (_a.org_id == arg("org_id")) & (_a.id == arg("id"))
_of_monitor = (_a.org_id == arg("org_id")) & (_a.monitor_id == arg("monitor_id"))

ADD: Query[int] = Query(insert(alert).returning(_a.id), scalar, sets=sets_of(alert))
FIND = Query(select(*columns(alert)).where(_mine), Alert)
LOCK = Query(select(*columns(alert)).where(_mine).with_for_update(), Alert)
OF_MONITOR = Query(select(*columns(alert)).where(_of_monitor).order_by(_a.id), Alert)
LOCK_OF_MONITOR = Query(select(*columns(alert)).where(_of_monitor).order_by(_a.id).with_for_update(), Alert)
DELETE = Command(delete(alert).where(_mine))
CHANGEABLE = (
    "metric", "condition", "threshold", "duration_min", "severity", "by_email", "by_slack", "by_webhook", "slack_off",
    "webhook_off", "is_enabled", "acknowledged",
)  # fmt: skip
SET: dict[str, Command] = {
    column: Command(update(alert).where(_mine).values({column: arg("new"), "updated_at": arg("now")}))
    for column in CHANGEABLE
}

_of_incident = (_i.org_id == arg("org_id")) & (_i.id == arg("id"))
ADD_INCIDENT: Query[int] = Query(insert(incident).returning(_i.id), scalar, sets=sets_of(incident))
FIND_INCIDENT = Query(select(*columns(incident)).where(_of_incident), Incident)
END_INCIDENT = Command(update(incident).where(_of_incident & _i.resolved_at.is_(None)).values(resolved_at=arg("now")))
INCIDENTS_OF_MONITOR = Query(
    select(*columns(incident))
    .where((_i.org_id == arg("org_id")) & (_i.monitor_id == arg("monitor_id")) & (_i.started_at >= arg("since")))
    .order_by(_i.started_at.desc())
    .limit(arg("most", Integer)),
    Incident,
)

_of_notice = (_n.org_id == arg("org_id")) & (_n.id == arg("id"))
# Does nothing where the same was told already.
ADD_NOTICE: Query[int] = Query(insert_or_ignore(notice), scalar, sets=sets_of(notice))
FIND_NOTICE = Query(select(*columns(notice)).where(_of_notice), Notice)
