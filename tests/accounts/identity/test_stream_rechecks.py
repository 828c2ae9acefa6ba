"""Open event streams: they end with their credential, and their number is limited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.accounts.identity.support import House, make_house
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client
from tests.core.http.lab import ADA, Guest, lab_app, one_store

from moorage.accounts.identity import tokens, users
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.limits.streams import StreamSlots
from moorage.core.http.route import Router
from moorage.core.kit.events import Event

pytestmark = pytest.mark.anyio

ROLE = Role.MEMBER  # the user of the open stream
Change = Callable[[Client, Database, House], Awaitable[Any]]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams check their credential every few milliseconds, so that no test waits for ten seconds."""
    monkeypatch.setattr(sse, "RECHECK_S", 0.02)


def member_path(house: House) -> str:
    return f"/v1/orgs/{house.org.id}/members/{house.people[ROLE].id}"


async def remove(api: Client, db: Database, house: House) -> None:
    await api.delete(member_path(house), token=house.sessions[Role.OWNER])


async def demote(api: Client, db: Database, house: House) -> None:
    await api.patch(member_path(house), token=house.sessions[Role.OWNER], json={"role": "viewer"})


async def suspend(api: Client, db: Database, house: House) -> None:
    await db.write(lambda tx: users.suspend(tx, house.people[ROLE], suspended=True))


async def revoke(api: Client, db: Database, house: House) -> None:
    listed = await db.read(lambda tx: tokens.all_of(tx, house.org.id))
    [number] = [token.id for token in listed if token.user_id == house.people[ROLE].id]
    await api.delete(f"/v1/api-tokens/{number}", token=house.sessions[Role.OWNER])


async def delete(api: Client, db: Database, house: House) -> None:
    await db.write(lambda tx: orgs.delete(tx, house.org.id, THE_PLATFORM))


async def follow(app: App, token: str) -> Guest:
    guest = Guest(app.asgi, f"/v1/activity/stream?access_token={token}")
    await guest.come()
    await guest.sees(": open")
    return guest


def reason(text: str) -> dict[str, str]:
    _, _, last = text.partition("event: closed\ndata: ")
    found: dict[str, str] = json.loads(last)
    return found


@pytest.mark.boundary("role-to-role", "A revoked credential or lost right ends its open event streams within 15 s.")
@pytest.mark.parametrize(
    ("change", "credential", "code"),
    [
        (revoke, "token", "unauthorized"),
        (remove, "token", "unauthorized"),
        (remove, "session", "not_found"),
        (suspend, "token", "forbidden"),
        (suspend, "session", "forbidden"),
        (demote, "token", "forbidden"),
        (demote, "session", "forbidden"),
        (delete, "session", "not_found"),
    ],
)
async def test_a_stream_ends_with_the_right_to_follow_it_and_says_why(
    app: App, api: Client, db: Database, soon: None, change: Change, credential: str, code: str
) -> None:
    house = await make_house(db)
    guest = await follow(app, (house.tokens if credential == "token" else house.sessions)[ROLE])
    other = await follow(app, house.tokens[Role.OWNER])

    await change(api, db, house)
    text = await guest.ends()

    assert reason(text)["code"] == code
    assert reason(text)["message"]
    if change is not delete:
        assert "event: closed" not in other.sent.text
    await other.leaves()


@one_store
async def test_a_stream_stays_open_when_its_user_joins_another_organization(app: App, db: Database, soon: None) -> None:
    user = await make_user(db)
    first, second = await make_org(db, user), await make_org(db)
    guest = await follow(app, session_for(db, user))

    await make_member(db, second, user=user)
    await asyncio.sleep(0.1)

    assert "event: closed" not in guest.sent.text
    assert first.id != second.id
    await guest.leaves()


@one_store
async def test_checking_again_does_not_count_against_the_rate_limit(
    app: App, api: Client, db: Database, soon: None
) -> None:
    user = await make_user(db)
    token = await make_token(db, user, (await make_org(db, user)).id)
    guest = await follow(app, token)
    before = int((await api.get("/v1/me", token=token)).headers["ratelimit-remaining"])

    await asyncio.sleep(0.1)

    assert int((await api.get("/v1/me", token=token)).headers["ratelimit-remaining"]) == before - 1
    await guest.leaves()


@one_store
async def test_a_busy_stream_is_checked_before_its_next_event_is_sent(db: Database, soon: None) -> None:
    async def endless() -> AsyncIterator[Event]:
        while True:
            yield Event("log", 1)
            await asyncio.sleep(0)

    router, valid = Router("Lab"), True

    @router.get("/ticks", events=True)
    async def ticks() -> Stream:
        return sse.stream(endless())

    asgi = lab_app(db, router)
    admit = asgi.gate.admit
    asgi.gate.admit = lambda tx, route, ask: admit(tx, route, ask if valid else ask._replace(token="nobody"))  # type: ignore[method-assign]
    guest = Guest(asgi, f"/v1/ticks?access_token={ADA}")
    await guest.come()
    await guest.sees("event: log")

    valid = False
    text = await guest.ends()

    assert reason(text)["code"] == "unauthorized"


@one_store
@pytest.mark.boundary("tenant-to-tenant", "The open event streams of one token and one organization are bounded.")
@pytest.mark.settings(streams_per_token=2, streams_per_organization=3)
async def test_streams_over_the_bound_are_refused_until_one_is_closed(app: App, api: Client, db: Database) -> None:
    house, other = await make_house(db), await make_house(db)
    token, second = house.tokens[Role.OWNER], house.tokens[Role.VIEWER]
    guests = [await follow(app, token) for _ in range(2)]

    per_token = await api.get("/v1/activity/stream", token=token)
    guests.append(await follow(app, second))
    per_organization = await api.get("/v1/activity/stream", token=second)
    elsewhere = await follow(app, other.tokens[Role.OWNER])
    await guests[0].leaves()
    again = await follow(app, second)

    assert [(reply.status, reply.error["code"]) for reply in (per_token, per_organization)] == [
        (429, "rate_limited")
    ] * 2
    assert "at most 2 for one token" in per_token.error["message"]
    assert "at most 3 for one organization" in per_organization.error["message"]
    assert int(per_token.headers["retry-after"]) >= 1
    for guest in (*guests[1:], elsewhere, again):
        await guest.leaves()
    assert not app.asgi.slots._open


@one_store
@pytest.mark.settings(streams_per_token=1)
async def test_a_stream_that_is_refused_by_its_route_takes_no_slot(app: App, api: Client, db: Database) -> None:
    house = await make_house(db)

    for _ in range(3):
        assert (await api.get("/v1/projects/none/logs/stream", token=house.tokens[Role.OWNER])).status == 404

    assert not app.asgi.slots._open


def test_a_slot_is_given_back_once() -> None:
    slots = StreamSlots(per_token=1, per_organization=5)
    give_back = slots.take("a", 1)
    slots.take("b", 1)

    give_back()
    give_back()

    assert slots._open == {("token", "b"): 1, ("organization", "1"): 1}
