"""Deletes old rows of monitors, and all rows of deleted monitors.

Raw heartbeats are kept for two days, and the newest 200 of each monitor regardless of age; roll-ups for as long as
the API shows them; incidents for two years.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from sqlalchemy import ColumnElement, Integer, Table, delete, func, select

from moorage.core.db.query import Command, Query, arg, pair, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Unit
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS
from moorage.core.worker.run import Handlers, Run
from moorage.products.monitors.alerts.tables import incident, notice
from moorage.products.monitors.tables import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    certificate_notice,
    heartbeat,
    monitor,
    pause,
    prober,
    rollup,
)

KIND = "monitors.trim"
CRON = "41 * * * *"
BATCH_SIZE = 500  # rows deleted in one transaction; a short one, because SQLite has a single writer
MONITORS_PER_READ = 50

BEATS_KEPT_MS = 2 * DAY_MS
KEPT_BEATS = 200  # newest heartbeats of each monitor, kept regardless of age
# The uptime of the last 24 hours needs minutes for its first, incomplete hour.
ROLLUPS_KEPT_MS = {MINUTE_S: 25 * HOUR_MS, HOUR_S: 90 * DAY_MS, DAY_S: 730 * DAY_MS}
HISTORY_KEPT_MS = 730 * DAY_MS
NOTICES_KEPT_MS = 30 * DAY_MS
PROBERS_KEPT_MS = HOUR_MS

_h, _r, _p, _i, _n = heartbeat.c, rollup.c, pause.c, incident.c, notice.c


class TrimMonitors(msgspec.Struct, frozen=True, tag="monitors.trim"):
    """Delete old rows of monitors."""


def _trimming(of: Table, which: ColumnElement[bool]) -> Command:
    """Build a command that deletes at most `most` of the matching rows."""
    ids = select(of.c.id).where(which).limit(arg("most", Integer))
    return Command(delete(of).where(of.c.id.in_(ids)))


_before = arg("before")
_oldest_kept = (
    select(_h.slot).where(_h.monitor_id == monitor.c.id).order_by(_h.slot.desc()).offset(KEPT_BEATS - 1).limit(1)
).scalar_subquery()
# Monitors after an id, each with the slot of its 200th newest heartbeat; None where it has fewer.
NEXT_CUTS: Query[tuple[int, int | None]] = Query(
    select(monitor.c.id, _oldest_kept)
    .where(monitor.c.id > arg("after"))
    .order_by(monitor.c.id)
    .limit(arg("most", Integer)),
    pair,
)
TRIM_BEATS = _trimming(heartbeat, (_h.monitor_id == arg("monitor_id")) & (_h.slot < _before))
TRIM_ROLLUPS = _trimming(rollup, (_r.span_s == arg("span_s", Integer)) & (_r.start < _before))

_later = notice.alias()
_is_followed = (
    select(_later.c.id)
    .where((_later.c.alert_id == _n.alert_id) & (_later.c.channel == _n.channel) & (_later.c.id > _n.id))
    .correlate(notice)
    .exists()
)
# Lists of alerts show the newest notice of each channel, so that one is kept. Certificate notices are in no list.
TRIM_NOTICES = _trimming(notice, (_n.created_at < _before) & (_n.alert_id.is_(None) | _is_followed))
# Rows that are deleted by age alone.
TRIM_HISTORY = (
    _trimming(pause, _p.ended_at < _before),
    _trimming(notice, _n.created_at < _before),
    _trimming(incident, _i.resolved_at < _before),
)
TRIM_PROBERS = _trimming(prober, prober.c.lease_until < _before)
TRIM_LOST_NOTICES = _trimming(notice, _n.monitor_id.not_in(select(monitor.c.id)))

MONITOR_TABLES = (heartbeat, rollup, pause, incident, certificate_notice)


def _deleted_monitors(of: Table) -> Query[int]:
    """Build a query for deleted monitors with rows in a table, by a loose index scan."""
    ids = select(func.min(of.c.monitor_id).label("id")).cte("ids", recursive=True)
    following = select(func.min(of.c.monitor_id)).where(of.c.monitor_id > ids.c.id).scalar_subquery()
    ids = ids.union_all(select(following).where(ids.c.id.is_not(None)))
    is_there = select(monitor.c.id).where(monitor.c.id == ids.c.id).exists()
    return Query(select(ids.c.id).where(ids.c.id.is_not(None) & ~is_there), scalar)


DELETED_MONITORS = {of: _deleted_monitors(of) for of in MONITOR_TABLES}
TRIM_DELETED = {of: _trimming(of, of.c.monitor_id == arg("monitor_id")) for of in MONITOR_TABLES}


def register(handlers: Handlers) -> None:
    handlers.maintain(KIND, CRON, TrimMonitors(), trim)


async def trim(run: Run, _: TrimMonitors) -> None:
    """Delete old rows in batches."""
    await _trim_deleted(run)
    await _trim_beats(run)
    now = run.db.env.clock.trusted_now()
    for span_s, kept_ms in ROLLUPS_KEPT_MS.items():
        await run.delete_in_batches(BATCH_SIZE, _unit(TRIM_ROLLUPS, span_s=span_s, before=now - kept_ms))
    await run.delete_in_batches(BATCH_SIZE, _unit(TRIM_NOTICES, before=now - NOTICES_KEPT_MS))
    for command in TRIM_HISTORY:
        await run.delete_in_batches(BATCH_SIZE, _unit(command, before=now - HISTORY_KEPT_MS))
    await run.delete_in_batches(BATCH_SIZE, _unit(TRIM_PROBERS, before=now - PROBERS_KEPT_MS))


def _unit(command: Command, **params: int) -> Unit[int]:
    return lambda tx: tx.run(command, most=BATCH_SIZE, **params)


async def _trim_deleted(run: Run) -> None:
    """Delete the rows of deleted monitors."""
    for of, query in DELETED_MONITORS.items():
        for monitor_id in await run.read(partial(_all, query=query)):
            await run.delete_in_batches(BATCH_SIZE, _unit(TRIM_DELETED[of], monitor_id=monitor_id))
    await run.delete_in_batches(BATCH_SIZE, _unit(TRIM_LOST_NOTICES))


@across_organizations("deleted monitors of all organizations")
def _all(tx: Tx, query: Query[int]) -> list[int]:
    return tx.all(query)


async def _trim_beats(run: Run) -> None:
    after = 0
    while cuts := await run.read(partial(_next_cuts, after=after)):
        await run.delete_in_batches(BATCH_SIZE, partial(_remove_beats, cuts=cuts))
        after = cuts[-1][0]


@across_organizations("old heartbeats of all organizations")
def _next_cuts(tx: Tx, after: int) -> list[tuple[int, int | None]]:
    return tx.all(NEXT_CUTS, after=after, most=MONITORS_PER_READ)


@across_organizations("old heartbeats of all organizations")
def _remove_beats(tx: Tx, cuts: Sequence[tuple[int, int | None]]) -> int:
    """Delete up to BATCH_SIZE old heartbeats; return how many."""
    removed = 0
    for monitor_id, oldest_kept in cuts:
        if oldest_kept is not None and removed < BATCH_SIZE:
            before = min(oldest_kept, tx.trusted_now - BEATS_KEPT_MS)
            removed += tx.run(TRIM_BEATS, monitor_id=monitor_id, before=before, most=BATCH_SIZE - removed)
    return removed
