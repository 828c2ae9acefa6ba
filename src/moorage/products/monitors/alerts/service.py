"""Creates, changes, tests, deletes and returns alerts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

from sqlalchemy import func, select

from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.query import Query, arg, columns
from moorage.core.db.tx import Tx, move
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault
from moorage.errors import BadRequest, Conflict, IllegalMove, NotFound, RateLimited
from moorage.products.monitors import service
from moorage.products.monitors.alerts import incidents, messages, notices
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.tables import SLACK_WEBHOOK, WEBHOOK_URL, Alert, Incident, Notice, notice
from moorage.products.monitors.states import NOTICE, AlertStatus, NoticeStatus
from moorage.products.monitors.tables import Monitor

MAX_ALERTS_PER_MONITOR = 50  # Each check evaluates all of them.
RULE = ("condition", "threshold", "duration_min")

_n = notice.c
_newest = notice.alias()
_newest_ids = (
    select(func.max(_n.id))
    .where(
        (_n.org_id == arg("org_id"))
        & _n.alert_id.in_(select(alert_tables.alert.c.id).where(alert_tables.alert.c.monitor_id == arg("monitor_id")))
    )
    .group_by(_n.alert_id, _n.channel)
)
# The newest notice of each alert and channel, and the same one to other receivers.
LATEST = Query(
    select(*columns(notice)).where(
        (_n.org_id == arg("org_id"))
        & _newest.c.id.in_(_newest_ids)
        & (_n.alert_id == _newest.c.alert_id)
        & (_n.about == _newest.c.about)
        & (_n.kind == _newest.c.kind)
        & (_n.channel == _newest.c.channel)
    ),
    Notice,
)

PENDING_TESTS = Query(
    select(*columns(notice)).where(
        (_n.org_id == arg("org_id"))
        & (_n.alert_id == arg("alert_id"))
        & (_n.kind == messages.TEST)
        & (_n.status == NoticeStatus.PENDING.value)
    ),
    Notice,
)


@dataclass(frozen=True, slots=True)
class NewAlert:
    """Columns of a new alert that the request sets."""

    metric: str
    condition: str
    threshold: float
    duration_min: int = 1
    severity: str = "warning"
    by_email: bool = True
    by_slack: bool = False
    by_webhook: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel with an address in the vault."""

    secret: str
    field: str  # name of the address in the API
    switch: str  # column: whether the channel is enabled
    off: str  # column: the reason why the enabled channel is not used


CHANNELS = (
    Channel(SLACK_WEBHOOK, "slackWebhook", "by_slack", "slack_off"),
    Channel(WEBHOOK_URL, "webhookUrl", "by_webhook", "webhook_off"),
)


@dataclass(frozen=True, slots=True)
class AlertDetails:
    """An alert with its deliveries."""

    alert: Alert
    stored: frozenset[str]  # names of the stored addresses
    deliveries: list[Notice]


def get(tx: Tx, org_id: int, alert_id: int) -> Alert:
    return _require(tx.find(alert_tables.FIND, org_id=org_id, id=alert_id))


def lock(tx: Tx, org_id: int, alert_id: int) -> Alert:
    """Lock an alert, and its monitor first: recording checks uses the same order."""
    service.lock(tx, org_id, get(tx, org_id, alert_id).monitor_id)
    return _require(tx.find(alert_tables.LOCK, org_id=org_id, id=alert_id))


def of_monitor(tx: Tx, org_id: int, monitor: Monitor) -> list[Alert]:
    return tx.all(alert_tables.OF_MONITOR, org_id=org_id, monitor_id=monitor.id)


def incidents_of(tx: Tx, org_id: int, monitor: Monitor, most: int) -> list[Incident]:
    """Return the latest incidents of a monitor, newest first."""
    return tx.all(alert_tables.INCIDENTS_OF_MONITOR, org_id=org_id, monitor_id=monitor.id, since=0, most=most)


def show_all(tx: Tx, org_id: int, monitor: Monitor) -> list[AlertDetails]:
    notices_by_alert: defaultdict[int | None, list[Notice]] = defaultdict(list)
    for each in tx.all(LATEST, org_id=org_id, monitor_id=monitor.id):
        notices_by_alert[each.alert_id].append(each)
    return [
        AlertDetails(each, frozenset(vault.names(tx, org_id, each.resource)), by_channel(notices_by_alert[each.id]))
        for each in of_monitor(tx, org_id, monitor)
    ]


def show(tx: Tx, org_id: int, alert: Alert) -> AlertDetails:
    all_shown = show_all(tx, org_id, service.get(tx, org_id, alert.monitor_id))
    return next(each for each in all_shown if each.alert.id == alert.id)


def by_channel(notices: list[Notice]) -> list[Notice]:
    """Return one notice per channel; of several receivers, the one in the worst state."""
    order = [NoticeStatus.DELIVERED, NoticeStatus.PENDING, NoticeStatus.FAILED]
    worst: dict[str, Notice] = {}
    for each in sorted(notices, key=lambda one: (order.index(NoticeStatus(one.status)), one.attempts, one.id)):
        worst[each.channel] = each
    return [worst[channel] for channel in sorted(worst)]


