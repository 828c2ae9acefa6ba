"""Progress of alerts over checks: incidents, notices and removal."""

from __future__ import annotations

import json

import pytest
from tests.products.monitors.recording_support import (
    Owner,
    find,
    incidents_of,
    make_held,
    make_owner,
    make_watched,
    notices,
    record,
    told,
)
from tests.products.monitors.support import make_alert, make_beat, read_alert

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.core.vault import service as vault
from moorage.products.monitors import service
from moorage.products.monitors.alerts import incidents
from moorage.products.monitors.alerts import tables as alert_tables
from moorage.products.monitors.alerts.tables import Alert

pytestmark = pytest.mark.anyio


@pytest.fixture
async def owner(db: Database) -> Owner:
    return await make_owner(db)


async def pause(db: Database, owner: Owner, monitor_id: int) -> None:
    await db.write(lambda tx: service.pause(tx, owner.org_id, THE_PLATFORM, monitor_id))


async def resume(db: Database, owner: Owner, monitor_id: int) -> None:
    await db.write(lambda tx: service.resume(tx, owner.org_id, THE_PLATFORM, monitor_id))


async def switch(db: Database, alert: Alert, *, on: bool) -> None:
    def unit(tx: Tx) -> None:
        locked = tx.one(alert_tables.LOCK, org_id=alert.org_id, id=alert.id)
        incidents.set_enabled(tx, alert.org_id, locked, on)

    await db.write(unit)


async def test_an_alert_triggers_opens_an_incident_and_tells_once(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner)

    await find(db, monitor, clock.now(), "ddd")

    after, fired_at = await read_alert(db, owner, alert.id), clock.now() + MINUTE_MS
    incident = (await incidents_of(db, monitor))[0]
    assert (after.status, after.last_triggered_at, after.incident_id) == ("triggered", fired_at, incident.id)
    assert (incident.alert_id, incident.started_at, incident.resolved_at) == (alert.id, fired_at, None)
    assert json.loads(incident.observed) == {
        "value": 0.0,
        "status_code": 500,
        "response_time": 20,
        "message": "status: 500 is not among 200-299",
        "at": fired_at,
    }
    assert [(notice.kind, notice.about) for notice in await notices(db, owner)] == [("triggered", incident.uuid)]


async def test_two_good_checks_resolve_end_the_incident_and_tell_once(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner)

    resolved_at = await find(db, monitor, clock.now(), "dduu") - MINUTE_MS
    await find(db, monitor, resolved_at + MINUTE_MS, "uuu")

    after, incident = await read_alert(db, owner, alert.id), (await incidents_of(db, monitor))[0]
    assert (after.status, after.incident_id, after.good_samples, after.good_since) == ("active", None, 0, None)
    assert incident.resolved_at == resolved_at
    assert await told(db, owner) == ["triggered", "resolved"]
    assert {notice.about for notice in await notices(db, owner)} == {incident.uuid}


