"""Invitations by mail address."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import update
from tests.accounts.identity.support import House, behind_the_back, make_house
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client, Reply

from moorage.accounts.identity import users
from moorage.accounts.identity.organizations import invitations
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.tables import membership
from moorage.accounts.identity.users import User
from moorage.accounts.plans.service import Plan
from moorage.core.db.store import Database
from moorage.core.kit.clock import DAY_MS, ManualClock, to_wire

pytestmark = pytest.mark.anyio


async def invite(api: Client, house: House, email: str, role: str = "member", by: Role = Role.OWNER) -> Reply:
    path = f"/v1/orgs/{house.org.id}/invitations"
    return await api.post(path, token=house.sessions[by], json={"email": email, "role": role})


async def invited_guest(api: Client, db: Database, house: House, role: str = "member") -> tuple[User, str, int]:
    """Return an invited user, the user's session, and the invitation."""
    guest = await make_user(db)
    made = (await invite(api, house, guest.email, role)).data
    return guest, session_for(db, guest), made["id"]


async def test_an_invitation_has_exactly_these_fields_on_both_sides(
    api: Client, db: Database, clock: ManualClock
) -> None:
    house, guest = await make_house(db, name="Harbor"), await make_user(db, "guest@example.com")

    made = (await invite(api, house, " Guest@Example.com ", "admin")).data

    assert made == {
        "id": made["id"],
        "email": "guest@example.com",
        "role": "admin",
        "organizationId": str(house.org.id),
        "organizationName": "Harbor",
        "status": "pending",
        "createdAt": to_wire(clock.now()),
        "expiresAt": to_wire(clock.now() + 7 * DAY_MS),
    }
    path = f"/v1/orgs/{house.org.id}/invitations"
    assert (await api.get(path, token=house.sessions[Role.ADMIN])).data == [made]
    assert (await api.get("/v1/invitations", token=session_for(db, guest))).data == [made]


async def test_accepting_makes_a_member_in_the_role_that_was_offered(api: Client, db: Database) -> None:
    house = await make_house(db)
    guest, session, number = await invited_guest(api, db, house, "viewer")

    accepted = await api.post(f"/v1/invitations/{number}/accept", token=session)

    assert (accepted.data["id"], accepted.data["status"]) == (number, "accepted")
    who = (await api.get("/v1/whoami", token=session)).data
    assert who == {"userId": guest.id, "orgId": str(house.org.id), "orgName": "Harbor", "role": "viewer"}
    assert (await api.get("/v1/invitations", token=session)).data == []


async def test_declining_makes_nobody_a_member(api: Client, db: Database) -> None:
    house = await make_house(db)
    _, session, number = await invited_guest(api, db, house)

    declined = await api.post(f"/v1/invitations/{number}/decline", token=session)

    assert declined.data["status"] == "declined"
    assert (await api.get("/v1/orgs", token=session)).data == []


async def test_an_invitation_is_answered_once(api: Client, db: Database) -> None:
    house = await make_house(db)
    _, session, number = await invited_guest(api, db, house)
    await api.post(f"/v1/invitations/{number}/decline", token=session)

    for answer in ("accept", "decline"):
        reply = await api.post(f"/v1/invitations/{number}/{answer}", token=session)
        assert (reply.status, reply.error["code"]) == (409, "conflict")


async def test_an_invitation_accepted_many_times_at_once_makes_one_member(api: Client, db: Database) -> None:
    house = await make_house(db)
    _, session, number = await invited_guest(api, db, house)

    replies = await asyncio.gather(*(api.post(f"/v1/invitations/{number}/accept", token=session) for _ in range(6)))

    assert sorted(reply.status for reply in replies) == [200, *[409] * 5]


async def test_an_invitation_of_somebody_else_is_not_found(api: Client, db: Database) -> None:
    house, other = await make_house(db), await make_user(db)
    _, _, number = await invited_guest(api, db, house)

    for answer in ("accept", "decline"):
        for session in (session_for(db, other), house.sessions[Role.OWNER]):
            assert (await api.post(f"/v1/invitations/{number}/{answer}", token=session)).status == 404
        for named in ("x", "0", "9" * 30, "999999"):
            assert (await api.post(f"/v1/invitations/{named}/{answer}", token=session_for(db, other))).status == 404


async def test_an_invitation_that_was_taken_back_cannot_be_accepted(api: Client, db: Database) -> None:
    house = await make_house(db)
    _, session, number = await invited_guest(api, db, house)

    revoked = await api.delete(f"/v1/orgs/{house.org.id}/invitations/{number}", token=house.sessions[Role.ADMIN])

    assert (revoked.status, revoked.json) == (200, {"success": True})
    assert (await api.get("/v1/invitations", token=session)).data == []
    assert (await api.post(f"/v1/invitations/{number}/accept", token=session)).status == 409


