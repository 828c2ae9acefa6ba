"""A domain stays with its verified owner until release or loss of the record."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import update
from tests.products.domains.dns_server import Zone
from tests.products.domains.support import Desk

from moorage.accounts.identity.organizations.freed_names import RESERVATION_MS
from moorage.core.audit.service import Actor
from moorage.core.db.query import Command
from moorage.core.db.store import Database
from moorage.core.db.tx import UniqueClash
from moorage.core.kit.clock import DAY_MS, HOUR_MS, ManualClock
from moorage.products.domains.states import CUSTOM_DOMAIN, DomainStatus
from moorage.products.domains.tables import custom_domain
from moorage.products.projects import service as projects

pytestmark = pytest.mark.anyio

DOMAIN = "shop.example.com"
PROOF = f"_moorage.{DOMAIN}"


def test_every_move_between_states_is_the_one_that_is_meant() -> None:
    moves = {(at.value, to.value) for at in DomainStatus for to in DomainStatus if CUSTOM_DOMAIN.allows(at, to)}

    assert moves == {("pending", "verified"), ("pending", "failed"), ("verified", "failed"), ("failed", "verified")}


async def test_a_domain_that_waits_elsewhere_may_be_added_and_the_first_to_prove_it_gets_it(desk: Desk) -> None:
    first, second = await desk.make_team("harbor"), await desk.make_team("pier")
    waiting, quick = await first.add(DOMAIN), await second.add(DOMAIN)
    desk.prove(quick)

    won = await second.verify(quick)

    lost = await first.only()
    assert waiting["verification"]["value"] != quick["verification"]["value"]
    assert (won["status"], lost["status"]) == ("verified", "failed")
    assert "Another organization has verified this domain" in lost["lastError"]
    assert await desk.served() == {DOMAIN: second.project.id}


async def test_a_domain_that_somebody_verified_is_refused_to_others(desk: Desk) -> None:
    owner, other = await desk.make_team("harbor"), await desk.make_team("pier")
    await desk.make_verified(owner, DOMAIN)

    reply = await other.try_to_add(DOMAIN)

    assert (reply.status, reply.error["code"]) == (409, "conflict")


async def test_of_two_who_prove_a_domain_in_the_same_moment_one_gets_it(desk: Desk) -> None:
    teams = [await desk.make_team(f"harbor{number}") for number in range(4)]
    added = [await team.add(DOMAIN) for team in teams]
    for each in added:
        desk.prove(each)

    await asyncio.gather(*(team.verify(each) for team, each in zip(teams, added, strict=True)))

    after = [await team.only() for team in teams]
    assert sorted(each["status"] for each in after) == ["failed", "failed", "failed", "verified"]
    (winner,) = [team for team, each in zip(teams, after, strict=True) if each["status"] == "verified"]
    assert await desk.served() == {DOMAIN: winner.project.id}


async def test_the_store_itself_holds_no_domain_verified_twice(desk: Desk, db: Database) -> None:
    first, second = await desk.make_team("harbor"), await desk.make_team("pier")
    await first.add(DOMAIN)
    await second.add(DOMAIN)

    with pytest.raises(UniqueClash):
        await db.write(lambda tx: tx.run(Command(update(custom_domain).values(status="verified"))))


async def test_a_domain_whose_record_is_there_is_looked_at_once_a_day(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    await desk.make_verified(team, DOMAIN)

    zone.asked.clear()
    await desk.recheck(DAY_MS - HOUR_MS)
    asked_early = list(zone.asked)
    await desk.recheck(HOUR_MS)

    assert asked_early == []
    assert (PROOF, "TXT") in zone.asked
    assert (await team.only())["status"] == "verified"


async def test_a_record_that_is_gone_is_looked_for_three_more_times_over_a_day(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    await desk.make_verified(team, DOMAIN)
    zone.remove(PROOF, "TXT")

    seen = []
    for after_ms in (DAY_MS, 8 * HOUR_MS, 8 * HOUR_MS, 8 * HOUR_MS - 1, 1):
        await desk.recheck(after_ms)
        seen.append((await team.only())["status"])

    assert seen == ["verified"] * 4 + ["failed"]
    assert "no longer served" in (await team.only())["lastError"]
    assert await desk.served() == {}
    assert await desk.feed(team) == ["domain.added", "domain.verified", "domain.failed"]


async def test_a_record_that_comes_back_ends_the_grace(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    verified = await desk.make_verified(team, DOMAIN)
    zone.remove(PROOF, "TXT")
    for after_ms in (DAY_MS, 8 * HOUR_MS):
        await desk.recheck(after_ms)
    missing = await team.only()

    desk.prove(verified)
    await desk.recheck(8 * HOUR_MS)
    back = await team.only()
    zone.remove(PROOF, "TXT")
    await desk.recheck(DAY_MS)

    assert "no TXT record" in missing["lastError"]
    assert (back["status"], back["lastError"]) == ("verified", None)
    assert (await team.only())["status"] == "verified"


async def test_asking_often_does_not_shorten_the_grace(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    verified = await desk.make_verified(team, DOMAIN)
    zone.remove(PROOF, "TXT")

    seen = [(await team.verify(verified))["status"] for _ in range(6)]

    assert seen == ["verified"] * 6


async def test_a_dns_server_that_fails_costs_nobody_a_domain(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    await desk.make_verified(team, DOMAIN)
    zone.broken = {PROOF, DOMAIN}

    for _ in range(10):
        await desk.recheck(DAY_MS)

    found = await team.only()
    assert found["status"] == "verified"
    assert "answered with an error" in found["lastError"]


async def test_a_failed_domain_is_verified_again_once_its_record_is_back(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    verified = await desk.make_verified(team, DOMAIN)
    zone.remove(PROOF, "TXT")
    for after_ms in (DAY_MS, *[8 * HOUR_MS] * 3):
        await desk.recheck(after_ms)
    failed = await team.verify(verified)

    desk.prove(verified)
    again = await team.verify(verified)

    assert (failed["status"], again["status"]) == ("failed", "verified")


async def test_a_domain_does_not_pass_on_while_its_owners_record_is_there(desk: Desk) -> None:
    owner, other = await desk.make_team("harbor"), await desk.make_team("pier")
    waiting = await other.add(DOMAIN)
    await desk.make_verified(owner, DOMAIN)
    desk.prove(waiting)

    refused = await other.verify(waiting)

    assert (refused["status"], (await owner.only())["status"]) == ("failed", "verified")
    assert "passes on once their record is gone" in refused["lastError"]
    assert await desk.served() == {DOMAIN: owner.project.id}


async def test_a_domain_does_not_pass_on_while_nobody_knows_whether_its_owners_record_is_there(
    desk: Desk, zone: Zone
) -> None:
    owner, other = await desk.make_team("harbor"), await desk.make_team("pier")
    waiting = await other.add(DOMAIN)
    await desk.make_verified(owner, DOMAIN)
    zone.records.clear()
    desk.prove(waiting)
    zone.broken = {DOMAIN}

    refused = await other.verify(waiting)

    assert refused["status"] == "failed"
    assert (await owner.only())["status"] == "verified"


async def test_a_domain_passes_on_to_who_proves_it_once_its_owners_record_is_gone(desk: Desk, zone: Zone) -> None:
    owner, other = await desk.make_team("harbor"), await desk.make_team("pier")
    await desk.make_verified(owner, DOMAIN)
    zone.records.clear()
    await desk.recheck(DAY_MS)
    added = await other.add(DOMAIN)
    desk.prove(added)

    passed = await other.verify(added)

    lost = await owner.only()
    assert (passed["status"], lost["status"]) == ("verified", "failed")
    assert "another organization has verified" in lost["lastError"]
    assert await desk.served() == {DOMAIN: other.project.id}
    assert await desk.feed(owner) == ["domain.added", "domain.verified", "domain.failed"]


async def test_who_takes_the_name_of_a_deleted_project_does_not_get_its_domain(
    desk: Desk, db: Database, zone: Zone, clock: ManualClock
) -> None:
    owner = await desk.make_team("harbor")
    added = await owner.add(DOMAIN)
    zone.put(DOMAIN, "CNAME", "harbor.apps.example.net.")
    await owner.verify(added)
    await db.write(lambda tx: projects.delete(tx, owner.org_id, Actor(None, "test"), "harbor"))
    clock.advance(RESERVATION_MS + 1)
    other = await desk.make_team("harbor")
    taken = await other.add(DOMAIN)

    by_cname = await other.verify(taken)
    desk.prove(taken)
    by_txt = await other.verify(taken)

    assert by_cname["status"] == "pending"
    assert "set the TXT record" in by_cname["lastError"]
    assert by_txt["status"] == "verified"