async def test_everything_that_happens_in_one_batch_happens_as_it_would_one_by_one(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    """After a long database outage all results come in one batch."""
    together, one_by_one = await make_watched(db, owner), await make_watched(db, owner)
    found = "dduudduuddu"
    slots = [clock.now() + number * MINUTE_MS for number in range(len(found))]

    await record(
        db, *(make_beat(together[0], slot, up=letter == "u") for slot, letter in zip(slots, found, strict=True))
    )
    batch = await told(db, owner)
    await find(db, one_by_one[0], clock.now(), found)

    assert batch == ["triggered", "resolved", "triggered", "resolved", "flapping"]
    assert await told(db, owner) == [*batch, *batch]
    ended = [
        [(each.started_at, each.resolved_at) for each in await incidents_of(db, m)] for m, _ in (together, one_by_one)
    ]
    assert ended[0] == ended[1]
    kept = [await read_alert(db, owner, alert.id) for _, alert in (together, one_by_one)]
    assert (
        len({(each.status, each.good_samples, each.good_since, each.fired_at, each.is_flapping) for each in kept}) == 1
    )


async def test_every_member_is_told_and_an_incident_has_a_notice_per_receiver(db: Database, clock: ManualClock) -> None:
    team = await make_owner(db, members=2)
    monitor, _ = await make_watched(db, team, webhook="https://hooks.example/1")

    await find(db, monitor, clock.now(), "dd")

    assert [notice.channel for notice in await notices(db, team)] == ["email"] * 3 + ["webhook"]


async def test_what_is_pending_is_kept_and_forgotten_with_the_first_good_check(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner, duration_min=5)
    start = clock.now()

    later = await find(db, monitor, start, "ddd")
    pending = await read_alert(db, owner, alert.id)
    await find(db, monitor, later, "u")
    after = await read_alert(db, owner, alert.id)

    assert (pending.status, pending.pending_since) == ("active", start)
    assert (after.status, after.pending_since) == ("active", None)
    assert pending.updated_at == after.updated_at == alert.updated_at
    assert await told(db, owner) == []


async def test_a_new_trigger_is_not_acknowledged(db: Database, owner: Owner, clock: ManualClock) -> None:
    monitor, alert = await make_watched(db, owner, acknowledged=True)

    await find(db, monitor, clock.now(), "dd")

    assert not (await read_alert(db, owner, alert.id)).acknowledged


async def test_flapping_is_kept_told_once_and_ends_when_it_was_steady(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner)

    later = await find(db, monitor, clock.now(), "dduudduudd" + "uudduu")
    flapping = await read_alert(db, owner, alert.id)
    during = await told(db, owner)
    await find(db, monitor, later, "u" * 10)

    after = await read_alert(db, owner, alert.id)
    assert during == ["triggered", "resolved", "triggered", "resolved", "flapping"]
    assert (flapping.status, flapping.is_flapping) == ("triggered", True)
    assert (after.status, after.is_flapping) == ("active", False)
    assert [incident.is_flapping for incident in await incidents_of(db, monitor)] == [True, False, False]
    assert await told(db, owner) == [*during, "resolved"]


async def test_several_alerts_of_a_monitor_are_judged_each_by_its_own_metric(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor = await make_held(db, owner)
    slow = await make_alert(db, owner, monitor, metric="response_time", condition="gt", threshold=100.0)
    broken = await make_alert(db, owner, monitor, metric="status_code", condition="eq", threshold=500.0)
    down = await make_alert(db, owner, monitor)

    for minute in range(2):
        await record(db, make_beat(monitor, clock.now() + minute * MINUTE_MS, response_ms=150, code=200))

    statuses = [(await read_alert(db, owner, alert.id)).status for alert in (slow, broken, down)]
    assert statuses == ["triggered", "active", "active"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("d", ("active", 0)),
        ("dddd", ("active", 0)),
        ("ud", ("active", None)),
        ("udd", ("active", 2)),
        ("ddduuu", ("active", None)),
        ("uuudd", ("active", None)),
        ("uuuddd", ("active", 5)),  # three of the last four; half of all
        ("ddddd", ("triggered", None)),
    ],
)
async def test_the_error_rate_is_of_the_checks_within_the_duration_recorded_together_or_one_by_one(
    db: Database, owner: Owner, clock: ManualClock, found: str, expected: tuple[str, int | None]
) -> None:
    rule = {"metric": "error_rate", "condition": "gt", "threshold": 60.0, "duration_min": 2}
    (first, one_by_one), (second, together) = [await make_watched(db, owner, **rule) for _ in range(2)]
    slots = [clock.now() + number * 30 * SECOND_MS for number in range(len(found))]

    await find(db, first, slots[0], found, step_ms=30 * SECOND_MS)
    await record(db, *(make_beat(second, slot, up=letter == "u") for slot, letter in zip(slots, found, strict=True)))

    for alert in (one_by_one, together):
        after = await read_alert(db, owner, alert.id)
        since = None if after.pending_since is None else slots.index(after.pending_since)
        assert (after.status, since) == expected


@pytest.mark.parametrize("interval_s", [60, 300])
async def test_an_error_rate_alert_fires_and_resolves_with_an_interval_of_its_duration_or_longer(
    db: Database, owner: Owner, clock: ManualClock, interval_s: int
) -> None:
    monitor, alert = await make_watched(db, owner, metric="error_rate", condition="gt", threshold=50.0, duration_min=1)
    statuses = []

    for number, letter in enumerate("uddduu"):
        await find(db, monitor, clock.now() + number * interval_s * SECOND_MS, letter)
        statuses.append((await read_alert(db, owner, alert.id)).status)

    assert statuses == ["active", "active", "triggered", "triggered", "triggered", "active"]


async def test_an_incident_of_an_error_rate_says_how_many_percent_failed(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, _ = await make_watched(db, owner, metric="error_rate", condition="gt", threshold=10.0, duration_min=4)

    await find(db, monitor, clock.now(), "dudududu")

    assert json.loads((await incidents_of(db, monitor))[0].observed)["value"] == 50.0


async def test_the_time_of_a_pause_is_in_no_error_rate(db: Database, owner: Owner, clock: ManualClock) -> None:
    monitor, alert = await make_watched(db, owner, metric="error_rate", condition="gt", threshold=80.0, duration_min=5)
    await pause(db, owner, monitor.id)
    await resume(db, owner, monitor.id)

    await find(db, monitor, clock.now() + MINUTE_MS, "d")
    one = await read_alert(db, owner, alert.id)
    await find(db, monitor, clock.now() + 2 * MINUTE_MS, "d")
    two = await read_alert(db, owner, alert.id)

    assert one.pending_since == two.pending_since == clock.now() + MINUTE_MS


async def test_pausing_makes_alerts_inactive_ends_the_incident_and_says_why(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner)
    pending = await make_alert(db, owner, monitor, duration_min=30)
    await find(db, monitor, clock.now(), "dd")
    clock.advance(HOUR_MS)

    await pause(db, owner, monitor.id)

    after, also = await read_alert(db, owner, alert.id), await read_alert(db, owner, pending.id)
    last = (await notices(db, owner))[-1]
    assert (after.status, after.incident_id, after.fired_at) == ("inactive", None, "[]")
    assert (also.status, also.pending_since) == ("inactive", None)
    assert (await incidents_of(db, monitor))[0].resolved_at == clock.now()
    assert await told(db, owner) == ["triggered", "resolved"]
    assert incidents.PAUSED in last.payload


async def test_resuming_watches_again_from_the_beginning_but_not_what_is_switched_off(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner)
    off = await make_alert(db, owner, monitor)
    await switch(db, off, on=False)
    await find(db, monitor, clock.now(), "d")
    clock.advance(HOUR_MS)
    await pause(db, owner, monitor.id)
    clock.advance(HOUR_MS)

    await resume(db, owner, monitor.id)
    await find(db, monitor, clock.now(), "d")

    assert (await read_alert(db, owner, alert.id)).pending_since == clock.now()
    assert [(await read_alert(db, owner, each.id)).status for each in (alert, off)] == ["active", "inactive"]
    assert await told(db, owner) == []


async def test_an_alert_that_is_switched_off_ends_what_is_open_and_is_judged_no_more(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner)
    later = await find(db, monitor, clock.now(), "dd")

    await switch(db, alert, on=False)
    await switch(db, alert, on=False)
    await find(db, monitor, later, "dddd")

    after = await read_alert(db, owner, alert.id)
    assert (after.status, after.is_enabled) == ("inactive", False)
    assert await told(db, owner) == ["triggered", "resolved"]
    assert incidents.SWITCHED_OFF in (await notices(db, owner))[-1].payload


async def test_an_alert_that_is_switched_on_is_watched_at_once_unless_its_monitor_is_paused(
    db: Database, owner: Owner
) -> None:
    running, paused = await make_watched(db, owner), await make_watched(db, owner)
    for _, alert in (running, paused):
        await switch(db, alert, on=False)
    await pause(db, owner, paused[0].id)

    for _, alert in (running, paused):
        await switch(db, alert, on=True)

    after = [await read_alert(db, owner, alert.id) for _, alert in (running, paused)]
    assert [(each.status, each.is_enabled) for each in after] == [("active", True), ("inactive", True)]


async def test_another_rule_counts_from_its_own_first_sample(db: Database, owner: Owner, clock: ManualClock) -> None:
    monitor, alert = await make_watched(db, owner, duration_min=5)
    later = await find(db, monitor, clock.now(), "ddddd")

    await db.write(lambda tx: incidents.on_rule_change(tx, owner.org_id, alert))
    await find(db, monitor, later, "ddddd")

    after = await read_alert(db, owner, alert.id)
    assert (after.status, after.pending_since) == ("active", later)


async def test_a_removed_alert_leaves_nothing_behind_and_others_stay(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    monitor, alert = await make_watched(db, owner, webhook="https://hooks.example/1")
    other = await make_alert(db, owner, monitor)
    await find(db, monitor, clock.now(), "dd")

    await db.write(lambda tx: incidents.remove_alert(tx, owner.org_id, alert))

    names = await db.read(lambda tx: vault.names(tx, owner.org_id, alert.resource))
    left = await db.read(lambda tx: tx.all(alert_tables.OF_MONITOR, org_id=owner.org_id, monitor_id=monitor.id))
    assert names == []
    assert [each.id for each in left] == [other.id]
    assert {incident.alert_id for incident in await incidents_of(db, monitor)} == {other.id}
    assert {notice.alert_id for notice in await notices(db, owner)} == {other.id}


async def test_a_monitor_goes_with_all_of_its_alerts_and_no_others(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    (monitor, _), (other, kept) = await make_watched(db, owner), await make_watched(db, owner)
    await make_alert(db, owner, monitor)
    for each in (monitor, other):
        await find(db, each, clock.now(), "dd")

    await db.write(lambda tx: incidents.remove_of_monitor(tx, owner.org_id, monitor.id))

    assert await db.read(lambda tx: tx.all(alert_tables.OF_MONITOR, org_id=owner.org_id, monitor_id=monitor.id)) == []
    assert await incidents_of(db, monitor) == []
    assert (await read_alert(db, owner, kept.id)).status == "triggered"
    assert {notice.alert_id for notice in await notices(db, owner)} == {kept.id}


async def test_another_organization_can_neither_switch_nor_remove_an_alert(
    db: Database, owner: Owner, clock: ManualClock
) -> None:
    stranger = await make_owner(db)
    monitor, alert = await make_watched(db, owner)
    await find(db, monitor, clock.now(), "dd")

    await db.write(lambda tx: incidents.remove_alert(tx, stranger.org_id, alert))
    await db.write(lambda tx: incidents.remove_of_monitor(tx, stranger.org_id, monitor.id))
    await db.write(lambda tx: incidents.on_rule_change(tx, stranger.org_id, alert))

    assert (await read_alert(db, owner, alert.id)).status == "triggered"
    assert len(await incidents_of(db, monitor)) == 1
    assert await told(db, owner) == ["triggered"]
