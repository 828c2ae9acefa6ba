"""Cron: valid expressions and their ticks, above all at changes of the UTC offset."""

from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.kit.cron import BadCron, BadTimezone, Cron

NEW_YORK = "America/New_York"
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def ticks_after(cron: Cron, moment_ms: int, count: int) -> list[int]:
    ticks: list[int] = []
    for _ in range(count):
        moment_ms = cron.next_after(moment_ms)
        ticks.append(moment_ms)
    return ticks


SCHEDULES = {
    "gap, fixed time": ("30 2 * * *", NEW_YORK, "2026-03-07 12:00", ["2026-03-08 07:00", "2026-03-09 06:30"]),
    "gap, hourly": (
        "0 * * * *",
        NEW_YORK,
        "2026-03-08 05:30",
        ["2026-03-08 06:00", "2026-03-08 07:00", "2026-03-08 08:00"],
    ),
    "gap, every 15 minutes": (
        "*/15 * * * *",
        NEW_YORK,
        "2026-03-08 06:40",
        ["2026-03-08 06:45", "2026-03-08 07:00", "2026-03-08 07:15"],
    ),
    "gap, several fixed times in it": (
        "0,15,45 2,3 * * *",
        NEW_YORK,
        "2026-03-08 06:00",
        ["2026-03-08 07:00", "2026-03-08 07:15", "2026-03-08 07:45"],
    ),
    "fold, fixed time": ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
    "fold, fixed time, asked in the second pass": ("30 1 * * *", NEW_YORK, "2026-11-01 06:10", ["2026-11-02 06:30"]),
    "fold, hourly": (
        "0 * * * *",
        NEW_YORK,
        "2026-11-01 04:30",
        ["2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00", "2026-11-01 08:00"],
    ),
    "fold, every 30 minutes": (
        "*/30 * * * *",
        NEW_YORK,
        "2026-11-01 05:10",
        ["2026-11-01 05:30", "2026-11-01 06:00", "2026-11-01 06:30", "2026-11-01 07:00"],
    ),
    "gap at midnight": ("0 0 * * *", "Africa/Cairo", "2026-04-22 23:00", ["2026-04-23 22:00", "2026-04-24 21:00"]),
    "gap of half an hour": (
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03 10:00",
        ["2026-10-03 15:30", "2026-10-04 15:15"],
    ),
    "gap of half an hour, hourly": (
        "30 * * * *",
        "Australia/Lord_Howe",
        "2026-10-03 14:50",
        ["2026-10-03 15:00", "2026-10-03 15:30", "2026-10-03 16:30"],
    ),
    "gap of a whole day": ("0 12 30 12 *", "Pacific/Apia", "2011-12-01 00:00", ["2011-12-30 10:00"]),
    "weekdays": ("0 9 * * 1-5", "Asia/Kolkata", "2026-01-02 12:00", ["2026-01-05 03:30", "2026-01-06 03:30"]),
    "day of month or weekday": (
        "0 0 13 * 5",
        "UTC",
        "2026-02-01 00:00",
        ["2026-02-06 00:00", "2026-02-13 00:00", "2026-02-20 00:00", "2026-02-27 00:00"],
    ),
    "stepped star: day of month and weekday": (
        "0 0 */10 * 1",
        "UTC",
        "2026-06-01 00:01",
        ["2026-08-31 00:00", "2026-09-21 00:00"],
    ),
    "Sunday is 0": ("0 0 * * 0", "UTC", "2026-06-01 00:00", ["2026-06-07 00:00", "2026-06-14 00:00"]),
    "Sunday is 7": ("0 0 * * 7", "UTC", "2026-06-01 00:00", ["2026-06-07 00:00", "2026-06-14 00:00"]),
    "range to 7": (
        "0 0 * * 5-7",
        "UTC",
        "2026-06-01 00:00",
        ["2026-06-05 00:00", "2026-06-06 00:00", "2026-06-07 00:00"],
    ),
    "names": ("0 0 1 JAN,JUL *", "UTC", "2026-02-01 00:00", ["2026-07-01 00:00", "2027-01-01 00:00"]),
    "names in small letters": ("0 0 * * mon-tue", "UTC", "2026-06-01 12:00", ["2026-06-02 00:00", "2026-06-08 00:00"]),
    "leap day": ("0 0 29 2 *", "UTC", "2026-01-01 00:00", ["2028-02-29 00:00"]),
    "leap day over a century": ("0 0 29 2 *", "UTC", "2096-03-01 00:00", ["2104-02-29 00:00"]),
    "step from a start": ("50/5 * * * *", "UTC", "2026-01-01 00:00", ["2026-01-01 00:50", "2026-01-01 00:55"]),
}


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_ticks_when_the_table_says(expression: str, zone: str, start: str, expected: list[str]) -> None:
    cron = Cron.parse(expression, zone)

    ticks = ticks_after(cron, ms(start), len(expected))

    assert ticks == [ms(text) for text in expected]


