"""Tables and queries of alerts, incidents and notices."""

from __future__ import annotations

import json

from sqlalchemy import Boolean, Column, Float, Index, Integer, UniqueConstraint, delete, insert, select, update

from moorage.core.db.query import Command, Query, arg, columns, insert_or_ignore, scalar, sets_of
from moorage.core.db.schema import Id, id_column, millis, table, text
from moorage.core.kit.records import dataclass
from moorage.products.monitors.states import AlertStatus

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
    text("slack_off", nullable=True),  # the reason why the channel is not used any more
    text("webhook_off", nullable=True),
    text("status"),  # AlertStatus
    Column("is_enabled", Boolean, nullable=False),
    Column("acknowledged", Boolean, nullable=False),
    millis("last_triggered_at", nullable=True),
    # Progress between two statuses.
    millis("pending_since", nullable=True),  # first of the consecutive matching samples
    Column("good_samples", Integer, nullable=False),  # consecutive, while it is triggered
    millis("good_since", nullable=True),
    text("fired_at"),  # JSON: times of the latest fires
    Column("is_flapping", Boolean, nullable=False),
    Column("incident_id", Id, nullable=True),  # the open incident
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
    text("observed"),  # JSON: the sample that triggered it
    millis("started_at"),
    millis("resolved_at", nullable=True),
)
Index("ix_alert_incident_monitor_id", incident.c.monitor_id, incident.c.started_at)

# The outbox: each row is added once, with its job, in the transaction of its cause.
notice = table(
    "alert_notice",
    id_column(),
    text("uuid", unique=True),  # lets receivers detect a repeated delivery
    Column("org_id", Id, nullable=False),
    Column("monitor_id", Id, nullable=False),
    Column("alert_id", Id, nullable=True),  # null for a certificate
    Column("incident_id", Id, nullable=True),
    text("about"),  # subject, such as the uuid of the incident
    text("kind"),  # triggered, resolved, flapping, test, certificate
    text("channel"),  # email, slack, webhook
    text("target"),  # mail address; empty if the vault has the address; the alert's resource for a certificate
    text("payload"),  # JSON: NoticeContent
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

SLACK_WEBHOOK, WEBHOOK_URL = "slack_webhook", "webhook_url"  # names in the vault


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
        fires: list[int] = json.loads(self.fired_at)
        return fires

    @property
    def is_evaluated(self) -> bool:
        return self.status != AlertStatus.INACTIVE

    @property
    def resource(self) -> str:
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
_this = (_a.org_id == arg("org_id")) & (_a.id == arg("id"))
_of_monitor = (_a.org_id == arg("org_id")) & (_a.monitor_id == arg("monitor_id"))

ADD: Query[int] = Query(insert(alert).returning(_a.id), scalar, sets=sets_of(alert))
FIND = Query(select(*columns(alert)).where(_this), Alert)
LOCK = Query(select(*columns(alert)).where(_this).with_for_update(), Alert)
OF_MONITOR = Query(select(*columns(alert)).where(_of_monitor).order_by(_a.id), Alert)
LOCK_OF_MONITOR = Query(select(*columns(alert)).where(_of_monitor).order_by(_a.id).with_for_update(), Alert)
DELETE = Command(delete(alert).where(_this))
CHANGEABLE = (
    "metric", "condition", "threshold", "duration_min", "severity", "by_email", "by_slack", "by_webhook", "slack_off",
    "webhook_off", "is_enabled", "acknowledged",
)  # fmt: skip
SET: dict[str, Command] = {
    column: Command(update(alert).where(_this).values({column: arg("new"), "updated_at": arg("now")}))
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
# Does nothing if the same notice exists.
ADD_NOTICE: Query[int] = Query(insert_or_ignore(notice), scalar, sets=sets_of(notice))
FIND_NOTICE = Query(select(*columns(notice)).where(_of_notice), Notice)
