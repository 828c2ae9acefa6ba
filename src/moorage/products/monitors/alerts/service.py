"""Alerts: made, changed, acknowledged, switched, tried out, deleted; and what became of what they told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import func, select

from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.query import Query, arg, columns
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound, bad_field
from moorage.products.monitors import service
from moorage.products.monitors.alerts import incidents, notices
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.tables import SLACK_WEBHOOK, WEBHOOK_URL, Alert, Incident, Notice, notice
from moorage.products.monitors.states import AlertStatus, NoticeStatus
from moorage.products.monitors.tables import Monitor

MOST = 50  # of one monitor: each check is judged by all of them
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
# The newest notice of each alert and channel, and those that told the same to others.
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


@dataclass(frozen=True, slots=True)
class NewAlert:
    """An alert as it is asked for."""

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
    """A way to tell people that needs an address, which the vault keeps."""

    secret: str
    field: str  # of the address, on the wire
    switch: str  # the column that says whether it is wanted
    off: str  # the column that says why it is not used although it is wanted


CHANNELS = (
    Channel(SLACK_WEBHOOK, "slackWebhook", "by_slack", "slack_off"),
    Channel(WEBHOOK_URL, "webhookUrl", "by_webhook", "webhook_off"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """An alert with what there is to know about it."""

    alert: Alert
    stored: frozenset[str]  # of which addresses there are
    deliveries: list[Notice]


def get(tx: Tx, org_id: int, alert_id: int) -> Alert:
    return _there(tx.find(alert_tables.FIND, org_id=org_id, id=alert_id))


def lock(tx: Tx, org_id: int, alert_id: int) -> Alert:
    """Return an alert for who is about to change it. Its monitor is locked first, as it is by whoever judges it."""
    service.lock(tx, org_id, get(tx, org_id, alert_id).monitor_id)
    return _there(tx.find(alert_tables.LOCK, org_id=org_id, id=alert_id))


def of_monitor(tx: Tx, org_id: int, found: Monitor) -> list[Alert]:
    """Return the alerts of a monitor, oldest first."""
    return tx.all(alert_tables.OF_MONITOR, org_id=org_id, monitor_id=found.id)


def incidents_of(tx: Tx, org_id: int, found: Monitor, most: int) -> list[Incident]:
    """Return the latest incidents of a monitor, newest first."""
    return tx.all(alert_tables.INCIDENTS_OF_MONITOR, org_id=org_id, monitor_id=found.id, since=0, most=most)


def show_all(tx: Tx, org_id: int, found: Monitor) -> list[Shown]:
    told: defaultdict[int | None, list[Notice]] = defaultdict(list)
    for each in tx.all(LATEST, org_id=org_id, monitor_id=found.id):
        told[each.alert_id].append(each)
    return [
        Shown(each, frozenset(vault.names(tx, org_id, each.resource)), by_channel(told[each.id]))
        for each in of_monitor(tx, org_id, found)
    ]


def show(tx: Tx, org_id: int, found: Alert) -> Shown:
    all_shown = show_all(tx, org_id, service.get(tx, org_id, found.monitor_id))
    return next(each for each in all_shown if each.alert.id == found.id)


def by_channel(told: list[Notice]) -> list[Notice]:
    """Return one notice for each channel. Of several that told the same to many people, the one in the worst state."""
    order = [NoticeStatus.DELIVERED, NoticeStatus.PENDING, NoticeStatus.FAILED]
    worst: dict[str, Notice] = {}
    for each in sorted(told, key=lambda one: (order.index(NoticeStatus(one.status)), one.attempts, one.id)):
        worst[each.channel] = each
    return [worst[channel] for channel in sorted(worst)]


# Changing them.


def create(
    tx: Tx, org_id: int, actor: Actor, monitor_id: int, new: NewAlert, addresses: Mapping[str, str | None]
) -> Alert:
    """Make an alert; `addresses` are by the names that the vault has for them. One of a paused monitor waits."""
    found = service.lock(tx, org_id, monitor_id)
    if len(of_monitor(tx, org_id, found)) >= MOST:
        raise Conflict(f"A monitor has at most {MOST} alerts")
    switches = {each.switch: getattr(new, each.switch) for each in CHANNELS}
    _check_addresses(switches, {name for name, address in addresses.items() if address is not None})
    alert_id = tx.one(
        alert_tables.ADD,
        **{each.name: getattr(new, each.name) for each in fields(new)},
        org_id=org_id,
        monitor_id=found.id,
        slack_off=None,
        webhook_off=None,
        status=AlertStatus.ACTIVE if found.is_running else AlertStatus.INACTIVE,
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
    made = get(tx, org_id, alert_id)
    _set_addresses(tx, org_id, made, addresses)
    audit.record(tx, org_id, actor, "alert.created", service.target_of(found), id=made.id, metric=made.metric)
    return made


def update(
    tx: Tx, org_id: int, actor: Actor, alert_id: int, changes: Mapping[str, Any], addresses: Mapping[str, str | None]
) -> Alert:
    """Change an alert: `changes` by column, `addresses` as when one is made; one that is None is removed.

    Another rule counts from now on. A channel that was given up is tried again once its address is given anew, or it
    is switched on anew.
    """
    before = lock(tx, org_id, alert_id)
    stored = set(vault.names(tx, org_id, before.resource))
    stored = {name for name in stored | set(addresses) if addresses.get(name, "") is not None}
    _check_addresses({each.switch: changes.get(each.switch, getattr(before, each.switch)) for each in CHANNELS}, stored)
    wanted = dict(changes)
    wanted |= {each.off: None for each in CHANNELS if each.secret in addresses or changes.get(each.switch)}
    is_enabled = wanted.pop("is_enabled", before.is_enabled)
    changed = {column: value for column, value in wanted.items() if getattr(before, column) != value}
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
    for each in CHANNELS:
        if switches[each.switch] and each.secret not in stored:
            name = each.switch.removeprefix("by_")
            raise bad_field(each.field, f"is required where notifications.{name} is true")


def _set_addresses(tx: Tx, org_id: int, found: Alert, addresses: Mapping[str, str | None]) -> None:
    for name, address in addresses.items():
        if address is None:
            vault.remove(tx, org_id, found.resource, name)
        else:
            vault.put(tx, org_id, found.resource, name, address)


def delete(tx: Tx, org_id: int, actor: Actor, alert_id: int) -> None:
    """Delete an alert. What is open of it ends untold: whoever deletes it knows."""
    found = lock(tx, org_id, alert_id)
    monitor = service.get(tx, org_id, found.monitor_id)
    audit.record(tx, org_id, actor, "alert.deleted", service.target_of(monitor), id=found.id)
    incidents.remove_alert(tx, org_id, found)


def send_test(tx: Tx, org_id: int, actor: Actor, alert_id: int) -> list[Notice]:
    """Send a notice over every channel of an alert. Return what is on its way."""
    found = get(tx, org_id, alert_id)
    monitor = service.get(tx, org_id, found.monitor_id)
    audit.record(tx, org_id, actor, "alert.tested", service.target_of(monitor), id=found.id)
    return notices.add_test(tx, org_id, monitor, found)


def _there(found: Alert | None) -> Alert:
    if found is None:
        raise NotFound("There is no such alert")
    return found
