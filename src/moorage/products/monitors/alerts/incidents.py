"""What happens to alerts, kept: how far each is, its incidents, and what people are told, all in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Integer, case, delete, func, select, update
from sqlalchemy.sql.elements import ClauseElement

from moorage.core.db.query import Command, Query, arg, columns, pair
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.ids import new_uuid
from moorage.core.vault import service as vault
from moorage.products.monitors import tables
from moorage.products.monitors.alerts import notices
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.notices import Observed
from moorage.products.monitors.alerts.rules import Event, Progress, Rule, Sample, judge, value_of
from moorage.products.monitors.alerts.tables import Alert, Incident, alert, incident, notice
from moorage.products.monitors.probing.beats import Beat
from moorage.products.monitors.probing.tables import as_list, ids_of
from moorage.products.monitors.states import ALERT, AlertStatus, BeatStatus
from moorage.products.monitors.tables import Monitor

PAUSED = "The monitor was paused"
SWITCHED_OFF = "The alert was switched off"
LEAST_SAMPLES = 2  # fewer make no rate

_a, _i, _n, _h = alert.c, incident.c, notice.c, tables.heartbeat.c


def _lock_watched(dialect: str) -> ClauseElement:
    """The alerts of some monitors that are watched; locked, in order, until the commit."""
    is_watched = _a.is_enabled & (_a.status != AlertStatus.INACTIVE.value)
    return (
        select(*columns(alert)).where(_a.monitor_id.in_(ids_of(dialect)) & is_watched).order_by(_a.id).with_for_update()
    )


LOCK_WATCHED = Query(_lock_watched, Alert)
_is_down = case((_h.status == BeatStatus.DOWN.value, 1), else_=0)
# How many checks there were within some time, and how many of them failed.
FAILED: Query[tuple[int, int]] = Query(
    select(func.count(), func.coalesce(func.sum(_is_down), 0)).where(
        (_h.org_id == arg("org_id"))
        & (_h.monitor_id == arg("monitor_id"))
        & (_h.slot > arg("after", BigInteger))
        & (_h.slot <= arg("until", BigInteger))
        & (_h.status != BeatStatus.PAUSE.value)
    ),
    pair,
)
_mine = (_a.org_id == arg("org_id")) & (_a.id == arg("id"))
SAVE_PROGRESS = Command(
    update(alert)
    .where(_mine)
    .values(
        pending_since=arg("pending_since"),
        good_samples=arg("good_samples", Integer),
        good_since=arg("good_since"),
        fired_at=arg("fired_at"),
        is_flapping=arg("is_flapping"),
    )
)
DELETE_INCIDENTS = Command(
    delete(incident).where(
        (_i.org_id == arg("org_id")) & (_i.monitor_id == arg("monitor_id")) & (_i.alert_id == arg("id"))
    )
)
DELETE_NOTICES = Command(delete(notice).where((_n.org_id == arg("org_id")) & (_n.alert_id == arg("id"))))


# What checks bring about.


@across_organizations("a prober checks the monitors of everybody")
def on_beats(tx: Tx, found: Sequence[tuple[Monitor, Beat]]) -> None:
    """Judge the alerts of monitors by checks that were just written down; those of a monitor come in order of slots."""
    by_monitor: defaultdict[int, list[Beat]] = defaultdict(list)
    for monitor, beat in found:
        by_monitor[monitor.id].append(beat)
    monitors = {monitor.id: monitor for monitor, _ in found}
    changed = []
    for watched in tx.all(LOCK_WATCHED, ids=as_list(by_monitor)):
        monitor = monitors[watched.monitor_id]
        changed += _follow(tx, monitor.org_id, monitor, watched, by_monitor[monitor.id])
    if changed:
        tx.run_many(SAVE_PROGRESS, changed)


def _follow(tx: Tx, org_id: int, monitor: Monitor, watched: Alert, beats: Iterable[Beat]) -> list[dict[str, Any]]:
    """Judge one alert by checks and write down what they bring about; return how far it is if that is not saved yet."""
    rule = Rule(watched.condition, watched.threshold, watched.duration_min)
    saved = progress = _progress_of(watched)
    for beat in beats:
        value = value_of(
            watched.metric, beat.outcome, error_rate=_error_rate(tx, org_id, watched, beat.slot), now=beat.at
        )
        progress, event = judge(rule, progress, Sample(beat.slot, value))
        if event is None:
            continue
        _happen(tx, org_id, monitor, watched, event, progress, _observed(beat, value))
        watched, saved = tx.one(alert_tables.FIND, org_id=org_id, id=watched.id), progress
    return [] if progress == saved else [{"org_id": org_id, "id": watched.id, **_columns(progress)}]


def _error_rate(tx: Tx, org_id: int, watched: Alert, slot: int) -> float | None:
    """Return the percentage of failed checks, for alerts that are about it and where there were enough."""
    if watched.metric != "error_rate":
        return None
    after = slot - watched.duration_min * MINUTE_MS
    total, failed = tx.one(FAILED, org_id=org_id, monitor_id=watched.monitor_id, after=after, until=slot)
    return None if total < LEAST_SAMPLES else 100 * failed / total


def _happen(
    tx: Tx, org_id: int, monitor: Monitor, watched: Alert, event: Event, progress: Progress, observed: Observed
) -> None:
    if event is Event.RESOLVED:
        _end_incident(tx, org_id, monitor, watched, observed)
        move(tx, ALERT, watched, to=AlertStatus.ACTIVE, incident_id=None, **_columns(progress))
        return
    opened = _open_incident(tx, org_id, watched, observed, is_flapping=progress.is_flapping)
    move(
        tx,
        ALERT,
        watched,
        to=AlertStatus.TRIGGERED,
        last_triggered_at=observed.at,
        acknowledged=False,
        incident_id=opened.id,
        **_columns(progress),
    )
    notices.add(
        tx,
        org_id,
        monitor=monitor,
        alert=watched,
        incident=opened,
        about=opened.uuid,
        kind=event.value,
        observed=observed,
    )


def _open_incident(tx: Tx, org_id: int, watched: Alert, observed: Observed, *, is_flapping: bool) -> Incident:
    values: dict[str, Any] = {
        "uuid": new_uuid(),
        "org_id": org_id,
        "monitor_id": watched.monitor_id,
        "alert_id": watched.id,
        "is_flapping": is_flapping,
        "observed": msgspec.json.encode(observed).decode(),
        "started_at": observed.at,
        "resolved_at": None,
    }
    return Incident(id=tx.one(alert_tables.ADD_INCIDENT, **values), **values)


def _end_incident(tx: Tx, org_id: int, monitor: Monitor, watched: Alert, observed: Observed, message: str = "") -> None:
    """End what is open, and tell those who were told of it. An alert that has nothing open is left as it is."""
    tx.run(alert_tables.END_INCIDENT, org_id=org_id, id=watched.incident_id, now=observed.at)
    ended = tx.find(alert_tables.FIND_INCIDENT, org_id=org_id, id=watched.incident_id)
    if ended is None:
        return
    notices.add(
        tx,
        org_id,
        monitor=monitor,
        alert=watched,
        incident=ended,
        about=ended.uuid,
        kind=Event.RESOLVED.value,
        observed=observed,
        message=message,
    )


def _observed(beat: Beat, value: float | None) -> Observed:
    found = beat.outcome
    return Observed(
        value=value, status_code=found.code, response_time=found.response_ms, message=found.message, at=beat.slot
    )


def _progress_of(watched: Alert) -> Progress:
    return Progress(
        AlertStatus(watched.status),
        watched.pending_since,
        watched.good_samples,
        watched.good_since,
        # Most never fired, and this is done at every check.
        tuple(watched.recent_fires) if watched.fired_at != "[]" else (),
        watched.is_flapping,
    )


def _columns(progress: Progress) -> dict[str, Any]:
    return {
        "pending_since": progress.pending_since,
        "good_samples": progress.good_samples,
        "good_since": progress.good_since,
        "fired_at": as_list(progress.fires),
        "is_flapping": progress.is_flapping,
    }


# What people bring about.


def on_pause(tx: Tx, org_id: int, monitor: Monitor) -> None:
    """Watch the alerts of a monitor no longer. What is open ends, and whoever was told of it is told why."""
    for found in tx.all(alert_tables.LOCK_OF_MONITOR, org_id=org_id, monitor_id=monitor.id):
        _stop_watching(tx, org_id, monitor, found, PAUSED)


def on_resume(tx: Tx, org_id: int, monitor: Monitor) -> None:
    """Watch the alerts of a monitor again, but for those that are switched off; all of them begin anew."""
    for found in tx.all(alert_tables.LOCK_OF_MONITOR, org_id=org_id, monitor_id=monitor.id):
        if found.is_enabled and not found.is_watched:
            move(tx, ALERT, found, to=AlertStatus.ACTIVE)


def on_rule_change(tx: Tx, org_id: int, changed: Alert) -> None:
    """Count anew under another condition, threshold or duration: samples so far were judged by the former one."""
    begun = Progress(AlertStatus(changed.status), fires=tuple(changed.recent_fires), is_flapping=changed.is_flapping)
    tx.run(SAVE_PROGRESS, org_id=org_id, id=changed.id, **_columns(begun))


def set_enabled(tx: Tx, org_id: int, found: Alert, on: bool) -> None:
    """Switch an alert, which the caller has locked, on or off. One of a paused monitor is watched once that resumes."""
    tx.run(alert_tables.SET["is_enabled"], org_id=org_id, id=found.id, new=on, now=tx.now)
    monitor = tx.one(tables.FIND, org_id=org_id, id=found.monitor_id)
    if not on:
        _stop_watching(tx, org_id, monitor, found, SWITCHED_OFF)
    elif monitor.is_running and not found.is_watched:
        move(tx, ALERT, found, to=AlertStatus.ACTIVE)


def _stop_watching(tx: Tx, org_id: int, monitor: Monitor, found: Alert, why: str) -> None:
    if not found.is_watched:
        return
    observed = Observed(value=None, status_code=None, response_time=None, message=why, at=tx.now)
    _end_incident(tx, org_id, monitor, found, observed, message=why)
    cleared = _columns(Progress(AlertStatus.INACTIVE))
    move(tx, ALERT, found, to=AlertStatus.INACTIVE, incident_id=None, **cleared)


def remove_of_monitor(tx: Tx, org_id: int, monitor_id: int) -> None:
    for found in tx.all(alert_tables.LOCK_OF_MONITOR, org_id=org_id, monitor_id=monitor_id):
        remove_alert(tx, org_id, found)


def remove_alert(tx: Tx, org_id: int, found: Alert) -> None:
    """Remove an alert with its incidents, what is yet to be told about it, and where that was to be sent."""
    tx.run(DELETE_NOTICES, org_id=org_id, id=found.id)
    tx.run(DELETE_INCIDENTS, org_id=org_id, monitor_id=found.monitor_id, id=found.id)
    vault.remove_all(tx, org_id, found.resource)
    tx.run(alert_tables.DELETE, org_id=org_id, id=found.id)
