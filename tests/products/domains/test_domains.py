"""Custom domains in the API: add, verify by DNS, release."""

from __future__ import annotations

import pytest
from tests.products.domains.dns_server import Zone
from tests.products.domains.support import Desk

from moorage.accounts.identity.organizations import service as orgs
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock
from moorage.products.domains import service
from moorage.products.projects import service as projects

pytestmark = pytest.mark.anyio

ACTOR = Actor(None, "test")


async def test_a_domain_is_added_with_the_records_to_set(desk: Desk) -> None:
    team = await desk.make_team("harbor")

    added = await team.add("Shop.Example.com.")

    proof = {"type": "TXT", "name": "_moorage.shop.example.com", "value": added["verification"]["value"]}
    assert added["verification"]["value"].startswith("moorage-domain=")
    assert added == {
        "id": added["id"],
        "projectId": team.project.id,
        "domain": "shop.example.com",
        "status": "pending",
        "verification": proof,
        "records": [proof, {"type": "CNAME", "name": "shop.example.com", "value": "harbor.apps.example.net"}],
        "certificateStatus": "none",
        "lastError": None,
        "verifiedAt": None,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z",
    }
    assert await team.only() == added


async def test_an_apex_is_led_here_by_the_addresses_of_the_platform(desk: Desk, zone: Zone) -> None:
    zone.put("harbor.apps.example.net", "A", "192.0.2.7")
    zone.put("harbor.apps.example.net", "AAAA", "2001:db8::7")
    team = await desk.make_team("harbor")

    added = await team.add("example.com")

    assert added["records"][1:] == [
        {"type": "A", "name": "example.com", "value": "192.0.2.7"},
        {"type": "AAAA", "name": "example.com", "value": "2001:db8::7"},
    ]


@pytest.mark.settings(host="0.0.0.0")
async def test_an_apex_is_led_here_by_an_alias_where_no_address_is_known(desk: Desk) -> None:
    team = await desk.make_team("harbor")

    added = await team.add("example.com")

    assert added["records"][1:] == [{"type": "ALIAS", "name": "example.com", "value": "harbor.apps.example.net"}]


@pytest.mark.parametrize(
    "domain",
    ["", "com", "*.example.com", "192.0.2.1", "https://example.com", "apps.example.net", "x.apps.example.net", 7, None],
)
async def test_what_cannot_be_a_domain_of_a_project_is_refused_by_its_field(desk: Desk, domain: object) -> None:
    team = await desk.make_team("harbor")

    reply = await team.try_to_add(domain)

    assert (reply.status, list(reply.error["fields"])) == (400, ["domain"])
    assert await desk.feed(team) == []


