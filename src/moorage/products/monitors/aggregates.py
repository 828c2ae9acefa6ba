"""Uptime and response times of a monitor, from the roll-ups of its checks.

Only checks count. Time without checks, because the monitor was paused or the platform was down, counts neither as up
nor as down.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Integer, func, select

from moorage.core.db.query import Query, arg, columns
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.core.kit.records import dataclass
from moorage.products.monitors import tables
from moorage.products.monitors.states import BeatStatus
from moorage.products.monitors.tables import DAY_S, HOUR_S, MINUTE_S, Monitor, Pause, monitor, rollup

MAX_HOURLY_HOURS = 168  # Up to a week has hourly buckets, a longer time daily ones.
DAY_HOURS = 24


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """Number of successful and failed checks of a monitor."""

    monitor_id: int
    up: int
    down: int


@dataclass(frozen=True, slots=True)
class Rollup:
    start: int
    up: int
    down: int
    response_sum: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """One hour or one day of a monitor."""

    start: int
    up: int
    down: int
    paused: int  # number of pauses that overlap the bucket
    response_sum: int  # ms, of the checks that were up

    @property
    def average_ms(self) -> int | None:
        return (2 * self.response_sum + self.up) // (2 * self.up) if self.up else None

    @property
    def status(self) -> BeatStatus | None:
        """Worst status of the checks; None without checks and pauses."""
        if self.down:
            return BeatStatus.DOWN
        if self.up:
            return BeatStatus.UP
        return BeatStatus.PAUSE if self.paused else None


_r, _m = rollup.c, monitor.c
_within = (_r.span_s == arg("span_s", Integer)) & (_r.start >= arg("since")) & (_r.start < arg("until"))
_sums = select(_r.monitor_id, func.sum(_r.up), func.sum(_r.down)).group_by(_r.monitor_id)
_of_org = select(_m.id).where(_m.org_id == arg("org_id"))
SUMS_OF = Query(_sums.where((_r.org_id == arg("org_id")) & (_r.monitor_id == arg("monitor_id")) & _within), CheckCounts)
# Selects rows by monitor: other organizations have far more rows in the same time range.
SUMS_OF_ALL = Query(_sums.where(_r.monitor_id.in_(_of_org) & _within), CheckCounts)
ROLLUPS = Query(
    select(*columns(rollup, "start", "up", "down", "response_sum")).where(
        (_r.org_id == arg("org_id")) & (_r.monitor_id == arg("monitor_id")) & _within
    ),
    Rollup,
)


def floor_percent(up: int, down: int) -> float | None:
    """Return the percentage of successful checks; None without checks.

    Rounded down to two decimals, so that 99.996 is not shown as 100.
    """
    return up * 10_000 // (up + down) / 100 if up + down else None


def uptime_of(tx: Tx, org_id: int, monitor_id: int) -> float | None:
    """Return the percentage of successful checks over the last 24 hours."""
    spans = _last_day(tx.now)
    sums = [each for span in spans for each in tx.all(SUMS_OF, org_id=org_id, monitor_id=monitor_id, **span)]
    return floor_percent(sum(each.up for each in sums), sum(each.down for each in sums))


def uptimes(tx: Tx, org_id: int) -> dict[int, float]:
    """Return the uptime of each monitor of an organization that has checks, by id."""
    total: dict[int, tuple[int, int]] = {}
    for span in _last_day(tx.now):
        for each in tx.all(SUMS_OF_ALL, org_id=org_id, **span):
            up, down = total.get(each.monitor_id, (0, 0))
            total[each.monitor_id] = up + each.up, down + each.down
    percents = {monitor_id: floor_percent(*sums) for monitor_id, sums in total.items()}
    return {monitor_id: percent for monitor_id, percent in percents.items() if percent is not None}


def _last_day(now: int) -> list[dict[str, int]]:
    """Return the roll-ups of the last 24 hours: minutes to the first hour, then hours."""
    since = _ceil(now - DAY_MS, MINUTE_MS)
    whole = _ceil(since, HOUR_MS)
    return [
        {"span_s": MINUTE_S, "since": since, "until": whole},
        {"span_s": HOUR_S, "since": whole, "until": now + 1},
    ]


def _ceil(moment: int, width: int) -> int:
    return -(-moment // width) * width


def buckets(tx: Tx, org_id: int, monitor: Monitor, hours: int) -> list[Bucket]:
    """Return hourly or daily buckets of a monitor, oldest first.

    There is a bucket for each hour or day in UTC, also without checks; the last one is the current hour or day.
    """
    span_s = HOUR_S if hours <= MAX_HOURLY_HOURS else DAY_S
    steps = hours if hours <= MAX_HOURLY_HOURS else -(-hours // DAY_HOURS)
    width = span_s * SECOND_MS
    first = (tx.now // width - steps + 1) * width
    until = first + steps * width
    scope = {"org_id": org_id, "monitor_id": monitor.id, "span_s": span_s, "since": first, "until": until}
    rows = {row.start: row for row in tx.all(ROLLUPS, **scope)}
    pauses = tx.all(tables.PAUSES, org_id=org_id, id=monitor.id, since=first - 1)
    return [_bucket(start, width, rows.get(start), pauses, tx.now) for start in range(first, until, width)]


def _bucket(start: int, width: int, row: Rollup | None, pauses: Iterable[Pause], now: int) -> Bucket:
    paused = sum(_is_within(pause, start, start + width, now) for pause in pauses)
    if row is None:
        return Bucket(start, 0, 0, paused, 0)
    return Bucket(start, row.up, row.down, paused, row.response_sum)


def _is_within(pause: Pause, start: int, end: int, now: int) -> bool:
    """Return whether a pause overlaps a time range; an empty pause lasts 1 ms."""
    ended_at = pause.ended_at if pause.ended_at is not None else now
    return pause.began_at < end and max(ended_at, pause.began_at + 1) > start


def uptime_over(buckets: Iterable[Bucket]) -> float | None:
    up_down = [(each.up, each.down) for each in buckets]
    return floor_percent(sum(up for up, _ in up_down), sum(down for _, down in up_down))