@pytest.mark.parametrize(("expression", "zone", "start", "expected"), SCHEDULES.values(), ids=SCHEDULES)
def test_looking_back_finds_the_same_ticks(expression: str, zone: str, start: str, expected: list[str]) -> None:
    cron = Cron.parse(expression, zone)
    ticks = [ms(text) for text in expected]

    latest = [cron.latest_in(ms(start), tick) for tick in ticks]
    just_before = [cron.latest_in(ms(start), tick - 1) for tick in ticks]

    assert latest == ticks
    assert just_before == [None, *ticks[:-1]]


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_an_alias_is_kept_as_given_and_ticks_like_its_five_fields(alias: str, expression: str) -> None:
    start = ms("2026-03-07 12:34")

    cron = Cron.parse(alias, NEW_YORK)

    assert cron.expression == alias
    assert ticks_after(cron, start, 3) == ticks_after(Cron.parse(expression, NEW_YORK), start, 3)


@pytest.mark.parametrize(
    "expression",
    [
        *("60 * * * *", "* * * *", "* * * * * *", "*/0 * * * *", "5-1 * * * *", "¹ * * * *", "0 0 31 2 *", "a * * * *"),
        *("0 0 * * 8", "0 24 * * *", "", "@every 5m", "@reboot", "1,,2 * * * *", "* * * * * ; rm", "0-59/61 * * * *"),
        *("*/61 * * * *", "R * * * *", "H * * * *"),
        *(" ", "@", "@Daily", "@daily ", "٣ * * * *", "* * * *\n*", "* *\u00a0* * *", "0 0 L * *", "0 0 LW * *"),
        *("0 0 * * 5L", "0 0 * * 5#2", "*/-1 * * * *", "1-2-3 * * * *", "*-5 * * * *", "*/5/5 * * * *", "1, * * * *"),
        *(
            "+1 * * * *",
            "1.5 * * * *",
            "0 0 0 * *",
            "0 0 1 13 *",
            "0 0 1 0 *",
            "SUN * * * *",
            "0 0 * ſun *",
            "? * * * *",
        ),
        *("0 */25 * * *", "0 0 */32 * *", "0 0 1 */13 *", "0 0 * * */8", "0 0 30,31 2 *", "000 * * * *"),
        "0,0 * * * *" + " " * 110,
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(expression: str) -> None:
    with pytest.raises(BadCron):
        Cron.parse(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 24 * * *", "hour field '24'"),
        ("0 0 * * 1-9", "day-of-week field '1-9'"),
        ("0 0 31 4 *", "never fires"),
        ("* * * * * *", "5 fields"),
        ("x" * 121, "1 to 120 characters"),
        ("@every 5m", "@hourly"),
    ],
)
def test_a_refusal_says_what_is_wrong(expression: str, words: str) -> None:
    with pytest.raises(BadCron, match=words):
        Cron.parse(expression)


@pytest.mark.parametrize(
    "zone",
    [
        *("", "localtime", "Localtime", "utc", "europe/berlin", "Europe/berlin", "Europe", "Europe/", "/Europe/Berlin"),
        *("../x", "../../etc/passwd", "/etc/localtime", "/usr/share/zoneinfo/UTC", "Europe/../Europe/Berlin"),
        *("posixrules", "zone.tab", "tzdata.zi", "Factory", "Mars/Olympus", "UTC ", "UTC\x00", "EST5EDT4", "+01:00"),
        *("Europe\\Berlin", "U" * 65, "Ünited/Kingdom"),
    ],
)
def test_a_time_zone_that_is_not_known_is_refused(zone: str) -> None:
    with pytest.raises(BadTimezone):
        Cron.parse("* * * * *", zone)


@pytest.mark.parametrize("zone", ["UTC", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "EST5EDT", "GB"])
def test_a_zone_of_the_tz_database_is_accepted_and_kept_as_given(zone: str) -> None:
    cron = Cron.parse("0 0 * * *", zone)

    assert cron.timezone == zone


def test_spaces_and_tabs_between_fields_do_not_matter_and_are_kept() -> None:
    cron = Cron.parse(" 0\t 5  * * *", "UTC")

    assert cron.expression == " 0\t 5  * * *"
    assert cron.next_after(ms("2026-01-01 00:00")) == ms("2026-01-01 05:00")


def test_the_next_tick_is_strictly_after_a_moment_inside_a_second() -> None:
    cron = Cron.parse("* * * * *")
    tick = ms("2026-01-01 00:01")

    assert cron.next_after(tick - 1) == tick
    assert cron.next_after(tick) == tick + MINUTE_MS
    assert cron.next_after(tick + 999) == tick + MINUTE_MS


def test_the_latest_tick_in_decades_of_minutes_is_the_last_one() -> None:
    cron = Cron.parse("* * * * *", NEW_YORK)

    assert cron.latest_in(0, ms("2040-07-01 12:34") + 59_999) == ms("2040-07-01 12:34")


def test_an_empty_span_has_no_tick() -> None:
    cron = Cron.parse("* * * * *")
    tick = ms("2026-01-01 00:01")

    assert cron.latest_in(tick, tick) is None
    assert cron.latest_in(tick, tick - DAY_MS) is None


def values(low: int, high: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(low, high), min_size=1, max_size=4)


def listed(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(
        st.just("*"),
        values(low, high).map(listed),
        st.integers(1, high - low).map(lambda step: f"*/{step}"),
        st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda pair: f"{min(pair)}-{max(pair)}"),
    )


# Days up to 28: with a later day an expression may never fire.
EXPRESSIONS = st.tuples(fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12), fields(0, 7)).map(" ".join)
ZONES = st.sampled_from(
    ["UTC", NEW_YORK, "Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca", "Asia/Kolkata", "Europe/Dublin"]
)
# Days with changes of the UTC offset in these zones, so that the examples contain them.
CHANGES = st.sampled_from(
    ["2026-03-08", "2026-11-01", "2026-10-03", "2026-04-04", "2026-04-23", "2026-10-29", "2026-02-15", "2026-03-22"]
)
MOMENTS = st.one_of(
    st.integers(ms("2020-01-01"), ms("2040-01-01")),
    st.builds(lambda day, offset: ms(day) + offset, CHANGES, st.integers(0, DAY_MS)),
)


