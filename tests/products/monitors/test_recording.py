"""Recording of checks is atomic and idempotent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from tests.products.monitors.recording_support import (
    PROBER,
    Owner,
    find,
    hold,
    incidents_of,
    make_certificate,
    make_held,
    make_owner,
    make_watched,
    notices,
    record,
    rollups,
    set_fired_at,
    told,
)
from tests.products.monitors.support import make_beat, make_monitor, read_alert, read_beats, read_state

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.products.monitors import service
from moorage.products.monitors.probing.beats import Beat, Outcome

pytestmark = pytest.mark.anyio


@pytest.fixture
async def owner(db: Database) -> Owner:
    return await make_owner(db)


async def test_a_check_becomes_a_heartbeat_and_the_state_of_its_monitor(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    slot = clock.now()

    counted = await record(db, make_beat(monitor, slot, response_ms=42, lag_ms=7, missed=2))

    beat, state = (await read_beats(db, owner, monitor.id))[0], await read_state(db, owner, monitor.id)
    assert counted == 1
    assert (beat.slot, beat.at, beat.status, beat.response_ms, beat.code) == (slot, slot + 7, "UP", 42, 200)
    assert beat.message == "200 OK"
    assert (state.last_status, state.last_response_ms, state.last_code) == ("UP", 42, 200)
    assert (state.last_slot, state.last_at, state.lag_ms, state.missed) == (slot, slot + 7, 7, 2)


async def test_missed_checks_add_up_and_the_latest_check_is_the_state(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    early, late = (
        make_beat(monitor, clock.now(), missed=1),
        make_beat(monitor, clock.now() + MINUTE_MS, up=False, missed=3),
    )

    await record(db, late, early)

    state = await read_state(db, owner, monitor.id)
    assert (state.last_status, state.last_slot, state.missed) == ("DOWN", late.slot, 4)


async def test_each_check_counts_in_its_minute_its_hour_and_its_day(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    day = clock.now() - clock.now() % DAY_MS
    last_minute = day + DAY_MS - MINUTE_MS

    await record(
        db, make_beat(monitor, last_minute, response_ms=30), make_beat(monitor, last_minute + 30_000, up=False)
    )
    await record(db, make_beat(monitor, last_minute + 59_999, response_ms=50), make_beat(monitor, day + DAY_MS))

    assert await rollups(db, monitor) == [
        (60, last_minute, 2, 1, 80),
        (60, day + DAY_MS, 1, 0, 20),
        (3600, day + 23 * HOUR_MS, 2, 1, 80),
        (3600, day + DAY_MS, 1, 0, 20),
        (86400, day, 2, 1, 80),
        (86400, day + DAY_MS, 1, 0, 20),
    ]


async def test_a_batch_that_is_recorded_again_changes_nothing(db: Database, owner: Owner, clock: ManualClock) -> None:
    monitor, alert = await make_watched(db, owner)
    batch = [make_beat(monitor, clock.now() + minute * MINUTE_MS, up=False, missed=1) for minute in range(3)]
    await record(db, *batch)
    before = (
        await read_beats(db, owner, monitor.id),
        await rollups(db, monitor),
        await read_state(db, owner, monitor.id),
        await read_alert(db, owner, alert.id),
        await incidents_of(db, monitor),
        await notices(db, owner),
    )

    counted = await record(db, *batch, *batch)

    assert counted == 0
    assert before == (
        await read_beats(db, owner, monitor.id),
        await rollups(db, monitor),
        await read_state(db, owner, monitor.id),
        await read_alert(db, owner, alert.id),
        await incidents_of(db, monitor),
        await notices(db, owner),
    )


async def test_of_a_batch_that_overlaps_with_another_only_the_new_counts(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    first, second = make_beat(monitor, clock.now()), make_beat(monitor, clock.now() + MINUTE_MS, up=False)
    await record(db, first)

    counted = await record(db, first, second, second)

    assert counted == 1
    assert [beat.slot for beat in await read_beats(db, owner, monitor.id)] == [second.slot, first.slot]
    assert (await rollups(db, monitor))[-1][2:4] == (1, 1)


async def test_of_two_checks_for_one_slot_the_first_counts(db: Database, owner: Owner, clock: ManualClock) -> None:
    monitor = await make_held(db, owner)
    slot = clock.now()

    counted = await record(db, make_beat(monitor, slot), make_beat(monitor, slot, up=False))

    assert counted == 1
    assert [beat.status for beat in await read_beats(db, owner, monitor.id)] == ["UP"]


async def test_the_same_batch_recorded_twice_at_the_same_time_counts_once(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, _ = await make_watched(db, owner)
    batch = [make_beat(monitor, clock.now() + minute * MINUTE_MS, up=False) for minute in range(3)]

    counted = await asyncio.gather(*(record(db, *batch) for _ in range(4)))

    assert sorted(counted) == [0, 0, 0, 3]
    assert (await rollups(db, monitor))[-1][2:4] == (0, 3)
    assert await told(db, owner) == ["triggered"]


async def test_checks_of_monitors_that_are_gone_paused_or_held_by_another_do_not_count(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    gone, paused, anothers, nobodys, mine = [await make_held(db, owner, name=f"m{number}") for number in range(5)]
    await db.write(lambda tx: service.delete(tx, owner.org_id, THE_PLATFORM, gone.id))
    await db.write(lambda tx: service.pause(tx, owner.org_id, THE_PLATFORM, paused.id))
    await hold(db, anothers, "prober-2")
    await hold(db, nobodys, None)
    monitors = (gone, paused, anothers, nobodys, mine)

    counted = await record(db, *(make_beat(each, clock.now() + MINUTE_MS) for each in monitors))

    assert counted == 1
    written = {each.name: [beat.status for beat in await read_beats(db, owner, each.id)] for each in monitors}
    assert written == {"m0": [], "m1": ["PAUSE"], "m2": [], "m3": [], "m4": ["UP"]}


async def test_nothing_to_record_is_recorded(db: Database) -> None:
    assert await record(db) == 0


async def test_a_batch_that_fails_in_the_middle_leaves_nothing_and_counts_whole_the_next_time(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    first, healthy = await make_watched(db, owner)
    second, damaged = await make_watched(db, owner)
    slots = [clock.now() + minute * MINUTE_MS for minute in range(2)]
    batch = [make_beat(monitor, slot, up=False) for monitor in (first, second) for slot in slots]
    await set_fired_at(db, damaged, "no list")

    with pytest.raises(json.JSONDecodeError):
        await record(db, *batch)

    for monitor, alert in ((first, healthy), (second, damaged)):
        assert await read_beats(db, owner, monitor.id) == []
        assert await rollups(db, monitor) == []
        assert (await read_state(db, owner, monitor.id)).last_slot is None
        assert (await read_alert(db, owner, alert.id)).status == "active"
        assert await incidents_of(db, monitor) == []
    assert await told(db, owner) == []

    await set_fired_at(db, damaged, "[]")
    counted = await record(db, *batch)

    assert counted == 4
    assert await told(db, owner) == ["triggered", "triggered"]


async def test_a_certificate_stays_known_through_checks_that_saw_none(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    certificate = make_certificate(clock.now(), 90, "ab")
    await record(db, make_beat(monitor, clock.now(), certificate=certificate))

    await find(db, monitor, clock.now() + MINUTE_MS, "d")

    state = await read_state(db, owner, monitor.id)
    assert (state.last_status, state.ssl_fingerprint) == ("DOWN", "ab")
    assert (state.ssl_subject, state.ssl_issuer) == ("shop.example", "Harbor CA")
    assert state.ssl_valid_to == certificate.valid_to


async def test_text_that_no_store_takes_cannot_keep_a_check_from_being_recorded(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    """Servers choose the text; one of them must not block the results of all monitors."""
    monitor, _ = await make_watched(db, owner)
    certificate = make_certificate(clock.now(), 3, subject="shop\x00.example")
    outcome = Outcome(
        is_up=False, message="status: 500 \x00\udcff\n", code=500, phase="status", certificate=certificate
    )
    beats = [Beat(owner.org_id, monitor.id, clock.now() + n * MINUTE_MS, clock.now(), outcome, 0) for n in range(2)]

    counted = await record(db, *beats)

    assert counted == 2
    assert (await read_beats(db, owner, monitor.id))[0].message == "status: 500 ���"
    assert (await read_state(db, owner, monitor.id)).ssl_subject == "shop�.example"
    assert "triggered" in await told(db, owner)


async def test_a_lag_beyond_what_the_store_holds_is_recorded_as_the_most_it_does(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    beat = replace(make_beat(monitor, clock.now()), lag_ms=100 * 365 * DAY_MS)

    assert await record(db, beat) == 1
    assert (await read_state(db, owner, monitor.id)).lag_ms == 2**31 - 1


async def test_checks_of_several_organizations_in_one_batch_stay_with_their_own(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    stranger = await make_owner(db)
    (mine, _), (theirs, _) = await make_watched(db, owner), await make_watched(db, stranger)
    slots = [clock.now() + minute * MINUTE_MS for minute in range(2)]

    await record(db, *(make_beat(mine, slot, up=False) for slot in slots), *(make_beat(theirs, slot) for slot in slots))

    assert await told(db, owner) == ["triggered"]
    assert await told(db, stranger) == []
    assert [beat.status for beat in await read_beats(db, stranger, theirs.id)] == ["UP", "UP"]
    assert await read_beats(db, stranger, mine.id) == []


async def test_a_check_in_the_name_of_another_organization_does_not_count(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    forged = replace(make_beat(monitor, clock.now()), org_id=owner.org_id + 1)

    assert await record(db, forged) == 0
    assert await rollups(db, monitor) == []


async def test_a_monitor_that_nobody_holds_yet_is_recorded_once_somebody_does(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_monitor(db, owner)
    beat = make_beat(monitor, clock.now() + SECOND_MS)

    before = await record(db, beat)
    await hold(db, monitor, PROBER)
    after = await record(db, beat)

    assert (before, after) == (0, 1)
