"""Incidents of public monitors in the last days: outages, and the times in which an alert was triggered.

Outages come from the checks of each hour, so the history is complete without any alert rule. A triggered alert knows
its exact times: where one on the status of a monitor overlaps an outage, its times are shown instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid5

from sqlalchemy import Integer, select

from moorage.core.db.query import Query, arg
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import HOUR_MS
from moorage.core.kit.records import dataclass
from moorage.products.monitors.alerts.tables import alert, incident
from moorage.products.monitors.tables import HOUR_S, Monitor, monitor, rollup

MAX_ROWS = 1_000  # of each query: an organization whose monitors always fail has one row for each hour
_IDS = UUID("6f1f4d60-6f3c-5a0a-9d57-0f4c8f6f2b61")  # namespace of the ids of outages in the feed
_OUTAGE_METRICS = frozenset(("status", "status_code", "error_rate"))  # an outage triggers alerts on these

DESCRIPTIONS = {
    "status": "did not answer as expected",
    "response_time": "answered slowly",
    "status_code": "answered with an unexpected status",
    "error_rate": "failed often",
    "ssl_expiry": "had a certificate that expires soon",
}


@dataclass(frozen=True, slots=True)
class Episode:
    """An outage or a triggered alert of one monitor."""

    id: str  # stable, for the feed
    name: str  # of the monitor
    description: str
    began: int
    ended: int | None  # None while it lasts


@dataclass(frozen=True, slots=True)
class _Hour:
    monitor_id: int
    start: int
    up: int
    down: int


@dataclass(frozen=True, slots=True)
class _Triggered:
    monitor_id: int
    uuid: str
    metric: str
    started_at: int
    resolved_at: int | None


_m, _r, _i = monitor.c, rollup.c, incident.c
_public = (_m.org_id == arg("org_id")) & _m.is_public
_FAILED_HOURS = Query(
    select(_r.monitor_id, _r.start, _r.up, _r.down)
    .join(monitor, _m.id == _r.monitor_id)
    .where(_public & (_r.span_s == HOUR_S) & (_r.start >= arg("since")) & (_r.down > 0))
    .order_by(_r.start.desc())
    .limit(arg("most", Integer)),
    _Hour,
)
_TRIGGERED = Query(
    select(_i.monitor_id, _i.uuid, alert.c.metric, _i.started_at, _i.resolved_at)
    .join(monitor, _m.id == _i.monitor_id)
    .join(alert, alert.c.id == _i.alert_id)
    .where(_public & (_i.started_at >= arg("since")))
    .order_by(_i.started_at.desc())
    .limit(arg("most", Integer)),
    _Triggered,
)


def of_monitors(
    tx: Tx, org_id: int, monitors: list[Monitor], down_ids: Iterable[int], since: int
) -> tuple[Episode, ...]:
    """Return the episodes since a moment, the latest first; `down_ids` are the monitors that are down now."""
    by_id = {each.id: each for each in monitors}
    triggered = tx.all(_TRIGGERED, org_id=org_id, since=since, most=MAX_ROWS)
    hours = sorted(
        tx.all(_FAILED_HOURS, org_id=org_id, since=since, most=MAX_ROWS), key=lambda row: (row.monitor_id, row.start)
    )
    blocks = [block for block in _blocks(hours) if not _is_told(block, triggered)]
    down = frozenset(down_ids)
    episodes = [_outage(by_id[block[0].monitor_id], block, down, tx.now) for block in blocks]
    episodes += [_alerted(by_id[each.monitor_id].name, each) for each in triggered]
    return tuple(sorted(episodes, key=lambda each: each.began, reverse=True))


def _blocks(hours: list[_Hour]) -> list[list[_Hour]]:
    """Group consecutive hours of a monitor; the rows are sorted by monitor and time."""
    blocks: list[list[_Hour]] = []
    for hour in hours:
        last = blocks[-1][-1] if blocks else None
        if last is not None and last.monitor_id == hour.monitor_id and hour.start == last.start + HOUR_MS:
            blocks[-1].append(hour)
        else:
            blocks.append([hour])
    return blocks


def _is_told(block: list[_Hour], triggered: list[_Triggered]) -> bool:
    """Return whether an alert on the same failure has the exact times of an outage."""
    began, ended = block[0].start, block[-1].start + HOUR_MS
    return any(
        each.monitor_id == block[0].monitor_id
        and each.metric in _OUTAGE_METRICS
        and each.started_at < ended
        and (each.resolved_at is None or each.resolved_at > began)
        for each in triggered
    )


def _outage(of: Monitor, block: list[_Hour], down_ids: frozenset[int], now: int) -> Episode:
    failed, total = sum(hour.down for hour in block), sum(hour.up + hour.down for hour in block)
    began, ended = block[0].start, block[-1].start + HOUR_MS
    lasts = ended > now - HOUR_MS and of.id in down_ids
    checks = "1 check" if failed == total == 1 else f"{failed} of {total} checks"
    key = str(uuid5(_IDS, f"{of.id}:{began}"))
    return Episode(key, of.name, f"{checks} failed", max(began, of.created_at), None if lasts else min(ended, now))


def _alerted(name: str, row: _Triggered) -> Episode:
    return Episode(row.uuid, name, DESCRIPTIONS[row.metric], row.started_at, row.resolved_at)
