"""Leases of probers: shares, release and takeover of monitors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest
from sqlalchemy import select
from tests.products.monitors.prober_support import Org, Stage, damage_secrets
from tests.products.monitors.support import ADA, make_monitor, read_monitor

from moorage.core.db.query import Query, pair, scalar
from moorage.core.db.store import Database
from moorage.core.kit.clock import HOUR_MS, MINUTE_MS, SECOND_MS, ManualClock
from moorage.products.monitors import service
from moorage.products.monitors.probing import leases
from moorage.products.monitors.probing.leases import Holding
from moorage.products.monitors.tables import Monitor, monitor, prober

pytestmark = pytest.mark.anyio

HOLDERS: Query[tuple[int, str | None]] = Query(select(monitor.c.id, monitor.c.prober).order_by(monitor.c.id), pair)
TOKENS: Query[str] = Query(select(prober.c.token).order_by(prober.c.id), scalar)


async def make_monitors(db: Database, org: Org, count: int) -> list[Monitor]:
    return [await make_monitor(db, org, name=f"Shop {number}") for number in range(count)]


async def join(db: Database, token: str, *, is_alone: bool = False) -> None:
    await db.write(partial(leases.register, token=token, is_alone=is_alone))


async def hold(db: Database, token: str, *, is_eager: bool = False, known: Mapping[int, int] | None = None) -> Holding:
    found = await db.write(partial(leases.hold, token=token, known=known or {}, is_eager=is_eager))
    assert found is not None
    return found


async def holders(db: Database) -> dict[str | None, int]:
    """Return the number of monitors of each prober."""
    found: dict[str | None, int] = {}
    for _, token in await db.read(lambda tx: tx.all(HOLDERS)):
        found[token] = found.get(token, 0) + 1
    return found


async def tokens(db: Database) -> list[str]:
    return await db.read(lambda tx: tx.all(TOKENS))


async def test_one_alone_takes_everything_that_runs(db: Database, org: Org) -> None:
    made = await make_monitors(db, org, 5)
    await join(db, "a")

    found = await hold(db, "a")

    assert found.held == {each.id for each in made}
    assert {each.target.monitor_id for each in found.news} == found.held
    assert found.surplus == 0


async def test_what_is_paused_is_not_taken(db: Database, org: Org, stage: Stage) -> None:
    one, two = await make_monitors(db, org, 2)
    await db.write(lambda tx: service.pause(tx, org.org_id, ADA, one.id))
    await join(db, "a")

    found = await hold(db, "a")

    assert found.held == {two.id}


async def test_what_a_check_needs_comes_with_it_secrets_and_all(db: Database, org: Org, clock: ManualClock) -> None:
    made = await make_monitor(
        db,
        org,
        url="https://shop.example/health",
        http_method="POST",
        codes=["2xx", "404"],
        keyword="fine",
        headers=[("X-Key", "s3cret"), ("X-Key", "ünother")],
        body="päyload",
        interval_s=90,
        timeout_ms=4_000,
        retries=3,
        ignore_tls_error=True,
    )
    await join(db, "a")

    [held] = (await hold(db, "a")).news

    assert (held.revision, held.from_at, held.last_slot) == (made.revision, clock.now(), None)
    target = held.target
    assert (target.monitor_id, target.org_id, target.url) == (made.id, org.org_id, "https://shop.example/health")
    assert (target.method, target.keyword, target.codes.text) == ("POST", "fine", "200-299, 404")
    assert target.headers == (("X-Key", "s3cret"), ("X-Key", "ünother"))
    assert target.body == "päyload".encode()
    assert (target.interval_s, target.timeout_ms, target.retries, target.ignore_tls_error) == (90, 4_000, 3, True)


async def test_only_what_changed_is_read_again(db: Database, org: Org) -> None:
    one, two = await make_monitors(db, org, 2)
    await join(db, "a")
    await hold(db, "a")
    known = {one.id: one.revision, two.id: two.revision}
    await db.write(lambda tx: service.pause(tx, org.org_id, ADA, two.id))
    await db.write(lambda tx: service.resume(tx, org.org_id, ADA, two.id))

    found = await hold(db, "a", known=known)

    assert found.held == {one.id, two.id}
    assert [held.target.monitor_id for held in found.news] == [two.id]


async def test_a_secret_that_cannot_be_read_keeps_nobody_else_from_being_checked(db: Database, org: Org) -> None:
    broken = await make_monitor(db, org, headers=[("X-Key", "s3cret")])
    fine = await make_monitor(db, org)
    await damage_secrets(db, broken)
    await join(db, "a")

    found = await hold(db, "a")

    assert [held.target.monitor_id for held in found.news] == [fine.id]
    assert found.unreadable == {broken.id: broken.revision}


async def test_more_than_a_unit_can_take_comes_in_several(
    db: Database, org: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BATCH_SIZE", 3)
    made = await make_monitors(db, org, 7)
    known = {each.id: each.revision for each in made}
    await join(db, "a")

    taken = [await hold(db, "a", known=known) for _ in range(3)]
    read = await hold(db, "a")

    assert [len(each.held) for each in taken] == [3, 6, 7]
    assert [each.has_more for each in taken] == [True, True, False]
    assert (len(read.news), read.has_more) == (3, True)


@pytest.mark.parametrize("count", [2, 3])
async def test_those_who_start_together_share_evenly_and_nothing_is_left(db: Database, org: Org, count: int) -> None:
    await make_monitors(db, org, 20)
    names = [f"p{number}" for number in range(count)]
    await asyncio.gather(*(join(db, name) for name in names))

    found = await asyncio.gather(*(hold(db, name) for name in names))

    shares = await holders(db)
    assert sum(len(each.held) for each in found) == sum(shares.values()) == 20
    assert None not in shares
    assert max(shares.values()) <= -(-20 // count)


async def test_who_comes_later_gets_a_share_from_the_others(db: Database, org: Org, stage: Stage) -> None:
    await make_monitors(db, org, 30)
    for count in (1, 2, 3):
        stage.prober()
        await stage.pass_s(9)

        shares = [each.lag().monitors for each in stage.probers]
        assert sum(shares) == 30
        assert max(shares) - min(shares) <= 4, f"with {count}"


@pytest.mark.parametrize(("count", "surplus"), [(12, 0), (13, 3)])
async def test_a_share_that_is_only_a_little_too_large_stays_where_it_is(
    db: Database, org: Org, count: int, surplus: int
) -> None:
    made = await make_monitors(db, org, 20)
    await join(db, "a")
    await hold(db, "a")
    await db.write(lambda tx: leases.release(tx, "a", [each.id for each in made[count:]]))
    await join(db, "b")
    await hold(db, "b")

    found = await hold(db, "a")

    assert len(found.held) == count
    assert found.surplus == surplus


async def test_who_hears_of_something_new_takes_a_little_more_than_a_share(db: Database, org: Org) -> None:
    await make_monitors(db, org, 4)
    for name in ("a", "b"):
        await join(db, name)
    for name in ("a", "b"):
        await hold(db, name)
    new = await make_monitor(db, org)
    await hold(db, "a")
    newer = await make_monitor(db, org)

    found = await hold(db, "a", is_eager=True)

    assert {new.id, newer.id} <= found.held


async def test_what_a_dead_one_had_is_taken_over_within_fifteen_seconds(db: Database, org: Org, stage: Stage) -> None:
    made = await make_monitors(db, org, 12)
    first, second, third = (stage.prober() for _ in range(3))
    await stage.pass_s(12)

    stage.kill(first)
    await stage.pass_s(15)

    assert first.lag().monitors > 0
    assert second.lag().monitors + third.lag().monitors == 12
    assert await tokens(db) == [second._token, third._token]
    assert {(await read_monitor(db, org, each.id)).prober for each in made} == {second._token, third._token}


async def test_what_one_has_is_not_taken_while_it_renews(db: Database, org: Org, stage: Stage) -> None:
    await make_monitors(db, org, 4)
    first = stage.prober()
    await stage.refresh()
    stage.prober()

    await stage.pass_s(60)

    assert first.lag().monitors == 4
    assert len(await tokens(db)) == 2


async def test_who_stops_in_order_leaves_everything_to_others_at_once(db: Database, org: Org, stage: Stage) -> None:
    await make_monitors(db, org, 6)
    first, second = stage.prober(), stage.prober()
    await stage.pass_s(6)

    await first.stop()
    await second.refresh()

    assert second.lag().monitors == 6
    assert await tokens(db) == [second._token]


async def test_who_has_the_store_alone_waits_for_no_lease_of_one_that_died(
    db: Database, org: Org, stage: Stage
) -> None:
    made = await make_monitors(db, org, 3)
    dead = stage.prober(owns_store=True)
    await stage.refresh()
    stage.kill(dead)

    alive = stage.prober(owns_store=True)
    await stage.refresh()

    assert alive.lag().monitors == 3
    assert {(await read_monitor(db, org, each.id)).prober for each in made} == {alive._token}
    assert await tokens(db) == [alive._token]


async def test_who_was_taken_for_dead_drops_its_checks_and_joins_again(db: Database, org: Org, stage: Stage) -> None:
    made = await make_monitors(db, org, 2)
    ids = [each.id for each in made]
    slow, quick = stage.prober(), stage.prober()
    stage.targets.hold(*ids)
    await slow.refresh()
    slow.start_due()
    await asyncio.sleep(0)
    token = slow._token
    stage.clock.advance(11 * SECOND_MS)
    await quick.refresh()
    had = quick.lag().monitors

    await slow.refresh()
    await asyncio.sleep(0)

    assert had == 2
    assert sorted(stage.targets.called_off) == ids
    assert slow._token != token
    assert await tokens(db) == [quick._token, slow._token]
    stage.targets.let_go()


async def test_what_one_finds_that_was_taken_for_dead_counts_for_nothing(db: Database, org: Org, stage: Stage) -> None:
    [made] = await make_monitors(db, org, 1)
    slow, quick = stage.prober(), stage.prober()
    stage.targets.hold(made.id)
    await slow.refresh()
    slow.start_due()
    await asyncio.sleep(0)
    stage.clock.advance(11 * SECOND_MS)
    await quick.refresh()

    stage.targets.let_go()
    await stage.step()

    assert stage.targets.times(made.id) == 2
    assert len(await stage.beats(made)) == 1


async def test_a_lease_from_before_the_clock_was_set_back_does_not_hold_for_an_hour(
    db: Database, org: Org, stage: Stage
) -> None:
    await make_monitors(db, org, 4)
    dead, alive = stage.prober(), stage.prober()
    await stage.pass_s(6)
    stage.kill(dead)

    stage.clock.advance(-HOUR_MS)
    await stage.pass_s(3)

    assert alive.lag().monitors == 4
    assert await tokens(db) == [alive._token]


async def test_a_row_that_ran_out_is_still_good_if_nobody_took_it(db: Database, org: Org, clock: ManualClock) -> None:
    await make_monitors(db, org, 2)
    await join(db, "a")
    await hold(db, "a")
    clock.advance(5 * MINUTE_MS)

    found = await hold(db, "a")

    assert len(found.held) == 2
    assert await tokens(db) == ["a"]


async def test_joining_twice_under_one_name_is_joining_once(db: Database) -> None:
    await join(db, "a")
    await join(db, "a")

    assert await tokens(db) == ["a"]
