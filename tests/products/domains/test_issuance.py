"""Certificates only for served names, within each organization's budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from tests.products.domains.support import Desk, Team, add_function

from moorage.accounts.identity.organizations import service as orgs
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, HOUR_MS, ManualClock, to_wire
from moorage.products.domains import grants
from moorage.products.domains.grants import WEEK_MS
from moorage.products.domains.issuance import Permission
from moorage.products.projects import service as projects

pytestmark = pytest.mark.anyio
ACTOR = Actor(1, "Ada")
BUDGET = pytest.mark.settings(certificates_per_week=3)


@dataclass
class Gateway:
    """A gateway with some certificates, which records log lines."""

    has: set[str] = field(default_factory=set)
    covers: set[str] = field(default_factory=set)
    logged: list[dict[str, Any]] = field(default_factory=list)

    def status(self, host: str) -> str:
        return "issued" if host in self.has else "none"

    def is_covered(self, host: str) -> bool:
        return host in self.covers

    def warning(self, _: str, **fields: Any) -> None:
        self.logged.append(fields)


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def permission(db: Database, gateway: Gateway) -> Permission:
    return Permission(db, gateway, gateway)


async def rename(db: Database, team: Team, before: str, after: str) -> str:
    await db.write(lambda tx: projects.rename(tx, team.org_id, ACTOR, before, after))
    return f"{after}.apps.example.net"


async def test_certificates_are_granted_for_names_that_are_served_and_no_other(
    desk: Desk, db: Database, permission: Permission
) -> None:
    team = await desk.make_team("harbor")
    await team.add("pending.example.com")
    await desk.make_verified(team, "shop.example.com")

    served = ["shop.example.com", "harbor.apps.example.net", "HARBOR.apps.example.net"]
    served += ["apps.example.net", "edge.apps.example.net", "localhost"]
    others = [
        "pending.example.com",
        "absent.apps.example.net",
        "a.harbor.apps.example.net",
        "harbor",
        "",
        "ü",
        "a\x00b",
    ]
    granted = [name for name in [*served, *others] if await permission.ask(name)]

    assert granted == served


@pytest.mark.boundary("tenant-to-tenant", "Renames give an organization no certificates beyond its weekly budget.")
@BUDGET
async def test_each_name_of_a_project_counts_against_the_budget_of_its_organization(
    desk: Desk, db: Database, permission: Permission, gateway: Gateway, clock: ManualClock
) -> None:
    team, other = await desk.make_team("harbor"), await desk.make_team("quay")
    names = ["harbor", *(f"name-{number}" for number in range(60))]

    granted = [await permission.ask(f"{names[0]}.apps.example.net")]
    for before, after in pairwise(names):
        granted.append(await permission.ask(await rename(db, team, before, after)))

    assert granted == [True] * 3 + [False] * 58
    assert await permission.ask("quay.apps.example.net")
    assert await permission.ask(f"{names[2]}.apps.example.net")  # It has a certificate, and redirects visitors.
    clock.advance(WEEK_MS)
    assert await permission.ask(f"{names[-1]}.apps.example.net")
    assert {line["organization"] for line in gateway.logged} == {team.org_id}
    assert team.org_id != other.org_id


async def test_a_former_name_gets_a_certificate_only_where_it_has_one(
    desk: Desk, db: Database, permission: Permission, gateway: Gateway, clock: ManualClock
) -> None:
    team = await desk.make_team("first")
    await rename(db, team, "first", "second")

    before = await permission.ask("first.apps.example.net")
    gateway.has.add("first.apps.example.net")
    with_certificate = await permission.ask("first.apps.example.net")
    clock.advance(DAY_MS + 1)
    after_its_day = await permission.ask("first.apps.example.net")

    assert (before, with_certificate, after_its_day) == (False, True, False)


@BUDGET
async def test_a_name_that_was_granted_or_has_a_certificate_is_never_refused_again(
    desk: Desk, permission: Permission, gateway: Gateway
) -> None:
    team = await desk.make_team("harbor")
    domains = [f"shop-{number}.example.com" for number in range(5)]
    for domain in domains:
        await desk.make_verified(team, domain)
    gateway.has.add(domains[4])

    first = [await permission.ask(domain) for domain in domains]
    again = [await permission.ask(domain) for domain in domains]

    assert first == again == [True, True, True, False, True]


@BUDGET
async def test_a_refusal_is_logged_once_an_hour(
    desk: Desk, db: Database, permission: Permission, gateway: Gateway, clock: ManualClock
) -> None:
    team = await desk.make_team("harbor")
    await spend(db, team, 3)

    for _ in range(5):
        assert not await permission.ask("harbor.apps.example.net")
    clock.advance(HOUR_MS)
    assert not await permission.ask("harbor.apps.example.net")

    assert [line["host"] for line in gateway.logged] == ["harbor.apps.example.net"] * 2


async def spend(db: Database, team: Team, number: int) -> None:
    for each in range(number):
        await db.write(lambda tx, each=each: grants.add(tx, team.org_id, grants.Kind.SUBDOMAIN, f"spent-{each}"))  # type: ignore[misc]


@pytest.mark.settings(certificates_per_week=3, https_port=8443)
async def test_a_domain_over_the_budget_says_so_and_from_when_on_it_can_have_one(
    desk: Desk, db: Database, clock: ManualClock
) -> None:
    team = await desk.make_team("harbor")
    await spend(db, team, 3)
    start = clock.now()

    await desk.make_verified(team, "shop.example.com")
    await desk.run_jobs()

    found = await team.only()
    assert found["certificateStatus"] == "failed"
    assert "3 certificates for new names in the last 7 days" in found["lastError"]
    assert to_wire(start + WEEK_MS) in found["lastError"]
    assert (await team.verify(found))["lastError"] == found["lastError"]


@BUDGET
async def test_the_host_for_functions_counts_once_it_has_a_function(
    desk: Desk, db: Database, permission: Permission
) -> None:
    team = await desk.make_team("harbor")
    host = f"org-{team.org_id}.localhost"

    before = await permission.ask(host)
    await add_function(db, team.org_id, "hello")
    after = await permission.ask(host)
    await spend(db, team, 3)

    assert (before, after, await permission.ask(host)) == (False, True, True)
    assert not await permission.ask("harbor.apps.example.net")
    assert not await permission.ask(f"org-{team.org_id + 1}.localhost")


async def test_a_name_under_the_operator_s_certificate_is_never_issued_another(
    desk: Desk, permission: Permission, gateway: Gateway
) -> None:
    await desk.make_team("harbor")
    gateway.covers = {"harbor.apps.example.net", "apps.example.net"}

    assert not await permission.ask("harbor.apps.example.net")
    assert not await permission.ask("apps.example.net")


@BUDGET
async def test_the_budget_of_a_deleted_organization_is_forgotten(desk: Desk, db: Database) -> None:
    team = await desk.make_team("harbor")
    await spend(db, team, 3)

    await db.write(lambda tx: orgs.delete(tx, team.org_id, ACTOR))
    await desk.run_jobs()

    assert await db.read(lambda tx: grants.why_refused(tx, team.org_id)) is None
