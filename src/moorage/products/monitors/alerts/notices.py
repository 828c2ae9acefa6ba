"""The outbox of alerts: notices with their content and receivers.

A notice is a row that is added, together with its delivery job, in the transaction of its cause. It has the full
content at that time, and is unique per subject, kind, channel and address: a crash loses no notice, and a repeated
transaction adds no duplicate.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.products.monitors.alerts import messages
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.messages import NoticeContent as NoticeContent
from moorage.products.monitors.alerts.messages import Observed as Observed
from moorage.products.monitors.alerts.tables import SLACK_WEBHOOK, WEBHOOK_URL, Alert, Incident, Notice
from moorage.products.monitors.probing.beats import Certificate
from moorage.products.monitors.states import NoticeStatus
from moorage.products.monitors.tables import Monitor

MAX_ATTEMPTS = 1_000  # More than fit into the retry period, so that the period is the limit.
EMAIL, SLACK, WEBHOOK = "email", "slack", "webhook"
SECRETS = {SLACK: SLACK_WEBHOOK, WEBHOOK: WEBHOOK_URL}  # name in the vault of the address of a channel


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
    """Receiver of a notice, with the alert that has the settings of its channel."""

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
    """Return the users that receive alerts: approved, with at least the member role."""
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
    """Add notices for all open channels and notifications for all users. Idempotent.

    Without an alert the notice is about a certificate; it goes to all recipients and to the channels of all alerts of
    the monitor. `message` is additional text, such as the reason for the end of an incident.
    """
    org = orgs.find(tx, org_id)
    if org is None:
        return []  # The organization was just deleted; its monitors follow.
    content = messages.make(org, monitor, alert, incident, kind, observed, message, certificate, tx.now)
    receivers = recipients(tx, org_id)
    for each in receivers:
        title, body = messages.headline(content), "\n".join(messages.details(content))
        notifications.add(tx, each.user_id, messages.EVENTS[kind], title, body, about=about, org_id=org_id)
    addresses = _of_monitor(tx, org_id, monitor, receivers) if alert is None else _of_alert(alert, receivers)
    return _write(tx, org_id, monitor, incident, about, content, list(addresses))


def add_test(tx: Tx, org_id: int, monitor: Monitor, alert: Alert) -> list[Notice]:
    """Add a test notice for every open channel of an alert."""
    observed = Observed(None, None, None, "This is a test", tx.now)
    content = messages.make(orgs.get(tx, org_id), monitor, alert, None, messages.TEST, observed, "", None, tx.now)
    addresses = list(_of_alert(alert, recipients(tx, org_id)))
    return _write(tx, org_id, monitor, None, f"test:{new_uuid()}", content, addresses)


def is_open(alert: Alert, channel: str) -> bool:
    """Return whether a channel of an alert is enabled and works."""
    if channel == SLACK:
        return alert.by_slack and alert.slack_off is None
    return alert.by_webhook and alert.webhook_off is None


def _of_alert(alert: Alert, receivers: list[Recipient]) -> Iterator[_Address]:
    if alert.by_email:
        yield from (_Address(EMAIL, each.email, alert.id) for each in receivers)
    for channel in SECRETS:
        if is_open(alert, channel):
            yield _Address(channel, "", alert.id)


def _of_monitor(tx: Tx, org_id: int, monitor: Monitor, receivers: list[Recipient]) -> Iterator[_Address]:
    """Return the addresses of all alerts of a monitor, each once."""
    yield from (_Address(EMAIL, each.email, None) for each in receivers)
    seen: set[tuple[str, str | None]] = set()
    for alert in tx.all(alert_tables.OF_MONITOR, org_id=org_id, monitor_id=monitor.id):
        for channel, secret in SECRETS.items():
            if not alert.is_enabled or not is_open(alert, channel):
                continue
            address = (channel, vault.find(tx, org_id, alert.resource, secret))
            if address not in seen:
                seen.add(address)
                yield _Address(channel, alert.resource, alert.id)


def _write(
    tx: Tx,
    org_id: int,
    monitor: Monitor,
    incident: Incident | None,
    about: str,
    content: NoticeContent,
    addresses: list[_Address],
) -> list[Notice]:
    payload = messages.encode(content)
    written = []
    for address in addresses:
        row = {
            "uuid": new_uuid(),
            "org_id": org_id,
            "monitor_id": monitor.id,
            "alert_id": address.alert_id,
            "incident_id": incident.id if incident else None,
            "about": about,
            "kind": content.kind,
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
            schedule_delivery(tx, org_id, notice)
            written.append(notice)
    return written


def schedule_delivery(tx: Tx, org_id: int, notice: Notice, *, delay_ms: int = 0) -> None:
    """Add the delivery job of a notice. A receiver gets one at a time, oldest first."""
    of = f"alert:{notice.alert_id}" if notice.alert_id is not None else f"monitor:{notice.monitor_id}"
    key = f"{of}:{notice.channel}:{notice.target}"
    payload = DeliverNotice(org_id, notice.id)
    jobs.add(tx, payload, key=key, lane=Lane.NOTICES, delay_ms=delay_ms, max_attempts=MAX_ATTEMPTS)
