"""The routes of rules, on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.builders import make_org, make_token, make_user
from tests.client import Client, Reply

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.plans.service import Plan, Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Dispatcher
from moorage.core.telemetry import Telemetry
from moorage.products.projects import service as projects
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project
from moorage.products.rules import service
from moorage.products.rules.patterns import HeaderRule, HostRules, RedirectRule
from moorage.products.rules.routes import make_router

pytestmark = pytest.mark.anyio

HEADERS = "/v1/projects/harbor/headers"
REDIRECTS = "/v1/projects/harbor/redirects"


@dataclass
class Team:
    """A project, its clients, and the stored rules at each sync of the gateway."""

    db: Database
    org_id: int
    project: Project
    member: Client
    viewer: Client
    settled: list[dict[int, HostRules]]

    async def put_headers(self, *rules: tuple[str, str, str]) -> Reply:
        sent = [dict(zip(("source", "name", "value"), rule, strict=True)) for rule in rules]
        return await self.member.put(HEADERS, json={"headers": sent})

    async def put_redirects(self, *rules: tuple[str, str, int]) -> Reply:
        sent = [dict(zip(("source", "destination", "status"), rule, strict=True)) for rule in rules]
        return await self.member.put(REDIRECTS, json={"redirects": sent})


async def make_project(db: Database, org_id: int, name: str, slug: str = "static") -> Project:
    standing, new = Standing(Plan.PRO, card_verified=True), NewProject(name, slug, source="upload")
    return await db.write(lambda tx: projects.create(tx, org_id, THE_PLATFORM, standing, new))


async def make_team(db: Database, asgi: Dispatcher, settled: list[dict[int, HostRules]], project: str) -> Team:
    owner = await make_user(db)
    org = await make_org(db, owner)
    member = Client(asgi, token=await make_token(db, owner, org.id, role=Role.MEMBER))
    viewer = Client(asgi, token=await make_token(db, owner, org.id, role=Role.VIEWER))
    return Team(db, org.id, await make_project(db, org.id, project), member, viewer, settled)


@pytest.fixture
async def team(db: Database) -> AsyncIterator[Team]:
    settled: list[dict[int, HostRules]] = []

    async def settle() -> None:
        settled.append(await db.read(service.all_rules))

    gate = IdentityGate(Sessions(db.env))
    asgi = Dispatcher(make_router(db, settle).routes, db, gate, Telemetry(quiet=True))
    yield await make_team(db, asgi, settled, "harbor")
    await asgi.close()


def bad_fields(refused: Reply) -> dict[str, str]:
    assert refused.status == 400, refused.body
    fields: dict[str, str] = refused.error["fields"]
    return fields


def without_ids(rules: list[Any]) -> list[Any]:
    assert len({rule["id"] for rule in rules}) == len(rules)
    return [{name: value for name, value in rule.items() if name != "id"} for rule in rules]


async def test_a_project_begins_without_rules(team: Team) -> None:
    headers, redirects = await team.viewer.get(HEADERS), await team.viewer.get(REDIRECTS)

    assert (headers.data, redirects.data) == ([], [])
    assert await team.db.read(service.all_rules) == {}


async def test_rules_are_answered_whole_and_in_their_order(team: Team) -> None:
    headers = await team.put_headers(("/b", "X-B", "1"), ("/a", "X-A", ""), ("/b", "x-b", "2"))
    redirects = await team.put_redirects(("/z/*", "/y/:splat", 301), ("/a", "https://other.example/?q#f", 308))

    assert without_ids(headers.data) == [
        {"source": "/b", "name": "X-B", "value": "1"},
        {"source": "/a", "name": "X-A", "value": ""},
        {"source": "/b", "name": "x-b", "value": "2"},
    ]
    assert without_ids(redirects.data) == [
        {"source": "/z/*", "destination": "/y/:splat", "status": 301},
        {"source": "/a", "destination": "https://other.example/?q#f", "status": 308},
    ]
    assert (await team.viewer.get(HEADERS)).data == headers.data
    assert (await team.viewer.get(REDIRECTS)).data == redirects.data


async def test_a_new_set_replaces_the_old_one_whole(team: Team) -> None:
    await team.put_redirects(("/a", "/b", 301), ("/c", "/d", 301))

    replaced = await team.put_redirects(("/e", "/f", 302))
    emptied = await team.put_redirects()

    assert without_ids(replaced.data) == [{"source": "/e", "destination": "/f", "status": 302}]
    assert emptied.data == []
    assert (await team.viewer.get(REDIRECTS)).data == []


async def test_a_set_with_one_bad_rule_changes_nothing(team: Team) -> None:
    await team.put_headers(("/a", "X-A", "1"))

    refused = await team.put_headers(("/b", "X-B", "2"), ("/b", "X B", "2\r\nX-C: 3"))

    assert list(bad_fields(refused)) == ["headers[1].name", "headers[1].value"]
    assert without_ids((await team.viewer.get(HEADERS)).data) == [{"source": "/a", "name": "X-A", "value": "1"}]
    assert len(team.settled) == 1


async def test_a_change_is_answered_once_the_gateway_has_it(team: Team) -> None:
    await team.put_redirects(("/a", "/b", 301))
    await team.put_headers(("/c", "X-C", "{env.X}"))

    redirect, header = RedirectRule("/a", "/b", 301), HeaderRule("/c", "X-C", "{env.X}")
    assert team.settled == [
        {team.project.id: HostRules((redirect,))},
        {team.project.id: HostRules((redirect,), (header,))},
    ]


async def test_a_container_project_has_rules_like_any_other(team: Team) -> None:
    await make_project(team.db, team.org_id, "engine", "container")

    sent = {"redirects": [{"source": "/a", "destination": "/b", "status": 307}]}
    stored = await team.member.put("/v1/projects/engine/redirects", json=sent)

    assert [rule["status"] for rule in stored.data] == [307]


async def test_a_viewer_reads_and_only_a_member_writes(team: Team) -> None:
    refused = [
        await team.viewer.put(HEADERS, json={"headers": []}),
        await team.viewer.put(REDIRECTS, json={"redirects": []}),
    ]

    assert [reply.status for reply in refused] == [403, 403]
    assert (await team.viewer.get(HEADERS)).status == 200


async def test_the_project_of_others_is_not_there(team: Team, db: Database) -> None:
    assert isinstance(team.member.asgi, Dispatcher)
    await team.put_redirects(("/a", "/b", 301))
    other = await make_team(db, team.member.asgi, [], "other")

    replies = [
        await other.member.get(HEADERS),
        await other.member.get(REDIRECTS),
        await other.put_headers(),
        await other.put_redirects(),
        await team.member.get("/v1/projects/nobodys/headers"),
    ]

    assert [reply.status for reply in replies] == [404] * 5
    assert len((await team.viewer.get(REDIRECTS)).data) == 1


async def test_a_circle_is_refused_and_shown(team: Team) -> None:
    refused = await team.put_redirects(("/a", "/b", 301), ("/b", "/a", 302))

    assert bad_fields(refused) == {
        "redirects[0].destination": "leads in a circle: /a → /b → /a",
        "redirects[1].destination": "leads in a circle: /b → /a → /b",
    }


async def test_other_hosts_of_the_project_close_a_circle_too(team: Team) -> None:
    team.db.env.hooks.add(
        service.HOSTS, "test", lambda tx, org_id, project_id: ["www.example"] if org_id == team.org_id else []
    )

    refused = await team.put_redirects(("/*", "https://www.example/*", 301))
    taken = await team.put_redirects(("/*", "https://elsewhere.example/*", 301))

    assert list(bad_fields(refused)) == ["redirects[0].destination"]
    assert taken.status == 200


async def test_a_body_has_a_list_and_its_rules_have_their_types(team: Team) -> None:
    bodies: list[Any] = [{}, {"redirects": None}, {"redirects": {}}]
    without = [await team.member.put(REDIRECTS, json=body) for body in bodies]
    wrong = {"redirects": [{"source": 1, "destination": None, "status": "301"}, {}]}

    refused = await team.member.put(REDIRECTS, json=wrong)

    names = [f"redirects[{number}].{name}" for number in (0, 1) for name in ("destination", "source", "status")]
    assert [list(bad_fields(reply)) for reply in without] == [["redirects"]] * 3
    assert sorted(bad_fields(refused)) == names


async def test_texts_have_their_greatest_lengths(team: Team) -> None:
    long_header = await team.put_headers(("/a", "X-A", "a" * 8001), ("/" + "a" * 2000, "X-A", "a" * 8000))
    long_redirect = await team.put_redirects(("/" + "a" * 2000, "/" + "b" * 2000, 301))
    longest = await team.put_headers(("/" + "a" * 1999, "X-A", "a" * 8000))

    assert list(bad_fields(long_header)) == ["headers[0].value", "headers[1].source"]
    assert list(bad_fields(long_redirect)) == ["redirects[0].source", "redirects[0].destination"]
    assert longest.status == 200


async def test_a_thousand_rules_are_taken_and_one_more_is_not(team: Team) -> None:
    redirects = [(f"/{'old' * 100}/{number}", f"/{'new' * 200}/{number}", 301) for number in range(1000)]
    headers = [(f"/{number}/*", "X-Number", "a" * 1000) for number in range(1000)]

    taken = [await team.put_redirects(*redirects), await team.put_headers(*headers)]
    refused = [
        await team.put_redirects(*redirects, ("/more", "/m", 301)),
        await team.put_headers(*headers, ("/more", "X-More", "1")),
    ]

    assert [len(reply.data) for reply in taken] == [1000, 1000]
    assert [rule["source"] for rule in taken[1].data] == [source for source, _, _ in headers]
    assert [list(bad_fields(reply)) for reply in refused] == [["redirects"], ["headers"]]


async def test_changes_are_audited_with_counts_and_names_and_never_with_values(team: Team) -> None:
    await team.put_headers(("/a", "X-Key", "hidden-value"), ("/b", "X-Key", "hidden-value"))
    await team.put_redirects(("/a", "https://hidden.example/?key=hidden-value", 301))

    newest = await team.db.read(lambda tx: audit.latest(tx, team.org_id, before=None, most=2))

    shown = [(row.action, row.target, json.loads(row.details)) for row in reversed(newest)]
    assert [(action, target) for action, target, _ in shown] == [
        ("project.headers_changed", "harbor"),
        ("project.redirects_changed", "harbor"),
    ]
    assert [details["count"] for _, _, details in shown] == [2, 1]
    assert shown[0][2]["names"] == ["x-key"]
    assert "hidden" not in str(shown)


async def test_of_sets_sent_at_the_same_time_one_is_stored_whole(team: Team) -> None:
    sets = [[(f"/{number}/{place}", "/x", 301) for place in range(5)] for number in range(6)]

    replies = await asyncio.gather(*(team.put_redirects(*rules) for rules in sets))
    stored = (await team.viewer.get(REDIRECTS)).data

    assert [reply.status for reply in replies] == [200] * 6
    assert [rule["source"] for rule in stored] in [[source for source, _, _ in rules] for rules in sets]


async def test_the_gateway_gets_the_rules_of_every_project_that_has_any(team: Team) -> None:
    other = await make_org(team.db)
    theirs, bare = await make_project(team.db, other.id, "theirs"), await make_project(team.db, other.id, "bare")
    redirects = [RedirectRule(f"/{number}", "/x", 301) for number in (3, 1, 2)]
    header = HeaderRule("/*", "X-A", "1")
    await team.db.write(lambda tx: service.set_redirects(tx, other.id, THE_PLATFORM, "theirs", redirects))
    await team.db.write(lambda tx: service.set_headers(tx, team.org_id, THE_PLATFORM, "harbor", [header]))

    found = await team.db.read(service.all_rules)

    assert found == {
        team.project.id: HostRules(headers=(header,)),
        theirs.id: HostRules(redirects=tuple(redirects)),
    }
    assert bare.id not in found


async def test_the_rules_of_a_deleted_project_go_and_those_of_others_stay(team: Team) -> None:
    await make_project(team.db, team.org_id, "other")
    for name in ("harbor", "other"):
        rule = RedirectRule("/a", f"/{name}", 301)
        header = HeaderRule("/a", "X-A", name)
        await team.db.write(lambda tx: service.set_redirects(tx, team.org_id, THE_PLATFORM, name, [rule]))  # noqa: B023
        await team.db.write(lambda tx: service.set_headers(tx, team.org_id, THE_PLATFORM, name, [header]))  # noqa: B023

    for _ in range(2):
        await team.db.write(lambda tx: service.remove_of_project(tx, team.org_id, team.project.id))

    assert [rules.headers[0].value for rules in (await team.db.read(service.all_rules)).values()] == ["other"]
    assert (await team.viewer.get(HEADERS)).data == []
    assert (await team.viewer.get(REDIRECTS)).data == []
