"""How a monitor did over some time, from the roll-ups of its checks.

Only checks count. Time in which nothing was checked, because the monitor was paused or the platform was down itself,
is on neither side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Integer, func, select

from moorage.core.db.query import Query, arg, columns
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from moorage.products.monitors import tables
from moorage.products.monitors.states import BeatStatus
from moorage.products.monitors.tables import DAY_S, HOUR_S, MINUTE_S, Monitor, Pause, monitor, rollup

FINE_HOURS = 168  # Up to a week is shown by hours, more by days.
DAY_HOURS = 24


@dataclass(frozen=True, slots=True)
class Sums:
    """How many checks of a monitor were good and how many were not."""

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
    paused: int  # pauses that began in it or went on
    response_sum: int  # ms, of those that were up

    @property
    def average_ms(self) -> int | None:
        return (2 * self.response_sum + self.up) // (2 * self.up) if self.up else None

    @property
    def status(self) -> BeatStatus | None:
        """The worst that was found; None where nothing was checked."""
        if self.down:
            return BeatStatus.DOWN
        if self.up:
            return BeatStatus.UP
        return BeatStatus.PAUSE if self.paused else None


_r, _m = rollup.c, monitor.c
_within = (_r.span_s == arg("span_s", Integer)) & (_r.start >= arg("since")) & (_r.start < arg("until"))
_sums = select(_r.monitor_id, func.sum(_r.up), func.sum(_r.down)).group_by(_r.monitor_id)
_of_org = select(_m.id).where(_m.org_id == arg("org_id"))
SUMS_OF = Query(_sums.where((_r.org_id == arg("org_id")) & (_r.monitor_id == arg("monitor_id")) & _within), Sums)
# The rows are found monitor by monitor: there are far more of other organizations in the same span of time.
SUMS_OF_ALL = Query(_sums.where(_r.monitor_id.in_(_of_org) & _within), Sums)
ROLLUPS = Query(
    select(*columns(rollup, "start", "up", "down", "response_sum")).where(
        (_r.org_id == arg("org_id")) & (_r.monitor_id == arg("monitor_id")) & _within
    ),
    Rollup,
)


def floor_percent(up: int, down: int) -> float | None:
    """Return the share of good checks with two decimals, never rounded up: 99.996 is not 100. None without any."""
    return up * 10_000 // (up + down) / 100 if up + down else None


def uptime_of(tx: Tx, org_id: int, monitor_id: int) -> float | None:
    """Return the share of good checks over the last 24 hours."""
    spans = _last_day(tx.now)
    sums = [each for span in spans for each in tx.all(SUMS_OF, org_id=org_id, monitor_id=monitor_id, **span)]
    return floor_percent(sum(each.up for each in sums), sum(each.down for each in sums))


def uptimes(tx: Tx, org_id: int) -> dict[int, float]:
    """Return that of all monitors of an organization that have any, by their ids."""
    total: dict[int, tuple[int, int]] = {}
    for span in _last_day(tx.now):
        for each in tx.all(SUMS_OF_ALL, org_id=org_id, **span):
            up, down = total.get(each.monitor_id, (0, 0))
            total[each.monitor_id] = up + each.up, down + each.down
    percents = {monitor_id: floor_percent(*sums) for monitor_id, sums in total.items()}
    return {monitor_id: percent for monitor_id, percent in percents.items() if percent is not None}


def _last_day(now: int) -> list[dict[str, int]]:
    """Return which roll-ups make up the last 24 hours: minutes up to the first whole hour, from there on hours."""
    since = _ceil(now - DAY_MS, MINUTE_MS)
    whole = _ceil(since, HOUR_MS)
    return [
        {"span_s": MINUTE_S, "since": since, "until": whole},
        {"span_s": HOUR_S, "since": whole, "until": now + 1},
    ]


def _ceil(moment: int, width: int) -> int:
    return -(-moment // width) * width


def buckets(tx: Tx, org_id: int, found: Monitor, hours: int) -> list[Bucket]:
    """Return the last hours of a monitor, or days where they are many, oldest first. The last is the present one.

    There is one for each hour or day in UTC, also where nothing was checked.
    """
    span_s = HOUR_S if hours <= FINE_HOURS else DAY_S
    steps = hours if hours <= FINE_HOURS else -(-hours // DAY_HOURS)
    width = span_s * SECOND_MS
    first = (tx.now // width - steps + 1) * width
    until = first + steps * width
    its = {"org_id": org_id, "monitor_id": found.id, "span_s": span_s, "since": first, "until": until}
    rows = {row.start: row for row in tx.all(ROLLUPS, **its)}
    pauses = tx.all(tables.PAUSES, org_id=org_id, id=found.id, since=first - 1)
    return [_bucket(start, width, rows.get(start), pauses, tx.now) for start in range(first, until, width)]


def _bucket(start: int, width: int, row: Rollup | None, pauses: Iterable[Pause], now: int) -> Bucket:
    paused = sum(_is_within(pause, start, start + width, now) for pause in pauses)
    if row is None:
        return Bucket(start, 0, 0, paused, 0)
    return Bucket(start, row.up, row.down, paused, row.response_sum)


def _is_within(pause: Pause, start: int, end: int, now: int) -> bool:
    """Tell whether some of a pause lies in a span of time; one that took no time lies where it began."""
    ended_at = pause.ended_at if pause.ended_at is not None else now
    return pause.began_at < end and max(ended_at, pause.began_at + 1) > start


def uptime_over(found: Iterable[Bucket]) -> float | None:
    """Return the share of good checks in some buckets."""
    up_down = [(each.up, each.down) for each in found]
    return floor_percent(sum(up for up, _ in up_down), sum(down for _, down in up_down))
