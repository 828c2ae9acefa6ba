"""The outbox of alerts: what there is to tell, and to whom.

A notice is a row that is written, with the job that delivers it, in the transaction that makes it necessary. It carries
all that will be told, as it was then, and there is one for each matter, kind, channel and address: so nothing is lost
where the platform stops right after, and nothing is told twice where the same is found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from sqlalchemy import select

from moorage.accounts.identity import notifications
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.tables import account, membership
from moorage.core import jobs
from moorage.core.db.query import Query, arg
from moorage.core.db.tx import Tx
from moorage.core.jobs import Lane
from moorage.core.kit.ids import new_uuid
from moorage.core.vault import service as vault
from moorage.products.monitors.alerts import messages as stories
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.messages import Observed as Observed
from moorage.products.monitors.alerts.messages import Story as Story
from moorage.products.monitors.alerts.tables import SLACK_WEBHOOK, WEBHOOK_URL, Alert, Incident, Notice
from moorage.products.monitors.probing.beats import Certificate
from moorage.products.monitors.states import NoticeStatus
from moorage.products.monitors.tables import Monitor

ATTEMPTS = 1_000  # More than fit into the time for which a notice is tried: that ends it, and not their number.
EMAIL, SLACK, WEBHOOK = "email", "slack", "webhook"
SECRETS = {SLACK: SLACK_WEBHOOK, WEBHOOK: WEBHOOK_URL}  # what the vault calls the address of a channel


class DeliverNotice(msgspec.Struct, frozen=True, tag="alerts.deliver"):
    """Send one notice to its receiver."""

    org_id: int
    notice_id: int


@dataclass(frozen=True, slots=True)
class Recipient:
    user_id: int
    email: str


@dataclass(frozen=True, slots=True)
class _Address:
    """Where a notice goes, and by which alert's settings if not to a person."""

    channel: str
    target: str
    alert_id: int | None


_m, _u = membership.c, account.c
_RECIPIENTS = Query(
    select(_m.user_id, _u.email)
    .join(account, _u.id == _m.user_id)
    .where(
        (_m.org_id == arg("org_id"))
        & _m.role.in_([role.value for role in Role if role.reaches(Role.MEMBER)])
        & (_u.status == Approval.APPROVED.value)
        & _u.suspended_at.is_(None)
    )
    .order_by(_m.joined_at, _m.id),
    Recipient,
)


def recipients(tx: Tx, org_id: int) -> list[Recipient]:
    """Return who is told of alerts in person: members who can do something about them."""
    return tx.all(_RECIPIENTS, org_id=org_id)


def add(
    tx: Tx,
    org_id: int,
    *,
    monitor: Monitor,
    alert: Alert | None,
    incident: Incident | None,
    about: str,
    kind: str,
    observed: Observed,
    message: str = "",
    certificate: Certificate | None = None,
) -> list[Notice]:
    """Tell of something over every channel that is on, and in the product. A second call with it adds nothing.

    Without an alert it is about a certificate, which is told to all people and over the channels of all of the
    monitor's alerts. `message` is what is to be said besides, such as why something ended.
    """
    org = orgs.find(tx, org_id)
    if org is None:
        return []  # It was just deleted, and what it had goes next.
    story = stories.make(org, monitor, alert, incident, kind, observed, message, certificate, tx.now)
    told = recipients(tx, org_id)
    for each in told:
        title, body = stories.headline(story), "\n".join(stories.details(story))
        notifications.tell(tx, each.user_id, stories.EVENTS[kind], title, body, about=about, org_id=org_id)
    addresses = _of_monitor(tx, org_id, monitor, told) if alert is None else _of_alert(alert, told)
    return _write(tx, org_id, monitor, incident, about, story, list(addresses))


def add_test(tx: Tx, org_id: int, monitor: Monitor, alert: Alert) -> list[Notice]:
    """Send a notice over every channel of an alert that is on, so that people see whether it arrives."""
    observed = Observed(None, None, None, "This is a test", tx.now)
    story = stories.make(orgs.get(tx, org_id), monitor, alert, None, stories.TEST, observed, "", None, tx.now)
    addresses = list(_of_alert(alert, recipients(tx, org_id)))
    return _write(tx, org_id, monitor, None, f"test:{new_uuid()}", story, addresses)


def is_open(alert: Alert, channel: str) -> bool:
    """Tell whether an alert sends anything over a channel."""
    if channel == SLACK:
        return alert.by_slack and alert.slack_off is None
    return alert.by_webhook and alert.webhook_off is None


def _of_alert(alert: Alert, told: list[Recipient]) -> Iterator[_Address]:
    if alert.by_email:
        yield from (_Address(EMAIL, each.email, alert.id) for each in told)
    for channel in SECRETS:
        if is_open(alert, channel):
            yield _Address(channel, "", alert.id)


def _of_monitor(tx: Tx, org_id: int, monitor: Monitor, told: list[Recipient]) -> Iterator[_Address]:
    """Return the addresses for what concerns a monitor as a whole: several alerts may share one, which is told once."""
    yield from (_Address(EMAIL, each.email, None) for each in told)
    seen: set[tuple[str, str | None]] = set()
    for alert in tx.all(alert_tables.OF_MONITOR, org_id=org_id, monitor_id=monitor.id):
        for channel, secret in SECRETS.items():
            if not alert.is_enabled or not is_open(alert, channel):
                continue
            place = (channel, vault.find(tx, org_id, alert.resource, secret))
            if place not in seen:
                seen.add(place)
                yield _Address(channel, alert.resource, alert.id)


def _write(
    tx: Tx,
    org_id: int,
    monitor: Monitor,
    incident: Incident | None,
    about: str,
    story: Story,
    addresses: list[_Address],
) -> list[Notice]:
    """Write the rows that are not there yet, each with its job."""
    payload = stories.encode(story)
    written = []
    for address in addresses:
        row = {
            "uuid": new_uuid(),
            "org_id": org_id,
            "monitor_id": monitor.id,
            "alert_id": address.alert_id,
            "incident_id": incident.id if incident else None,
            "about": about,
            "kind": story.kind,
            "channel": address.channel,
            "target": address.target,
            "payload": payload,
            "status": NoticeStatus.PENDING,
            "attempts": 0,
            "last_error": None,
            "delivered_at": None,
            "created_at": tx.now,
            "updated_at": tx.now,
        }
        notice_id = tx.find(alert_tables.ADD_NOTICE, **row)
        if notice_id is not None:
            notice = Notice(id=notice_id, **row)  # type: ignore[arg-type]
            ask(tx, org_id, notice)
            written.append(notice)
    return written


def ask(tx: Tx, org_id: int, notice: Notice, *, delay_ms: int = 0) -> None:
    """Ask for the delivery of a notice. One receiver gets one at a time, oldest first."""
    of = f"alert:{notice.alert_id}" if notice.alert_id is not None else f"monitor:{notice.monitor_id}"
    key = f"{of}:{notice.channel}:{notice.target}"
    payload = DeliverNotice(org_id, notice.id)
    jobs.add(tx, payload, key=key, lane=Lane.NOTICES, delay_ms=delay_ms, max_attempts=ATTEMPTS)