def create(
    tx: Tx, org_id: int, actor: Actor, monitor_id: int, new: NewAlert, addresses: Mapping[str, str | None]
) -> Alert:
    """Create an alert; `addresses` are by their names in the vault."""
    monitor = service.lock(tx, org_id, monitor_id)
    if len(of_monitor(tx, org_id, monitor)) >= MAX_ALERTS_PER_MONITOR:
        raise Conflict(f"A monitor has at most {MAX_ALERTS_PER_MONITOR} alerts")
    switches = {each.switch: getattr(new, each.switch) for each in CHANNELS}
    _check_addresses(switches, {name for name, address in addresses.items() if address is not None})
    alert_id = tx.one(
        alert_tables.ADD,
        **{each.name: getattr(new, each.name) for each in fields(new)},
        org_id=org_id,
        monitor_id=monitor.id,
        slack_off=None,
        webhook_off=None,
        status=AlertStatus.ACTIVE if monitor.is_running else AlertStatus.INACTIVE,
        is_enabled=True,
        acknowledged=False,
        last_triggered_at=None,
        pending_since=None,
        good_samples=0,
        good_since=None,
        fired_at="[]",
        is_flapping=False,
        incident_id=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    alert = get(tx, org_id, alert_id)
    _set_addresses(tx, org_id, alert, addresses)
    audit.record(tx, org_id, actor, "alert.created", service.target_of(monitor), id=alert.id, metric=alert.metric)
    return alert


def update(
    tx: Tx, org_id: int, actor: Actor, alert_id: int, changes: Mapping[str, Any], addresses: Mapping[str, str | None]
) -> Alert:
    """Change an alert: `changes` by column; an address that is None is removed.

    A new rule counts from now. A channel that is not used any more is tried again if its address is sent or it is
    switched on.
    """
    before = lock(tx, org_id, alert_id)
    stored = set(vault.names(tx, org_id, before.resource))
    stored = {name for name in stored | set(addresses) if addresses.get(name, "") is not None}
    _check_addresses({each.switch: changes.get(each.switch, getattr(before, each.switch)) for each in CHANNELS}, stored)
    new = dict(changes)
    new |= {each.off: None for each in CHANNELS if each.secret in addresses or changes.get(each.switch)}
    is_enabled = new.pop("is_enabled", before.is_enabled)
    changed = {column: value for column, value in new.items() if getattr(before, column) != value}
    for column, value in changed.items():
        tx.run(alert_tables.SET[column], org_id=org_id, id=before.id, new=value, now=tx.now)
    _set_addresses(tx, org_id, before, addresses)
    if any(column in changed for column in RULE):
        incidents.on_rule_change(tx, org_id, get(tx, org_id, before.id))
    if is_enabled != before.is_enabled:
        changed["is_enabled"] = is_enabled
        incidents.set_enabled(tx, org_id, get(tx, org_id, before.id), is_enabled)
    monitor = service.get(tx, org_id, before.monitor_id)
    names = sorted({*changed, *addresses})
    audit.record(tx, org_id, actor, "alert.updated", service.target_of(monitor), id=before.id, changed=names)
    return get(tx, org_id, before.id)


def _check_addresses(switches: Mapping[str, bool], stored: set[str]) -> None:
    missing = {
        each.field: f"is required where notifications.{each.switch.removeprefix('by_')} is true"
        for each in CHANNELS
        if switches[each.switch] and each.secret not in stored
    }
    if missing:
        raise BadRequest("The request is not valid", fields=missing)


def _set_addresses(tx: Tx, org_id: int, alert: Alert, addresses: Mapping[str, str | None]) -> None:
    for name, address in addresses.items():
        if address is None:
            vault.remove(tx, org_id, alert.resource, name)
        else:
            vault.put(tx, org_id, alert.resource, name, address)


def delete(tx: Tx, org_id: int, actor: Actor, alert_id: int) -> None:
    """Delete an alert. No notice is sent about an open incident."""
    alert = lock(tx, org_id, alert_id)
    monitor = service.get(tx, org_id, alert.monitor_id)
    audit.record(tx, org_id, actor, "alert.deleted", service.target_of(monitor), id=alert.id)
    incidents.remove_alert(tx, org_id, alert)


def send_test(tx: Tx, org_id: int, actor: Actor, alert_id: int) -> list[Notice]:
    """Send a test notice to every channel of an alert; return the pending notices.

    An alert has one test at a time: a new one replaces a test that failed and would be sent again.
    """
    alert = lock(tx, org_id, alert_id)
    pending = tx.all(PENDING_TESTS, org_id=org_id, alert_id=alert.id)
    if any(each.attempts == 0 for each in pending):
        raise RateLimited("A test of this alert is being sent; try again when it has been delivered or has failed")
    for each in pending:
        with suppress(IllegalMove):  # It was just delivered.
            move(tx, NOTICE, each, to=NoticeStatus.FAILED)
    monitor = service.get(tx, org_id, alert.monitor_id)
    audit.record(tx, org_id, actor, "alert.tested", service.target_of(monitor), id=alert.id)
    return notices.add_test(tx, org_id, monitor, alert)


def _require(alert: Alert | None) -> Alert:
    if alert is None:
        raise NotFound("There is no such alert")
    return alert