@pytest.mark.parametrize("limit", ["MAX_OF_PROJECT", "MAX_OF_ORGANIZATION"])
async def test_a_project_and_an_organization_have_a_bounded_number_of_domains(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(service, limit, 2)
    team, other = await desk.make_team("harbor"), await desk.make_team("quay")
    first, _ = [await team.add(name) for name in ("a.example.com", "b.example.com")]

    refused, theirs = await team.try_to_add("c.example.com"), await other.try_to_add("c.example.com")
    await team.delete(first)
    again = await team.try_to_add("c.example.com")

    assert (refused.status, theirs.status, again.status) == (409, 200, 200)
    assert "has at most 2 domains" in refused.error["message"]


async def test_a_domain_is_added_once_in_an_organization_however_it_is_written(desk: Desk) -> None:
    team = await desk.make_team("harbor")
    await team.add("bücher.example.com")

    reply = await team.try_to_add("XN--BCHER-KVA.example.com")

    assert (reply.status, reply.error["code"]) == (409, "conflict")


async def test_a_domain_of_a_project_that_is_not_there_is_not_found(desk: Desk) -> None:
    team, other = await desk.make_team("harbor"), await desk.make_team("pier")

    replies = [
        await team.client.get("/v1/projects/absent/domains"),
        await team.client.post("/v1/projects/pier/domains", json={"domain": "shop.example.com"}),
        await other.client.get("/v1/projects/harbor/domains"),
    ]

    assert [reply.status for reply in replies] == [404, 404, 404]


async def test_a_domain_of_another_organization_is_not_found(desk: Desk) -> None:
    team, other = await desk.make_team("harbor"), await desk.make_team("pier")
    added = await team.add("shop.example.com")

    replies = [
        await other.client.post(f"/v1/domains/{added['id']}/verify"),
        await other.delete(added),
        await team.client.post("/v1/domains/999999/verify"),
        await team.client.delete("/v1/domains/none"),
    ]

    assert [reply.status for reply in replies] == [404, 404, 404, 404]
    assert (await team.only())["status"] == "pending"


async def test_every_member_may_look_and_verify_but_only_some_may_change(desk: Desk) -> None:
    team = await desk.make_team("harbor")
    added = await team.add("shop.example.com")

    replies = [
        await team.viewer.get("/v1/projects/harbor/domains"),
        await team.viewer.post(f"/v1/domains/{added['id']}/verify"),
        await team.viewer.post("/v1/projects/harbor/domains", json={"domain": "www.example.com"}),
        await team.viewer.delete(f"/v1/domains/{added['id']}"),
    ]

    assert [reply.status for reply in replies] == [200, 200, 403, 403]


async def test_the_txt_record_verifies_a_domain_and_it_is_served(desk: Desk, clock: ManualClock) -> None:
    team = await desk.make_team("harbor")
    added = await team.add("shop.example.com")
    before = await desk.served()
    desk.prove(added)
    clock.advance(1000)

    verified = await team.verify(added)

    assert before == {}
    assert (verified["status"], verified["lastError"]) == ("verified", None)
    assert verified["verifiedAt"] == verified["updatedAt"] == "2026-01-01T00:00:01.000Z"
    assert await desk.served() == {"shop.example.com": team.project.id}
    assert await desk.feed(team) == ["domain.added", "domain.verified"]


async def test_the_cname_record_verifies_a_domain(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    added = await team.add("shop.example.com")
    zone.put("shop.example.com", "CNAME", "harbor.apps.example.net.")

    verified = await team.verify(added)

    assert verified["status"] == "verified"


async def test_a_domain_without_its_record_stays_pending_and_says_what_was_found(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    added = await team.add("shop.example.com")

    nothing = await team.verify(added)
    zone.put_txt("_moorage.shop.example.com", "moorage-domain=wrong")
    wrong = await team.verify(added)
    zone.broken = {"_moorage.shop.example.com"}
    unknown = await team.verify(added)

    assert [each["status"] for each in (nothing, wrong, unknown)] == ["pending"] * 3
    assert "no TXT record at _moorage.shop.example.com" in nothing["lastError"]
    assert "“moorage-domain=wrong”" in wrong["lastError"]
    assert "answered with an error" in unknown["lastError"]
    assert await desk.served() == {}


async def test_a_released_domain_is_served_no_more_and_keeps_its_token_when_it_comes_back(desk: Desk) -> None:
    team = await desk.make_team("harbor")
    verified = await desk.make_verified(team, "shop.example.com")

    reply = await team.delete(verified)
    again = await team.delete(verified)
    served = await desk.served()
    added = await team.add("shop.example.com")

    assert (reply.data, again.status, served) == ({"deleted": True}, 404, {})
    assert added["verification"] == verified["verification"]
    assert added["id"] != verified["id"]
    assert await desk.feed(team) == ["domain.added", "domain.verified", "domain.removed", "domain.added"]


async def test_whoever_serves_domains_hears_of_each_change(desk: Desk) -> None:
    team = await desk.make_team("harbor")
    verified = await desk.make_verified(team, "shop.example.com")
    await desk.run_jobs()
    after_verifying = len(desk.changes)
    await team.verify(verified)
    await desk.run_jobs()
    after_verifying_again = len(desk.changes)

    await team.delete(verified)
    await desk.run_jobs()

    assert (after_verifying, after_verifying_again, len(desk.changes)) == (1, 1, 2)
    assert {(change.org_id, change.project_id) for change in desk.changes} == {(team.org_id, team.project.id)}


async def test_a_deleted_project_takes_its_domains_along(desk: Desk, db: Database) -> None:
    team = await desk.make_team("harbor")
    await desk.make_verified(team, "shop.example.com")
    await team.add("www.example.com")

    await db.write(lambda tx: projects.delete(tx, team.org_id, ACTOR, "harbor"))

    assert await desk.served() == {}


async def test_a_deleted_organization_takes_its_domains_along(desk: Desk, db: Database) -> None:
    team = await desk.make_team("harbor")
    await desk.make_verified(team, "shop.example.com")

    await db.write(lambda tx: orgs.delete(tx, team.org_id, ACTOR))
    await desk.run_jobs()

    assert await desk.served() == {}


async def test_a_domain_without_a_certificate_to_wait_for_is_answered_at_once(desk: Desk, zone: Zone) -> None:
    team = await desk.make_team("harbor")
    body = {"domain": "shop.example.com"}

    added = (await team.client.post("/v1/projects/harbor/domains?wait=60", json=body)).data
    proof = added["verification"]
    zone.put(proof["name"], "TXT", proof["value"])
    verified = (await team.client.post(f"/v1/domains/{added['id']}/verify?wait=60")).data

    assert (added["status"], verified["status"], verified["certificateStatus"]) == ("pending", "verified", "none")
    assert verified == await team.only()
