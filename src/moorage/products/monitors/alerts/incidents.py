"""Applies checks and changes to alerts: progress, incidents and notices."""

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

_a, _i, _n, _h = alert.c, incident.c, notice.c, tables.heartbeat.c


def _lock_evaluated(dialect: str) -> ClauseElement:
    """Lock the evaluated alerts of the monitors in `ids`, ordered by id."""
    is_evaluated = _a.is_enabled & (_a.status != AlertStatus.INACTIVE.value)
    return (
        select(*columns(alert))
        .where(_a.monitor_id.in_(ids_of(dialect)) & is_evaluated)
        .order_by(_a.id)
        .with_for_update()
    )


LOCK_EVALUATED = Query(_lock_evaluated, Alert)
_is_down = case((_h.status == BeatStatus.DOWN.value, 1), else_=0)
# Number of checks in a time range, and of failed ones.
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
_this = (_a.org_id == arg("org_id")) & (_a.id == arg("id"))
SAVE_PROGRESS = Command(
    update(alert)
    .where(_this)
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


@across_organizations("a prober checks the monitors of all organizations")
def on_beats(tx: Tx, recorded: Sequence[tuple[Monitor, Beat]]) -> None:
    """Evaluate the alerts of monitors with newly recorded checks, in order of slots."""
    by_monitor: defaultdict[int, list[Beat]] = defaultdict(list)
    for monitor, beat in recorded:
        by_monitor[monitor.id].append(beat)
    monitors = {monitor.id: monitor for monitor, _ in recorded}
    changed = []
    for evaluated in tx.all(LOCK_EVALUATED, ids=as_list(by_monitor)):
        monitor = monitors[evaluated.monitor_id]
        changed += _evaluate(tx, monitor.org_id, monitor, evaluated, by_monitor[monitor.id])
    if changed:
        tx.run_many(SAVE_PROGRESS, changed)


def _evaluate(tx: Tx, org_id: int, monitor: Monitor, alert: Alert, beats: Iterable[Beat]) -> list[dict[str, Any]]:
    """Evaluate one alert by checks; return its progress if that is not saved yet."""
    rule = Rule(alert.condition, alert.threshold, alert.duration_min)
    saved = progress = _progress_of(alert)
    for beat in beats:
        value = value_of(alert.metric, beat.outcome, error_rate=_error_rate(tx, org_id, alert, beat.slot), now=beat.at)
        progress, event = judge(rule, progress, Sample(beat.slot, value))
        if event is None:
            continue
        _apply(tx, org_id, monitor, alert, event, progress, Observed.of(beat, value))
        alert, saved = tx.one(alert_tables.FIND, org_id=org_id, id=alert.id), progress
    return [] if progress == saved else [{"org_id": org_id, "id": alert.id, **_columns(progress)}]


def _error_rate(tx: Tx, org_id: int, alert: Alert, slot: int) -> float | None:
    """Return the percentage of failed checks in the alert's duration, the one of `slot` included.

    Returns None for other metrics. An interval as long as the duration leaves one check in that time.
    """
    if alert.metric != "error_rate":
        return None
    after = slot - alert.duration_min * MINUTE_MS
    total, failed = tx.one(FAILED, org_id=org_id, monitor_id=alert.monitor_id, after=after, until=slot)
    return 100 * failed / total if total else None


def _apply(
    tx: Tx, org_id: int, monitor: Monitor, alert: Alert, event: Event, progress: Progress, observed: Observed
) -> None:
    if event is Event.RESOLVED:
        _end_incident(tx, org_id, monitor, alert, observed)
        move(tx, ALERT, alert, to=AlertStatus.ACTIVE, incident_id=None, **_columns(progress))
        return
    incident = _open_incident(tx, org_id, alert, observed, is_flapping=progress.is_flapping)
    move(
        tx,
        ALERT,
        alert,
        to=AlertStatus.TRIGGERED,
        last_triggered_at=observed.at,
        acknowledged=False,
        incident_id=incident.id,
        **_columns(progress),
    )
    notices.add(
        tx,
        org_id,
        monitor=monitor,
        alert=alert,
        incident=incident,
        about=incident.uuid,
        kind=event.value,
        observed=observed,
    )


def _open_incident(tx: Tx, org_id: int, alert: Alert, observed: Observed, *, is_flapping: bool) -> Incident:
    values: dict[str, Any] = {
        "uuid": new_uuid(),
        "org_id": org_id,
        "monitor_id": alert.monitor_id,
        "alert_id": alert.id,
        "is_flapping": is_flapping,
        "observed": msgspec.json.encode(observed).decode(),
        "started_at": observed.at,
        "resolved_at": None,
    }
    return Incident(id=tx.one(alert_tables.ADD_INCIDENT, **values), **values)


def _end_incident(tx: Tx, org_id: int, monitor: Monitor, alert: Alert, observed: Observed, message: str = "") -> None:
    """Resolve the open incident of an alert, if any, and notify its receivers."""
    tx.run(alert_tables.END_INCIDENT, org_id=org_id, id=alert.incident_id, now=observed.at)
    incident = tx.find(alert_tables.FIND_INCIDENT, org_id=org_id, id=alert.incident_id)
    if incident is None:
        return
    notices.add(
        tx,
        org_id,
        monitor=monitor,
        alert=alert,
        incident=incident,
        about=incident.uuid,
        kind=Event.RESOLVED.value,
        observed=observed,
        message=message,
    )


def _progress_of(alert: Alert) -> Progress:
    return Progress(
        AlertStatus(alert.status),
        alert.pending_since,
        alert.good_samples,
        alert.good_since,
        # Avoids JSON decoding at every check: most alerts never fired.
        tuple(alert.recent_fires) if alert.fired_at != "[]" else (),
        alert.is_flapping,
    )


def _columns(progress: Progress) -> dict[str, Any]:
    return {
        "pending_since": progress.pending_since,
        "good_samples": progress.good_samples,
        "good_since": progress.good_since,
        "fired_at": as_list(progress.fires),
        "is_flapping": progress.is_flapping,
    }


def on_pause(tx: Tx, org_id: int, monitor: Monitor) -> None:
    """Stop evaluating the alerts of a monitor and resolve open incidents."""
    for each in tx.all(alert_tables.LOCK_OF_MONITOR, org_id=org_id, monitor_id=monitor.id):
        _stop_evaluating(tx, org_id, monitor, each, PAUSED)


def on_resume(tx: Tx, org_id: int, monitor: Monitor) -> None:
    """Evaluate the enabled alerts of a monitor again, from scratch."""
    for each in tx.all(alert_tables.LOCK_OF_MONITOR, org_id=org_id, monitor_id=monitor.id):
        if each.is_enabled and not each.is_evaluated:
            move(tx, ALERT, each, to=AlertStatus.ACTIVE)


def on_rule_change(tx: Tx, org_id: int, alert: Alert) -> None:
    """Reset the counted samples: they were judged by the previous rule."""
    reset = Progress(AlertStatus(alert.status), fires=tuple(alert.recent_fires), is_flapping=alert.is_flapping)
    tx.run(SAVE_PROGRESS, org_id=org_id, id=alert.id, **_columns(reset))


def set_enabled(tx: Tx, org_id: int, alert: Alert, on: bool) -> None:
    """Enable or disable an alert that the caller has locked.

    An alert of a paused monitor stays inactive until the monitor resumes.
    """
    tx.run(alert_tables.SET["is_enabled"], org_id=org_id, id=alert.id, new=on, now=tx.now)
    monitor = tx.one(tables.FIND, org_id=org_id, id=alert.monitor_id)
    if not on:
        _stop_evaluating(tx, org_id, monitor, alert, SWITCHED_OFF)
    elif monitor.is_running and not alert.is_evaluated:
        move(tx, ALERT, alert, to=AlertStatus.ACTIVE)


def _stop_evaluating(tx: Tx, org_id: int, monitor: Monitor, alert: Alert, why: str) -> None:
    if not alert.is_evaluated:
        return
    observed = Observed(value=None, status_code=None, response_time=None, message=why, at=tx.now)
    _end_incident(tx, org_id, monitor, alert, observed, message=why)
    cleared = _columns(Progress(AlertStatus.INACTIVE))
    move(tx, ALERT, alert, to=AlertStatus.INACTIVE, incident_id=None, **cleared)


def remove_of_monitor(tx: Tx, org_id: int, monitor_id: int) -> None:
    for each in tx.all(alert_tables.LOCK_OF_MONITOR, org_id=org_id, monitor_id=monitor_id):
        remove_alert(tx, org_id, each)


def remove_alert(tx: Tx, org_id: int, alert: Alert) -> None:
    tx.run(DELETE_NOTICES, org_id=org_id, id=alert.id)
    tx.run(DELETE_INCIDENTS, org_id=org_id, monitor_id=alert.monitor_id, id=alert.id)
    vault.remove_all(tx, org_id, alert.resource)
    tx.run(alert_tables.DELETE, org_id=org_id, id=alert.id)