async def test_only_an_invitation_of_the_list_is_revoked(api: Client, db: Database, clock: ManualClock) -> None:
    house = await make_house(db)
    path, admin = f"/v1/orgs/{house.org.id}/invitations", {"token": house.tokens[Role.ADMIN]}
    numbers = {}
    for answer in ("accept", "decline", "revoke", "expire"):
        _, session, numbers[answer] = await invited_guest(api, db, house)
        if answer in ("accept", "decline"):
            await api.post(f"/v1/invitations/{numbers[answer]}/{answer}", token=session)
    await api.delete(f"{path}/{numbers['revoke']}", **admin)
    clock.advance(7 * DAY_MS)

    replies = {answer: await api.delete(f"{path}/{number}", **admin) for answer, number in numbers.items()}

    assert (await api.get(path, **admin)).data == []
    for answer, reply in replies.items():
        assert (reply.status, reply.error["message"]) == (404, "There is no such invitation"), answer


async def test_an_invitation_holds_for_seven_days(api: Client, db: Database, clock: ManualClock) -> None:
    house = await make_house(db)
    guest, _, number = await invited_guest(api, db, house)
    path = f"/v1/orgs/{house.org.id}/invitations"

    clock.advance(7 * DAY_MS - 1)
    before = (await api.get(path, token=house.tokens[Role.OWNER])).data
    clock.advance(1)
    session = session_for(db, guest)

    assert len(before) == 1
    assert (await api.get(path, token=house.tokens[Role.OWNER])).data == []
    assert (await api.get("/v1/invitations", token=session)).data == []
    assert (await api.post(f"/v1/invitations/{number}/accept", token=session)).status == 409


async def test_somebody_whose_invitation_expired_can_be_invited_again(
    api: Client, db: Database, clock: ManualClock
) -> None:
    house = await make_house(db)
    guest, _, number = await invited_guest(api, db, house)
    clock.advance(8 * DAY_MS)
    await db.write(invitations.expire)
    again = await api.post(
        f"/v1/orgs/{house.org.id}/invitations", token=house.tokens[Role.OWNER], json={"email": guest.email}
    )

    accepted = await api.post(f"/v1/invitations/{again.data['id']}/accept", token=session_for(db, guest))

    assert accepted.status == 200
    assert again.data["id"] != number


async def test_nobody_is_invited_twice_or_while_a_member(api: Client, db: Database) -> None:
    house, guest = await make_house(db), await make_user(db)
    await invite(api, house, guest.email)

    twice = await invite(api, house, guest.email.upper())
    member = await invite(api, house, house.people[Role.VIEWER].email)

    assert [(reply.status, reply.error["code"]) for reply in (twice, member)] == [(409, "conflict")] * 2


async def test_an_admin_cannot_invite_an_owner(api: Client, db: Database) -> None:
    house = await make_house(db)

    by_admin = await invite(api, house, "new@example.com", "owner", by=Role.ADMIN)
    by_owner = await invite(api, house, "new@example.com", "owner", by=Role.OWNER)

    assert (by_admin.status, by_owner.status) == (403, 200)


async def test_malformed_invitations_name_their_fields(api: Client, db: Database) -> None:
    house = await make_house(db)
    malformed: list[tuple[Any, set[str]]] = [
        ({}, {"email"}),
        ({"email": "nobody"}, {"email"}),
        ({"email": "a@b..c"}, {"email"}),
        ({"email": "a b@example.com"}, {"email"}),
        ({"email": "a@example.com\nBcc: b@example.com"}, {"email"}),
        ({"email": f"{'x' * 250}@example.com"}, {"email"}),
        ({"email": None}, {"email"}),
        ({"email": 5, "role": "root"}, {"email", "role"}),
        ({"email": "a@example.com", "role": None}, {"role"}),
    ]
    for body, fields in malformed:
        path = f"/v1/orgs/{house.org.id}/invitations"
        reply = await api.post(path, token=house.sessions[Role.OWNER], json=body)

        assert (reply.status, set(reply.error["fields"])) == (400, fields), body


async def test_an_invitation_of_another_organization_cannot_be_taken_back(api: Client, db: Database) -> None:
    house, other = await make_house(db), await make_house(db)
    _, session, number = await invited_guest(api, db, house)

    reply = await api.delete(f"/v1/orgs/{other.org.id}/invitations/{number}", token=other.sessions[Role.OWNER])

    assert reply.status == 404
    assert len((await api.get("/v1/invitations", token=session)).data) == 1


async def test_somebody_who_has_no_account_yet_finds_the_invitation_after_the_first_login(
    api: Client, db: Database
) -> None:
    house = await make_house(db)
    await invite(api, house, "new@example.com")

    newcomer = await make_user(db, "New@Example.com")

    assert len((await api.get("/v1/invitations", token=session_for(db, newcomer))).data) == 1


