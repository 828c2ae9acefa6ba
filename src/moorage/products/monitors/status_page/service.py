"""Data of the public status page: public monitors and their open incidents.

URLs and error messages are left out, because the page is public; monitors have the names that their owners chose.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from sqlalchemy import func, select

from moorage.accounts.identity.organizations import service as orgs
from moorage.core.db.query import Query, arg, columns, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.records import dataclass
from moorage.products.monitors import aggregates, tables
from moorage.products.monitors.alerts.tables import alert, incident
from moorage.products.monitors.states import BeatStatus
from moorage.products.monitors.status_page import history
from moorage.products.monitors.status_page.history import Episode
from moorage.products.monitors.tables import DAY_S, Monitor, Pause, State, heartbeat, monitor, rollup

DAYS = 90


@dataclass(frozen=True, slots=True)
class Day:
    """Checks of a monitor on one day."""

    start: int
    up: int = 0
    down: int = 0
    is_paused: bool = False

    @property
    def percent(self) -> float | None:
        return aggregates.floor_percent(self.up, self.down)


@dataclass(frozen=True, slots=True)
class MonitorLine:
    """One monitor on the page."""

    name: str
    is_paused: bool
    is_up: bool | None  # None before the first check
    checked_at: int | None
    uptime_day: float | None
    uptime_all: float | None
    days: tuple[Day, ...]  # oldest first, the last is today


@dataclass(frozen=True, slots=True)
class OngoingIssue:
    """A monitor that is down, or an open incident."""

    name: str
    description: str
    since: int | None


@dataclass(frozen=True, slots=True)
class Status:
    organization: str
    at: int
    lines: tuple[MonitorLine, ...]
    issues: tuple[OngoingIssue, ...]
    episodes: tuple[Episode, ...]  # of the last DAYS days, the latest first
    first_at: int  # creation of the oldest public monitor


@dataclass(frozen=True, slots=True)
class _DayRow:
    monitor_id: int
    start: int
    up: int
    down: int


@dataclass(frozen=True, slots=True)
class _OpenIncident:
    monitor_id: int
    metric: str
    severity: str
    started_at: int


_m, _r, _h = monitor.c, rollup.c, heartbeat.c
_public = (_m.org_id == arg("org_id")) & _m.is_public
_DAYS = Query(
    select(_r.monitor_id, _r.start, _r.up, _r.down)
    .join(monitor, _m.id == _r.monitor_id)
    .where(_public & (_r.span_s == DAY_S) & (_r.start >= arg("since")))
    .order_by(_r.monitor_id, _r.start),
    _DayRow,
)
_OPEN_INCIDENTS = Query(
    select(incident.c.monitor_id, alert.c.metric, alert.c.severity, incident.c.started_at)
    .join(monitor, _m.id == incident.c.monitor_id)
    .join(alert, alert.c.id == incident.c.alert_id)
    .where(_public & incident.c.resolved_at.is_(None))
    .order_by(incident.c.started_at),
    _OpenIncident,
)
_PAUSES = Query(
    select(*columns(tables.pause))
    .join(monitor, _m.id == tables.pause.c.monitor_id)
    .where(_public & (tables.pause.c.ended_at.is_(None) | (tables.pause.c.ended_at > arg("since"))))
    .order_by(tables.pause.c.monitor_id, tables.pause.c.began_at),
    Pause,
)
_of_beats = (_h.org_id == arg("org_id")) & (_h.monitor_id == arg("id"))
_LAST_UP = (
    select(func.coalesce(func.max(_h.slot), 0))
    .where(_of_beats & (_h.status != BeatStatus.DOWN.value))
    .scalar_subquery()
)
_DOWN_SINCE: Query[int | None] = Query(select(func.min(_h.at)).where(_of_beats & (_h.slot > _LAST_UP)), scalar)

_WORDS = {
    "status": "has an alert on its status",
    "response_time": "has an alert on how fast it answers",
    "status_code": "has an alert on what it answers",
    "error_rate": "has an alert on how often it fails",
    "ssl_expiry": "has an alert on its certificate",
}


@across_organizations("the page is public: its address names the organization")
def find(tx: Tx, slug: str) -> Status | None:
    """Return the status of an organization; None without public monitors."""
    org = orgs.find_by_slug(tx, slug)
    return None if org is None else of_organization(tx, org.id, org.name)


def of_organization(tx: Tx, org_id: int, name: str) -> Status | None:
    """Return the status of an organization; None without public monitors."""
    monitors = tx.all(tables.PUBLIC_OF, org_id=org_id)
    if not monitors:
        return None
    states = {state.monitor_id: state for state in tx.all(tables.STATES_OF, org_id=org_id)}
    lines = _lines(tx, org_id, monitors, states)
    down = _down_ids(monitors, states)
    episodes = history.of_monitors(tx, org_id, monitors, down, tx.now - DAYS * DAY_MS)
    first_at = min(each.created_at for each in monitors)
    return Status(name, tx.now, lines, _issues(tx, org_id, monitors, down), episodes, first_at)


def _lines(tx: Tx, org_id: int, monitors: list[Monitor], states: dict[int, State]) -> tuple[MonitorLine, ...]:
    first = tx.now - tx.now % DAY_MS - (DAYS - 1) * DAY_MS
    rows = {(row.monitor_id, row.start): row for row in tx.all(_DAYS, org_id=org_id, since=first)}
    by_monitor = attrgetter("monitor_id")
    pauses = {key: list(its) for key, its in groupby(tx.all(_PAUSES, org_id=org_id, since=first), key=by_monitor)}
    uptimes = aggregates.uptimes(tx, org_id)
    lines = []
    for each in monitors:
        starts = range(first, first + DAYS * DAY_MS, DAY_MS)
        days = tuple(_day(start, rows.get((each.id, start)), pauses.get(each.id, [])) for start in starts)
        state = states.get(each.id)
        total = aggregates.floor_percent(sum(day.up for day in days), sum(day.down for day in days))
        is_up = None if state is None or state.last_status is None else state.last_status == BeatStatus.UP
        checked_at = state.last_at if state is not None else None
        lines.append(MonitorLine(each.name, not each.is_running, is_up, checked_at, uptimes.get(each.id), total, days))
    return tuple(lines)


def _day(start: int, row: _DayRow | None, pauses: list[Pause]) -> Day:
    end = start + DAY_MS
    is_paused = any(each.began_at < end and (each.ended_at is None or each.ended_at > start) for each in pauses)
    return Day(start, row.up, row.down, is_paused) if row is not None else Day(start, is_paused=is_paused)


def _down_ids(monitors: list[Monitor], states: dict[int, State]) -> list[int]:
    return [
        each.id
        for each in monitors
        if each.is_running and each.id in states and states[each.id].last_status == BeatStatus.DOWN
    ]


def _issues(tx: Tx, org_id: int, monitors: list[Monitor], down: list[int]) -> tuple[OngoingIssue, ...]:
    """Return each monitor that is down, then the open incidents of monitors that are up."""
    names = {each.id: each.name for each in monitors}
    issues = [OngoingIssue(names[each], "is down", tx.one(_DOWN_SINCE, org_id=org_id, id=each)) for each in down]
    for row in tx.all(_OPEN_INCIDENTS, org_id=org_id):
        if row.monitor_id not in down:
            issues.append(OngoingIssue(names[row.monitor_id], f"{_WORDS[row.metric]} ({row.severity})", row.started_at))
    return tuple(issues)