@given(EXPRESSIONS, ZONES, MOMENTS)
@settings(deadline=None)
def test_ticks_strictly_increase_and_nothing_lies_between_them(expression: str, zone: str, moment: int) -> None:
    cron = Cron.parse(expression, zone)

    first, second = ticks_after(cron, moment, 2)

    assert moment < first < second
    assert cron.next_after(first - 1) == first
    assert cron.next_after((first + second) // 2) == second


@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(0, 2 * DAY_MS))
@settings(deadline=None)
def test_the_latest_tick_is_the_last_one_of_walking_forwards(
    expression: str, zone: str, after: int, length: int
) -> None:
    cron = Cron.parse(expression, zone)
    walked: int | None = None
    tick = cron.next_after(after)
    while tick <= after + length:
        walked, tick = tick, cron.next_after(tick)

    latest = cron.latest_in(after, after + length)

    assert latest == walked


@given(values(0, 59), values(0, 3), st.booleans(), ZONES, CHANGES)
@settings(deadline=None)
def test_around_a_change_of_clocks_ticks_are_those_of_looking_at_the_clock_every_minute(
    minutes: set[int], hours: set[int], follows_clock: bool, zone: str, day: str
) -> None:
    start, end = ms(day), ms(day) + 2 * DAY_MS
    expected = expected_ticks(minutes, None if follows_clock else hours, zone, start, end)
    cron = Cron.parse(f"{listed(minutes)} {'*' if follows_clock else listed(hours)} * * *", zone)

    ticks = [tick for tick in ticks_after(cron, start - 1, len(expected) + 1) if tick < end]

    assert ticks == expected


def packaged_zone(name: str) -> ZoneInfo:
    """The zone of the tzdata package; the system's files may be years older."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file)


def expected_ticks(minutes: set[int], hours: set[int] | None, zone: str, start: int, end: int) -> list[int]:
    """Step through each minute of a wall clock, as cron does; fixed times also run after a gap that skips them."""
    ticks: list[int] = []
    for moment, wall, since in seen_on_the_wall(zone, start, end):
        passed = [wall] if hours is None else since
        if any(minute.minute in minutes and (hours is None or minute.hour in hours) for minute in passed):
            ticks.append(moment)
    return ticks


@cache
def seen_on_the_wall(zone: str, start: int, end: int) -> list[tuple[int, datetime, list[datetime]]]:
    """Return each moment with its wall time and the wall minutes that occur for the first time."""
    seen, packaged = [], packaged_zone(zone)
    # Starts a day early, to see a change right at the start.
    furthest = datetime.fromtimestamp((start - DAY_MS - MINUTE_MS) / 1000, packaged).replace(tzinfo=None)
    for moment in range(start - DAY_MS, end, MINUTE_MS):
        wall = datetime.fromtimestamp(moment / 1000, packaged).replace(tzinfo=None)
        seen.append((moment, wall, minutes_between(furthest, wall)))
        furthest = max(furthest, wall)
    return [each for each in seen if each[0] >= start]


def minutes_between(after: datetime, until: datetime) -> list[datetime]:
    count = int((until - after) / timedelta(minutes=1))
    return [after + timedelta(minutes=step) for step in range(1, count + 1)]