async def test_an_api_token_below_owner_cannot_answer_for_its_user(api: Client, db: Database) -> None:
    house = await make_house(db)
    guest, session, number = await invited_guest(api, db, house)
    own = await make_org(db, guest)
    lent = await make_token(db, guest, own.id, role=Role.ADMIN)

    for answer in ("accept", "decline"):
        assert (await api.post(f"/v1/invitations/{number}/{answer}", token=lent)).status == 403
    assert (await api.post(f"/v1/invitations/{number}/accept", token=session)).status == 200


async def test_a_suspended_guest_cannot_accept(api: Client, db: Database) -> None:
    house = await make_house(db)
    guest, session, number = await invited_guest(api, db, house)
    await db.write(lambda tx: users.suspend(tx, guest, suspended=True))

    assert (await api.post(f"/v1/invitations/{number}/accept", token=session)).status == 403


@pytest.mark.settings(billing="manual")
async def test_a_plan_that_is_full_refuses_another_invitation_and_another_member(api: Client, db: Database) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=Plan.FREE)
    session = session_for(db, owner)
    guests = [await make_user(db) for _ in range(4)]
    path = f"/v1/orgs/{org.id}/invitations"
    numbers = [(await api.post(path, token=session, json={"email": guest.email})).data["id"] for guest in guests[:3]]

    accepted = [
        await api.post(f"/v1/invitations/{number}/accept", token=session_for(db, guest))
        for number, guest in zip(numbers, guests, strict=False)
    ]
    refused = await api.post(path, token=session, json={"email": guests[3].email})

    assert [reply.status for reply in accepted] == [200, 200, 402]
    assert (refused.status, refused.error["code"]) == (402, "quota_exceeded")


async def test_a_guest_with_an_account_is_told_once(api: Client, db: Database, run_jobs: Any) -> None:
    house = await make_house(db)
    _, session, number = await invited_guest(api, db, house)
    await run_jobs()
    await run_jobs()

    told = (await api.get("/v1/notifications", token=session)).data

    assert [each["kind"] for each in told] == ["invitation"]
    assert "Harbor" in told[0]["title"]
    assert (await api.post(f"/v1/invitations/{number}/accept", token=session)).status == 200


async def test_a_guest_whose_invitation_was_taken_back_is_not_told(api: Client, db: Database, run_jobs: Any) -> None:
    house = await make_house(db)
    _, session, number = await invited_guest(api, db, house)
    await api.delete(f"/v1/orgs/{house.org.id}/invitations/{number}", token=house.sessions[Role.OWNER])

    await run_jobs()

    assert (await api.get("/v1/notifications", token=session)).data == []


async def expect_void(api: Client, house: House, session: str, number: int) -> None:
    refused = await api.post(f"/v1/invitations/{number}/accept", token=session)

    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert (await api.get("/v1/invitations", token=session)).data == []
    waiting = (await api.get(f"/v1/orgs/{house.org.id}/invitations", token=house.sessions[Role.OWNER])).data
    assert [each["id"] for each in waiting] == []


@pytest.mark.boundary("role-to-role", "An invitation ends with the membership of the person who sent it.")
@pytest.mark.parametrize("by", [Role.OWNER, Role.ADMIN], ids=["removed", "left"])
async def test_an_invitation_ends_with_its_senders_membership(api: Client, db: Database, by: Role) -> None:
    house, guest = await make_house(db), await make_user(db)
    sender = house.people[Role.ADMIN]
    made = (await invite(api, house, guest.email, "admin", by=Role.ADMIN)).data

    await api.delete(f"/v1/orgs/{house.org.id}/members/{sender.id}", token=house.sessions[by])

    await expect_void(api, house, session_for(db, guest), made["id"])
    revoked = (await api.get("/v1/activity?limit=1", token=house.sessions[Role.OWNER])).data["items"][0]
    assert (revoked["action"], revoked["target"]["name"]) == ("invitation.revoked", guest.email)


@pytest.mark.boundary("role-to-role", "An invitation to a role that its sender lost cannot be accepted.")
async def test_a_demotion_ends_the_invitations_that_the_new_role_could_not_send(api: Client, db: Database) -> None:
    house = await make_house(db)
    sender = await make_member(db, house.org, Role.OWNER)
    as_owner, as_viewer = await make_user(db), await make_user(db)
    path, session = f"/v1/orgs/{house.org.id}/invitations", session_for(db, sender)
    high = (await api.post(path, token=session, json={"email": as_owner.email, "role": "owner"})).data["id"]
    low = (await api.post(path, token=session, json={"email": as_viewer.email, "role": "viewer"})).data["id"]

    member = f"/v1/orgs/{house.org.id}/members/{sender.id}"
    await api.patch(member, token=house.sessions[Role.OWNER], json={"role": "admin"})

    refused = await api.post(f"/v1/invitations/{high}/accept", token=session_for(db, as_owner))
    accepted = await api.post(f"/v1/invitations/{low}/accept", token=session_for(db, as_viewer))
    assert (refused.status, accepted.status) == (409, 200)


