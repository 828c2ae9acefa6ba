"""The list of a user's sessions, and the immediate effect of revoking one."""

from __future__ import annotations

import base64

import pytest
from tests.accounts.identity.support import rows_of
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client
from tests.core.http.lab import Guest, one_store

from moorage.accounts.identity.gate import SEEN_INTERVAL_MS
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.identity.tables import login_session
from moorage.accounts.identity.users import User
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.kit.clock import HOUR_MS, ManualClock, to_wire

pytestmark = pytest.mark.anyio

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0 Safari/537.36"
SAFARI = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1 (KHTML) Version/18.0 Safari/604.1"


async def log_in(db: Database, user: User, device: str = "test") -> str:
    made = Sessions(db.env)
    return await db.write(lambda tx: session_list.log_in(tx, made, user.id, device=device))


async def number_of(api: Client, token: str) -> int:
    listed = (await api.get("/v1/sessions", token=token)).data
    return next(int(each["id"]) for each in listed if each["current"])


async def test_a_login_is_listed_with_exactly_these_fields(api: Client, clock: ManualClock) -> None:
    first = (await api.post("/v1/auth/demo", headers={"User-Agent": FIREFOX})).data["token"]
    clock.advance(1000)
    second = (await api.post("/v1/auth/demo", headers={"User-Agent": "curl/8.5.0"})).data["token"]

    listed = (await api.get("/v1/sessions", token=first)).data

    assert [each["device"] for each in listed] == ["curl/8.5.0", "Firefox on Linux"]
    assert listed[1] == {
        "id": listed[1]["id"],
        "device": "Firefox on Linux",
        "address": "127.0.0.1",
        "createdAt": to_wire(clock.now() - 1000),
        "lastSeenAt": to_wire(clock.now() - 1000),
        "expiresAt": to_wire(clock.now() - 1000 + 24 * HOUR_MS),
        "current": True,
    }
    assert await number_of(api, second) == listed[0]["id"]


@pytest.mark.boundary("stranger-to-platform", "A revoked session is refused from the next request on.")
async def test_a_revoked_session_ends_at_once_and_the_others_stay(app: App, api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    lost, kept = await log_in(db, user), await log_in(db, user)
    assert (await api.get("/v1/usage", token=lost)).status == 200

    revoked = await api.delete(f"/v1/sessions/{await number_of(api, lost)}", token=kept)

    assert revoked.data == {"revoked": True}
    password = base64.b64encode(f"git:{lost}".encode()).decode()
    refs = f"/git/{org.slug}/site.git/info/refs?service=git-receive-pack"
    replies = [
        await api.get("/v1/me", token=lost),
        await api.get("/v1/usage", token=lost),
        await api.post("/v1/orgs", token=lost, json={"name": "Quay"}),
        await api.get(f"/v1/activity/stream?access_token={lost}"),
        await api.get(refs, headers={"Authorization": f"Basic {password}"}),
    ]
    assert [reply.status for reply in replies] == [401] * 5
    assert (await api.get("/v1/me", token=kept)).status == 200
    assert len((await api.get("/v1/sessions", token=kept)).data) == 1


@one_store
@pytest.mark.boundary("stranger-to-platform", "A revoked session ends its open event streams.")
async def test_a_revoked_session_ends_its_streams(
    app: App, api: Client, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "RECHECK_S", 0.02)
    user = await make_user(db)
    await make_org(db, user)
    token = await log_in(db, user)
    guest = Guest(app.asgi, f"/v1/activity/stream?access_token={token}")
    await guest.come()
    await guest.sees(": open")

    await api.delete(f"/v1/sessions/{await number_of(api, token)}", token=token)

    assert '"code":"unauthorized"' in await guest.ends()


@pytest.mark.boundary("role-to-role", "Nobody lists or revokes the sessions of another person.")
async def test_sessions_of_others_are_not_found_and_tokens_are_refused(api: Client, db: Database) -> None:
    user, other = await make_user(db), await make_user(db)
    mine, theirs = await log_in(db, user), await log_in(db, other)
    token = await make_token(db, user, (await make_org(db, user)).id)
    number = await number_of(api, theirs)

    missing = [await api.delete(f"/v1/sessions/{each}", token=mine) for each in (number, 999_999, 0, "x", "9" * 30)]
    own = await number_of(api, mine)
    by_token = [await api.get("/v1/sessions", token=token), await api.delete(f"/v1/sessions/{own}", token=token)]

    assert [reply.status for reply in missing] == [404] * 5
    assert [reply.status for reply in by_token] == [403] * 2
    assert (await api.get("/v1/me", token=theirs)).status == 200


async def test_a_session_that_was_made_before_there_was_a_list_holds_until_it_expires(
    api: Client, db: Database, clock: ManualClock
) -> None:
    old = session_for(db, await make_user(db))

    before = await api.get("/v1/sessions", token=old)
    clock.advance(24 * HOUR_MS)

    assert before.data == []
    assert (await api.get("/v1/sessions", token=old)).status == 401


async def test_the_time_a_session_was_last_seen_is_noted_every_ten_minutes(
    app: App, api: Client, db: Database, clock: ManualClock
) -> None:
    token = await log_in(db, await make_user(db))
    began = clock.now()
    seen = []
    for wait in (SEEN_INTERVAL_MS, 1):
        clock.advance(wait)
        await api.get("/v1/me", token=token)
        await app.asgi.close()
        [row] = await db.read(lambda tx: rows_of(tx, login_session))
        seen.append(row["last_seen_at"])

    assert seen == [began, began + SEEN_INTERVAL_MS + 1]


async def test_expired_sessions_are_swept_and_the_least_recently_seen_make_room(
    api: Client, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_list, "MAX_SESSIONS", 3)
    user = await make_user(db)
    tokens = []
    for _ in range(5):
        tokens.append(await log_in(db, user))
        clock.advance(1)

    statuses = [(await api.get("/v1/me", token=token)).status for token in tokens]
    clock.advance(25 * HOUR_MS)
    await db.write(session_list.sweep)

    assert statuses == [401, 401, 200, 200, 200]
    assert await db.read(lambda tx: rows_of(tx, login_session)) == []


def test_a_device_is_named_by_its_browser_and_system_or_its_program() -> None:
    agents = [FIREFOX, CHROME, SAFARI, "curl/8.5.0", "python-requests/2.32 extra", "", None, "Mozilla/5.0", "a\x00b"]

    assert [session_list.device_of(agent) for agent in agents] == [
        "Firefox on Linux",
        "Chrome on Windows",
        "Safari on iPhone",
        "curl/8.5.0",
        "python-requests/2.32",
        "unknown",
        "unknown",
        "Mozilla/5.0",
        "ab",
    ]
    assert len(session_list.device_of("x" * 5000)) == session_list.MAX_DEVICE_CHARS
