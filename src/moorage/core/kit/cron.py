"""Cron expressions with time zones, for every schedule of the platform.

`cronsim` parses an expression and matches days. This module adds validation, because cronsim also accepts seconds,
`L`, `#` and steps larger than the field. It also converts between wall time and epoch time itself: the conversion must
be the same forwards and backwards, also for changes of half an hour or at midnight, and parsing again for every tick
is too slow for a scheduler. At a change of the UTC offset the rules of Debian cron apply:

* An expression whose minute or hour starts with `*` follows the clock: it does not run at skipped wall times and runs
  twice at repeated ones.
* Any other expression names fixed times: a time that does not exist that day runs at the first moment after the gap,
  and a time that occurs twice runs the first time only.
"""

import re
from array import array
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from moorage.core.kit.records import dataclass

MAX_EXPRESSION_CHARS = 120
MAX_TIMEZONE_CHARS = 64

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    max_step: int  # A larger step exceeds the field.


_FIELDS = (
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day-of-month", 1, 31, 31),
    _Field("month", 1, 12, 12),
    _Field("day-of-week", 0, 7, 7),
)
_VALUE = "(?:[0-9]{1,2}|[A-Za-z]{3})"
_TERM = re.compile(rf"(?:\*|{_VALUE}(?:-{_VALUE})?)(?:/(?P<step>[0-9]{{1,2}}))?")

_DAY_S = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()

# No zone in tzdata changes its offset twice within 6 days between 1943 and 2100; the closest changes are 7 days apart.
_STRIDE_S = 6 * _DAY_S

# Any start shows whether an expression ever fires: cronsim searches 50 years ahead, and the rarest existing date, a
# leap day on a given weekday, recurs within 40 years.
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


class BadCron(ValueError):
    """The expression is invalid; the text is a message for the user."""