@pytest.mark.boundary("role-to-role", "Acceptance checks that the sender may still give the role.")
async def test_acceptance_checks_the_senders_role_in_the_store(api: Client, db: Database) -> None:
    house, guest = await make_house(db), await make_user(db)
    sender = await make_member(db, house.org, Role.OWNER)
    path = f"/v1/orgs/{house.org.id}/invitations"
    body = {"email": guest.email, "role": "owner"}
    number = (await api.post(path, token=session_for(db, sender), json=body)).data["id"]
    lower = update(membership).where(membership.c.user_id == sender.id)
    accept = f"/v1/invitations/{number}/accept"

    await behind_the_back(db, lower.values(role="member"))
    lowered = await api.post(accept, token=session_for(db, guest))
    await behind_the_back(db, lower.values(role="owner"))
    await db.write(lambda tx: users.suspend(tx, sender, suspended=True))
    suspended = await api.post(accept, token=session_for(db, guest))
    await db.write(lambda tx: users.suspend(tx, sender, suspended=False))

    assert [(reply.status, "void" in reply.error["message"]) for reply in (lowered, suspended)] == [(409, True)] * 2
    assert (await api.post(accept, token=session_for(db, guest))).status == 200


@pytest.mark.boundary("role-to-role", "Tokens of a removed member do not work again after a new invitation.")
@pytest.mark.parametrize("by", [Role.OWNER, Role.MEMBER], ids=["removed", "left"])
async def test_old_tokens_of_a_member_do_not_come_back_with_a_new_invitation(
    api: Client, db: Database, by: Role
) -> None:
    house = await make_house(db)
    member, token = house.people[Role.MEMBER], house.tokens[Role.MEMBER]
    elsewhere = await make_token(db, member, (await make_org(db, member)).id)
    await api.delete(f"/v1/orgs/{house.org.id}/members/{member.id}", token=house.sessions[by])
    number = (await invite(api, house, member.email)).data["id"]
    assert (await api.post(f"/v1/invitations/{number}/accept", token=house.sessions[Role.MEMBER])).status == 200

    assert (await api.get("/v1/whoami", token=token)).status == 401
    assert (await api.get("/v1/whoami", token=elsewhere)).status == 200
    listed = (await api.get("/v1/api-tokens", token=house.sessions[Role.OWNER])).data
    assert len(listed) == 3


@pytest.mark.boundary("tenant-to-tenant", "An API token sees no invitation of another organization.")
async def test_an_api_token_does_not_see_its_makers_invitations_elsewhere(api: Client, db: Database) -> None:
    house = await make_house(db)
    guest, session, number = await invited_guest(api, db, house)
    token = await make_token(db, guest, (await make_org(db, guest)).id)

    by_token, by_session = [await api.get("/v1/invitations", token=each) for each in (token, session)]

    assert (by_token.data, [each["id"] for each in by_session.data]) == ([], [number])


async def test_an_organization_sends_a_bounded_number_of_invitations_a_day(
    api: Client, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "MAX_DAILY_OF_ORGANIZATION", 2)
    house = await make_house(db)

    first = [(await invite(api, house, f"guest-{number}@example.com")).status for number in range(3)]
    clock.advance(DAY_MS)
    body, token = {"email": "guest-3@example.com"}, house.tokens[Role.ADMIN]
    next_day = (await api.post(f"/v1/orgs/{house.org.id}/invitations", token=token, json=body)).status

    assert [*first, next_day] == [200, 200, 402, 200]


async def test_a_user_sends_a_bounded_number_of_invitations_a_day_for_all_organizations(
    api: Client, db: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "MAX_DAILY_OF_SENDER", 2)
    house = await make_house(db)
    second = await make_org(db, house.people[Role.OWNER])

    async def invite_to_second(number: int) -> int:
        body = {"email": f"guest-{number}@example.com"}
        return (await api.post(f"/v1/orgs/{second.id}/invitations", token=house.sessions[Role.OWNER], json=body)).status

    sent = [(await invite(api, house, "guest-0@example.com")).status]
    sent += [await invite_to_second(number) for number in (1, 2)]
    by_another = (await invite(api, house, "guest-3@example.com", by=Role.ADMIN)).status
    clock.advance(DAY_MS)
    session = session_for(db, house.people[Role.OWNER])
    next_day = await api.post(f"/v1/orgs/{second.id}/invitations", token=session, json={"email": "guest-4@example.com"})

    assert [*sent, by_another, next_day.status] == [200, 200, 402, 200, 200]
