"""Notifications: deduplication, order and reading."""

from __future__ import annotations

import pytest
from tests.builders import make_org, make_token, make_user, session_for
from tests.client import Client

from moorage.accounts.identity import notifications
from moorage.accounts.identity.users import User
from moorage.core.db.store import Database
from moorage.core.kit.clock import ManualClock, to_wire

pytestmark = pytest.mark.anyio


async def tell(db: Database, user: User, title: str, *, about: str | None = None, org_id: int | None = None) -> None:
    await db.write(
        lambda tx: notifications.add(tx, user.id, "test", title, "Body.", about=about or title, org_id=org_id)
    )


async def test_a_notification_has_exactly_these_fields(api: Client, db: Database, clock: ManualClock) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    await tell(db, user, "Ready", org_id=org.id)
    await tell(db, user, "Later")

    listed = (await api.get("/v1/notifications", token=session_for(db, user))).data

    assert [each["title"] for each in listed] == ["Later", "Ready"]
    assert listed[0]["organizationId"] is None
    assert listed[1] == {
        "id": listed[1]["id"],
        "kind": "test",
        "title": "Ready",
        "body": "Body.",
        "organizationId": str(org.id),
        "read": False,
        "createdAt": to_wire(clock.now()),
    }


async def test_the_same_matter_is_told_once_to_each(api: Client, db: Database) -> None:
    one, other = await make_user(db), await make_user(db)

    for user in (one, one, other):
        await tell(db, user, "Ready", about="deployment:1")

    for user in (one, other):
        assert len((await api.get("/v1/notifications", token=session_for(db, user))).data) == 1


async def test_one_is_marked_as_read_and_stays_so(api: Client, db: Database) -> None:
    user = await make_user(db)
    session = session_for(db, user)
    await tell(db, user, "first")
    await tell(db, user, "second")
    newest = (await api.get("/v1/notifications", token=session)).data[0]

    for _ in range(2):
        marked = await api.post(f"/v1/notifications/{newest['id']}/read", token=session)
        assert marked.data == {**newest, "read": True}

    assert [each["read"] for each in (await api.get("/v1/notifications", token=session)).data] == [True, False]


async def test_all_are_marked_as_read_at_once(api: Client, db: Database) -> None:
    user, other = await make_user(db), await make_user(db)
    session = session_for(db, user)
    for title in ("first", "second", "third"):
        await tell(db, user, title)
    await tell(db, other, "theirs")

    marked = [(await api.post("/v1/notifications/read", token=session)).data for _ in range(2)]

    assert marked == [{"marked": 3}, {"marked": 0}]
    assert all(each["read"] for each in (await api.get("/v1/notifications", token=session)).data)
    assert (await api.get("/v1/notifications", token=session_for(db, other))).data[0]["read"] is False


async def test_those_of_somebody_else_are_not_found_and_stay_unread(api: Client, db: Database) -> None:
    user, other = await make_user(db), await make_user(db)
    await tell(db, other, "theirs")
    theirs = (await api.get("/v1/notifications", token=session_for(db, other))).data[0]

    for named in (theirs["id"], 999_999, 0, "x", "9" * 30):
        assert (await api.post(f"/v1/notifications/{named}/read", token=session_for(db, user))).status == 404, named

    assert (await api.get("/v1/notifications", token=session_for(db, user))).data == []
    assert (await api.get("/v1/notifications", token=session_for(db, other))).data == [theirs]


async def test_the_newest_hundred_are_shown(api: Client, db: Database) -> None:
    user = await make_user(db)

    def fill(tx) -> None:  # type: ignore[no-untyped-def]
        for number in range(103):
            notifications.add(tx, user.id, "test", f"{number}", "Body.", about=f"{number}")

    await db.write(fill)

    listed = (await api.get("/v1/notifications", token=session_for(db, user))).data
    assert [each["title"] for each in listed] == [f"{number}" for number in range(102, 2, -1)]


@pytest.mark.boundary("tenant-to-tenant", "An API token reads no notification about another organization.")
async def test_an_api_token_sees_and_marks_those_of_its_own_organization(api: Client, db: Database) -> None:
    user = await make_user(db)
    here, there = await make_org(db, user), await make_org(db, user)
    for title, org_id in (("here", here.id), ("there", there.id), ("personal", None)):
        await tell(db, user, title, org_id=org_id)
    token, session = await make_token(db, user, here.id), session_for(db, user)
    numbers = {each["title"]: each["id"] for each in (await api.get("/v1/notifications", token=session)).data}

    seen = (await api.get("/v1/notifications", token=token)).data
    others = [await api.post(f"/v1/notifications/{numbers[name]}/read", token=token) for name in ("there", "personal")]
    marked = (await api.post("/v1/notifications/read", token=token)).data

    assert [each["title"] for each in seen] == ["here"]
    assert [reply.status for reply in others] == [404, 404]
    assert marked == {"marked": 1}
    listed = (await api.get("/v1/notifications", token=session)).data
    assert {each["title"]: each["read"] for each in listed} == {"here": True, "there": False, "personal": False}
