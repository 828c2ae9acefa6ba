"""What was counted of a project, over a span of time."""

from __future__ import annotations

from typing import NamedTuple

from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, to_wire
from moorage.products.analytics import tables
from moorage.products.analytics.schemas import (
    AnalyticsBucket,
    AnalyticsTotals,
    ProjectAnalytics,
    RangeName,
    TopPath,
    TopReferrer,
)
from moorage.products.analytics.tables import PATH, REFERRER, STATUSES, Hour
from moorage.products.projects.tables import Project

SHOWN = 20  # entries of a top list
OTHER_NAME = "other"
ALL_HOURS = (1 << 24) - 1


class Window(NamedTuple):
    """Buckets that stand at multiples of their width in UTC; the present one is the last."""

    start: int
    width: int
    steps: int

    @property
    def buckets(self) -> range:
        return range(self.start, self.start + self.width * self.steps, self.width)


_SHAPES: dict[RangeName, tuple[int, int]] = {
    "24h": (HOUR_MS, 24),
    "7d": (DAY_MS, 7),
    "30d": (DAY_MS, 30),
    "90d": (DAY_MS, 90),
}


def window_of(name: RangeName, now: int) -> Window:
    width, steps = _SHAPES[name]
    return Window((now // width - steps + 1) * width, width, steps)


def read(tx: Tx, org_id: int, project: Project, name: RangeName) -> ProjectAnalytics:
    """Return the figures of a project; none at all where they are switched off."""
    if not project.enable_analytics:
        return ProjectAnalytics(False, name, _totals([], 0), [], [], [])
    window = window_of(name, tx.now)
    hours = tx.all(tables.HOURS, org_id=org_id, project_id=project.id, start=window.start)
    visitors = _visitors(tx, org_id, project.id, window, hours)
    paths = _top(tx, org_id, project.id, PATH, window)
    referrers = _top(tx, org_id, project.id, REFERRER, window)
    return ProjectAnalytics(
        enabled=True,
        range=name,
        totals=_totals(hours, visitors),
        series=_series(window, hours),
        top_paths=[TopPath(*entry) for entry in paths],
        top_referrers=[TopReferrer(*entry) for entry in referrers],
    )


def remove_of_project(tx: Tx, org_id: int, project_id: int) -> None:
    """Forget what was counted of a project, for whoever deletes it in the same unit.

    Its row is locked first: requests that are just being counted are waited for, and go as well.
    """
    tx.find(tables.HOLD_PROJECT, org_id=org_id, project_id=project_id)
    for command in tables.DELETE_OF_PROJECT:
        tx.run(command, org_id=org_id, project_id=project_id)


def _visitors(tx: Tx, org_id: int, project_id: int, window: Window, hours: list[Hour]) -> int:
    """Return how many there were, each day's counted once.

    A window that begins within a day has visitors who came that day before it too, so they are looked up one by one.
    """
    first = window.start // DAY_MS * DAY_MS
    if window.start == first:
        return sum(hour.newcomers for hour in hours)
    since = ALL_HOURS & ~((1 << (window.start - first) // HOUR_MS) - 1)
    of_first_day = tx.one(tables.COUNT_VISITORS, org_id=org_id, project_id=project_id, day=first, hours=since)
    return of_first_day + sum(hour.newcomers for hour in hours if hour.start >= first + DAY_MS)


def _totals(hours: list[Hour], visitors: int) -> AnalyticsTotals:
    return AnalyticsTotals(
        requests=sum(hour.requests for hour in hours),
        visitors=visitors,
        bytes=sum(hour.bytes for hour in hours),
        statuses={name[1:]: sum(getattr(hour, name) for hour in hours) for name in STATUSES},
    )


def _series(window: Window, hours: list[Hour]) -> list[AnalyticsBucket]:
    """Return a bucket for each step, also where nothing happened."""
    found: dict[int, list[Hour]] = {}
    for hour in hours:
        found.setdefault(hour.start // window.width * window.width, []).append(hour)
    return [_bucket(start, found.get(start, []), is_day=window.width == DAY_MS) for start in window.buckets]


def _bucket(start: int, hours: list[Hour], *, is_day: bool) -> AnalyticsBucket:
    return AnalyticsBucket(
        t=to_wire(start),
        requests=sum(hour.requests for hour in hours),
        visitors=sum(hour.newcomers if is_day else hour.visitors for hour in hours),
        bytes=sum(hour.bytes for hour in hours),
    )


def _top(tx: Tx, org_id: int, project_id: int, kind: str, window: Window) -> list[tuple[str, int]]:
    """Return the largest entries of a list, and in a last one what all others come to."""
    day = window.start // DAY_MS * DAY_MS
    top = tx.all(tables.TOP, org_id=org_id, project_id=project_id, kind=kind, start=day, most=SHOWN)
    listed = tx.one(tables.LISTED, org_id=org_id, project_id=project_id, kind=kind, start=day)
    others = listed - sum(requests for _, requests in top)
    return [*top, (OTHER_NAME, others)] if others else top