class BadTimezone(ValueError):
    """The time zone is unknown; the text is a message for the user."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid cron expression in a time zone, both exactly as the user wrote them."""

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        _timeline(self.expression, self.timezone)

    @classmethod
    def parse(cls, expression: str, timezone: str = "UTC") -> "Cron":
        """Parse an expression; raises BadCron or BadTimezone with a message for the user."""
        return cls(expression, timezone)

    def next_after(self, moment_ms: int) -> int:
        """Return the first tick strictly after the moment, in epoch milliseconds."""
        return _timeline(self.expression, self.timezone).after(moment_ms // 1000) * 1000

    def next_runs(self, moment_ms: int, count: int) -> list[int]:
        """Return the first ticks strictly after the moment, in epoch milliseconds."""
        ticks: list[int] = []
        for _ in range(count):
            moment_ms = self.next_after(moment_ms)
            ticks.append(moment_ms)
        return ticks

    def describe(self) -> str:
        """Return the expression in English, such as `At 09:00 on Monday through Friday`."""
        return str(CronSim(" ".join(_read_fields(self.expression)), _SOME_DAY).explain())

    def local_time(self, moment_ms: int) -> str:
        """Return a moment in the time zone, in ISO 8601 with its UTC offset."""
        return datetime.fromtimestamp(moment_ms // 1000, _read_zone(self.timezone)).isoformat()

    def latest_in(self, after_ms: int, until_ms: int) -> int | None:
        """Return the latest tick t with after < t <= until; cheap for long spans."""
        if after_ms >= until_ms:
            return None
        tick = _timeline(self.expression, self.timezone).latest(after_ms // 1000, until_ms // 1000)
        return None if tick is None else tick * 1000


@lru_cache(maxsize=4096)
def _timeline(expression: str, timezone: str) -> "_FixedTimes | _FollowsClock":
    fields = _read_fields(expression)
    zone = _read_zone(timezone)
    follows_clock = fields[0].startswith("*") or fields[1].startswith("*")
    return (_FollowsClock if follows_clock else _FixedTimes)(_WallClock.of(" ".join(fields)), zone)


def _read_fields(expression: str) -> list[str]:
    if not 1 <= len(expression) <= MAX_EXPRESSION_CHARS:
        raise BadCron(f"a cron expression has 1 to {MAX_EXPRESSION_CHARS} characters, not {len(expression)}")
    if expression.startswith("@") and expression not in ALIASES:
        raise BadCron(f"{expression!r} is not a known schedule: use {', '.join(ALIASES)} or five fields")
    fields = [field for field in re.split(r"[ \t]+", ALIASES.get(expression, expression)) if field]
    if len(fields) != len(_FIELDS):
        raise BadCron(f"a cron expression has 5 fields (minute hour day month weekday), not {len(fields)}")
    if not (all(map(_is_well_formed, fields, _FIELDS)) and _ever_fires(fields)):
        raise BadCron(_explain_invalid(fields))
    return fields


def _explain_invalid(fields: list[str]) -> str:
    """Name the invalid field by trying each alone; else no date matches all."""
    for index, (field, rule) in enumerate(zip(fields, _FIELDS, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[index] = field
        if not (_is_well_formed(field, rule) and _ever_fires(alone)):
            return (
                f"the {rule.name} field {field!r} is not valid: use * or numbers from {rule.low} to {rule.high}, "
                f"ranges such as {rule.low}-{rule.high}, lists, and steps from 1 to {rule.max_step}"
            )
    return f"the cron expression {' '.join(fields)!r} never fires: no such date exists"


def _is_well_formed(field: str, rule: _Field) -> bool:
    terms = [_TERM.fullmatch(text) for text in field.split(",")]
    return all(term is not None and 1 <= int(term["step"] or 1) <= rule.max_step for term in terms)


def _ever_fires(fields: list[str]) -> bool:
    try:
        return next(CronSim(" ".join(fields), _SOME_DAY), None) is not None
    except CronSimError:
        return False


def _read_zone(name: str) -> ZoneInfo:
    if not 1 <= len(name) <= MAX_TIMEZONE_CHARS:
        raise BadTimezone(f"the name of a time zone has 1 to {MAX_TIMEZONE_CHARS} characters, not {len(name)}")
    if name not in _zone_names():
        raise BadTimezone(f"{name!r} is not a known time zone: use a name such as UTC or Europe/Berlin")
    return _load_zone(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """List the zones of tzdata; the system's folder differs and has `localtime`."""
    names = (resources.files("tzdata") / "zones").read_text("ascii").split()
    return frozenset(names) - {"Factory"}


@lru_cache(maxsize=1024)
def _load_zone(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@dataclass(frozen=True, slots=True)
class _WallClock:
    """The wall times of an expression, in seconds since 1970-01-01 00:00 local time."""

    days: CronSim
    times_s: "array[int]"  # since midnight, in order

    @classmethod
    def of(cls, fields: str) -> "_WallClock":
        days = CronSim(fields, _SOME_DAY)
        return cls(days, array("l", sorted(h * 3600 + m * 60 for h in days.hours for m in days.minutes)))

    def after(self, wall: int) -> Iterator[int]:
        """Yield all wall times strictly after the given one."""
        day = wall // _DAY_S
        while True:
            day = self._nearest_day(day, 1)
            midnight = day * _DAY_S
            yield from (midnight + time_s for time_s in self.times_s[bisect_right(self.times_s, wall - midnight) :])
            day += 1

    def until(self, wall: int) -> Iterator[int]:
        """Yield all wall times up to and including the given one, the latest first."""
        day = wall // _DAY_S
        while True:
            day = self._nearest_day(day, -1)
            midnight = day * _DAY_S
            earlier = self.times_s[: bisect_right(self.times_s, wall - midnight)]
            yield from (midnight + time_s for time_s in reversed(earlier))
            day -= 1

    def _nearest_day(self, day: int, step: int) -> int:
        """Return the nearest matching day from `day` on, in the step's direction."""
        while True:
            today = date.fromordinal(_EPOCH_DAY + day)
            if today.month not in self.days.months:
                # Skip the rest of the month at once: a yearly schedule skips most of a year.
                day += monthrange(today.year, today.month)[1] - today.day + 1 if step > 0 else -today.day
            elif self.days.match_day(today):
                return day
            else:
                day += step


@dataclass(frozen=True, slots=True)
class _Timeline:
    """Converts moments (seconds since the epoch) to wall times by the UTC offset."""

    walls: _WallClock
    zone: ZoneInfo

    def offset_at(self, moment: int) -> int:
        return _offset(datetime.fromtimestamp(moment, self.zone))

    def boundary(self, low: int, high: int) -> int:
        """Return the first moment in (low, high] after the only change of the offset."""
        offset = self.offset_at(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.offset_at(middle) == offset else (middle, high)
        return high


class _FixedTimes(_Timeline):
    """Converts wall times in order, until a moment is in range."""

    __slots__ = ()

    def after(self, moment: int) -> int:
        ticks = map(self._moment_of, self.walls.after(moment + self.offset_at(moment)))
        return next(tick for tick in ticks if tick > moment)

    def latest(self, after: int, until: int) -> int | None:
        # Shortly after the clock is set back, past ticks have a later wall time than the current one.
        offset = max(self.offset_at(until), self.offset_at(until - _DAY_S))
        ticks = map(self._moment_of, self.walls.until(until + offset))
        tick = next(tick for tick in ticks if tick <= until)
        return tick if tick > after else None

    def _moment_of(self, wall: int) -> int:
        local = datetime.fromtimestamp(wall, UTC).replace(tzinfo=self.zone)
        offset = _offset(local)
        moment = wall - offset
        if self.offset_at(moment) == offset:
            return moment
        return self.boundary(wall - _offset(local.replace(fold=1)), moment)


class _FollowsClock(_Timeline):
    """Searches one period of constant UTC offset after the other."""

    __slots__ = ()

    def after(self, moment: int) -> int:
        offset = self.offset_at(moment)
        while True:
            tick = next(self.walls.after(moment + offset)) - offset
            change = self._next_change(moment, tick, offset)
            if change is None:
                return tick
            moment, offset = change - 1, self.offset_at(change)

    def latest(self, after: int, until: int) -> int | None:
        offset = self.offset_at(until)
        while True:
            tick = next(self.walls.until(until + offset)) - offset
            change = self._last_change(max(tick, after), until, offset)
            if change is None:
                return tick if tick > after else None
            until, offset = change - 1, self.offset_at(change - 1)

    def _next_change(self, start: int, end: int, offset: int) -> int | None:
        """Return the first moment in (start, end] with another offset."""
        while start < end:
            ahead = min(start + _STRIDE_S, end)
            if self.offset_at(ahead) != offset:
                return self.boundary(start, ahead)
            start = ahead
        return None

    def _last_change(self, start: int, end: int, offset: int) -> int | None:
        """Return the first moment in (start, end] since when the offset is the given one."""
        while start < end:
            behind = max(end - _STRIDE_S, start)
            if self.offset_at(behind) != offset:
                return self.boundary(behind, end)
            end = behind
        return None


def _offset(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None, "a tzdata zone always has an offset"
    return int(offset.total_seconds())
