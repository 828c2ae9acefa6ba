"""Notices about expiring certificates: one per certificate and threshold."""

from __future__ import annotations

import pytest
from tests.products.monitors.recording_support import (
    Owner,
    make_certificate,
    make_held,
    make_owner,
    notices,
    record,
    told,
)
from tests.products.monitors.support import make_alert, make_beat

from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, ManualClock
from moorage.products.monitors.probing.beats import Certificate
from moorage.products.monitors.tables import Monitor

pytestmark = pytest.mark.anyio


@pytest.fixture
async def owner(db: Database) -> Owner:
    return await make_owner(db)


@pytest.fixture
async def monitor(db: Database, owner: Owner) -> Monitor:
    return await make_held(db, owner, url="https://shop.example", expire_cert_notify=True)


async def check(db: Database, monitor: Monitor, clock: ManualClock, certificate: Certificate | None) -> None:
    """Check a monitor now, then advance the clock by a minute."""
    await record(db, make_beat(monitor, clock.now(), lag_ms=0, certificate=certificate))
    clock.advance(MINUTE_MS)


async def thresholds(db: Database, owner: Owner) -> list[int]:
    """Return the thresholds of the notices, oldest first."""
    return [int(notice.about.rpartition(":")[2]) for notice in await notices(db, owner)]


async def test_each_threshold_is_told_once_while_a_certificate_runs_out(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock
) -> None:
    certificate = make_certificate(clock.now(), 30)

    for _ in range(35 * 4):  # four checks a day, until long after its expiry
        await record(db, make_beat(monitor, clock.now(), lag_ms=0, certificate=certificate))
        clock.advance(6 * HOUR_MS)

    assert await told(db, owner) == ["certificate"] * 4
    assert await thresholds(db, owner) == [21, 14, 7, 1]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (90, []),
        (22.5, []),
        (21.9, [21]),
        (15.1, [21]),
        (14, [14]),
        (8.1, [14]),
        (7, [7]),
        (2.1, [7]),
        (1, [1]),
        (-3, [1]),
    ],
)
async def test_a_certificate_seen_for_the_first_time_is_told_by_its_tightest_threshold_only(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock, days: float, expected: list[int]
) -> None:
    certificate = make_certificate(clock.now(), days)

    for _ in range(3):
        await check(db, monitor, clock, certificate)

    assert await thresholds(db, owner) == expected


async def test_a_new_certificate_begins_anew(db: Database, owner: Owner, monitor: Monitor, clock: ManualClock) -> None:
    await check(db, monitor, clock, make_certificate(clock.now(), 5, "old"))
    clock.advance(4 * DAY_MS)
    renewed = make_certificate(clock.now(), 60, "new")

    await check(db, monitor, clock, renewed)
    clock.advance(40 * DAY_MS)
    await check(db, monitor, clock, renewed)

    assert await thresholds(db, owner) == [7, 21]


async def test_certificates_that_come_in_turns_are_told_at_most_once_a_day(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock
) -> None:
    old, newer = make_certificate(clock.now(), 5, "old"), make_certificate(clock.now(), 6, "newer")

    for _ in range(20):
        await check(db, monitor, clock, old)
        await check(db, monitor, clock, newer)
    first_day = await told(db, owner)
    clock.advance(DAY_MS)
    for _ in range(20):
        await check(db, monitor, clock, old)
        await check(db, monitor, clock, newer)

    assert first_day == ["certificate"]
    assert [notice.about.split(":")[2] for notice in await notices(db, owner)] == ["old", "newer"]


async def test_the_notice_carries_the_certificate_that_was_seen(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock
) -> None:
    await check(db, monitor, clock, make_certificate(clock.now(), 6.5, "ab"))

    notice = (await notices(db, owner))[0]

    assert (notice.about, notice.kind) == (f"certificate:{monitor.id}:ab:7", "certificate")
    assert (notice.alert_id, notice.incident_id, notice.status) == (None, None, "pending")
    assert "shop.example" in notice.payload
    assert "Harbor CA" in notice.payload


async def test_nothing_is_told_where_nobody_asked_for_it_or_nothing_was_seen(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock
) -> None:
    silent = await make_held(db, owner, url="https://other.example", expire_cert_notify=False)
    certificate = make_certificate(clock.now(), 1)

    await check(db, silent, clock, certificate)
    await check(db, monitor, clock, None)

    assert await told(db, owner) == []


async def test_two_monitors_of_one_certificate_are_told_of_each(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock
) -> None:
    other = await make_held(db, owner, url="https://shop.example/2", expire_cert_notify=True)
    certificate = make_certificate(clock.now(), 5)

    await check(db, monitor, clock, certificate)
    await check(db, other, clock, certificate)

    assert sorted(notice.monitor_id for notice in await notices(db, owner)) == sorted([monitor.id, other.id])


async def test_an_alert_on_the_days_left_fires_beside_the_notice(
    db: Database, owner: Owner, monitor: Monitor, clock: ManualClock
) -> None:
    await make_alert(db, owner, monitor, metric="ssl_expiry", condition="lt", threshold=10.0)
    certificate = make_certificate(clock.now(), 9)

    await check(db, monitor, clock, certificate)
    await check(db, monitor, clock, None)
    await check(db, monitor, clock, certificate)

    assert await told(db, owner) == ["certificate", "triggered"]
