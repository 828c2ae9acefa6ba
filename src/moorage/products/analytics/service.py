"""Analytics figures of a project over a time range."""

from __future__ import annotations

from typing import NamedTuple

from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, to_wire
from moorage.products.analytics import schemas, tables
from moorage.products.analytics.tables import PATH, REFERRER, STATUSES, Hour
from moorage.products.projects.tables import Project

TOP_LIST_ENTRIES = 20
OTHER_NAME = "other"
ALL_HOURS = (1 << 24) - 1


class Window(NamedTuple):
    """Buckets aligned to multiples of their width in UTC; the last one is current."""

    start: int
    width: int
    steps: int

    @property
    def buckets(self) -> range:
        return range(self.start, self.start + self.width * self.steps, self.width)


_SHAPES: dict[schemas.RangeName, tuple[int, int]] = {
    "24h": (HOUR_MS, 24),
    "7d": (DAY_MS, 7),
    "30d": (DAY_MS, 30),
    "90d": (DAY_MS, 90),
}


def window_of(name: schemas.RangeName, now: int) -> Window:
    width, steps = _SHAPES[name]
    return Window((now // width - steps + 1) * width, width, steps)


def read(tx: Tx, org_id: int, project: Project, name: schemas.RangeName) -> schemas.ProjectAnalytics:
    """Return the figures of a project; no figures if analytics is switched off."""
    if not project.enable_analytics:
        return schemas.ProjectAnalytics(False, name, _totals([], 0), [], [], [])
    window = window_of(name, tx.now)
    hours = tx.all(tables.HOURS, org_id=org_id, project_id=project.id, start=window.start)
    visitors = _visitors(tx, org_id, project.id, window, hours)
    paths = _top(tx, org_id, project.id, PATH, window)
    referrers = _top(tx, org_id, project.id, REFERRER, window)
    return schemas.ProjectAnalytics(
        enabled=True,
        range=name,
        totals=_totals(hours, visitors),
        series=_series(window, hours),
        top_paths=[schemas.TopPath(*entry) for entry in paths],
        top_referrers=[schemas.TopReferrer(*entry) for entry in referrers],
    )


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Delete the figures of a project, in the transaction that deletes the project.

    The project's row is locked first, so that figures of a concurrent ingest are committed and deleted too.
    """
    tx.find(tables.LOCK_PROJECT, org_id=org_id, project_id=project_id)
    for command in tables.DELETE_OF_PROJECT:
        tx.run(command, org_id=org_id, project_id=project_id)


def _visitors(tx: Tx, org_id: int, project_id: int, window: Window, hours: list[Hour]) -> int:
    """Return the number of visitors, each counted once a day.

    If the window begins within a day, the visitors of that day are counted from their hour bits: their first visit may
    precede the window.
    """
    first = window.start // DAY_MS * DAY_MS
    if window.start == first:
        return sum(hour.newcomers for hour in hours)
    since = ALL_HOURS & ~((1 << (window.start - first) // HOUR_MS) - 1)
    of_first_day = tx.one(tables.COUNT_VISITORS, org_id=org_id, project_id=project_id, day=first, hours=since)
    return of_first_day + sum(hour.newcomers for hour in hours if hour.start >= first + DAY_MS)


def _totals(hours: list[Hour], visitors: int) -> schemas.AnalyticsTotals:
    return schemas.AnalyticsTotals(
        requests=sum(hour.requests for hour in hours),
        visitors=visitors,
        bytes=sum(hour.bytes for hour in hours),
        statuses={name[1:]: sum(getattr(hour, name) for hour in hours) for name in STATUSES},
    )


def _series(window: Window, hours: list[Hour]) -> list[schemas.AnalyticsBucket]:
    """Return a bucket for each step, including empty ones."""
    by_bucket: dict[int, list[Hour]] = {}
    for hour in hours:
        by_bucket.setdefault(hour.start // window.width * window.width, []).append(hour)
    return [_bucket(start, by_bucket.get(start, []), is_day=window.width == DAY_MS) for start in window.buckets]


def _bucket(start: int, hours: list[Hour], *, is_day: bool) -> schemas.AnalyticsBucket:
    return schemas.AnalyticsBucket(
        t=to_wire(start),
        requests=sum(hour.requests for hour in hours),
        visitors=sum(hour.newcomers if is_day else hour.visitors for hour in hours),
        bytes=sum(hour.bytes for hour in hours),
    )


def _top(tx: Tx, org_id: int, project_id: int, kind: str, window: Window) -> list[tuple[str, int]]:
    """Return the largest entries of a list, and the sum of all others as last entry."""
    day = window.start // DAY_MS * DAY_MS
    top = tx.all(tables.TOP, org_id=org_id, project_id=project_id, kind=kind, start=day, most=TOP_LIST_ENTRIES)
    listed = tx.one(tables.LISTED, org_id=org_id, project_id=project_id, kind=kind, start=day)
    others = listed - sum(requests for _, requests in top)
    return [*top, (OTHER_NAME, others)] if others else top
