"""The activity feed: paging, and the hash chain that reveals tampering."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import delete, insert, update
from tests.accounts.identity.support import behind_the_back, rows_of, whole_store
from tests.builders import make_org, make_user, session_for
from tests.client import Client

from moorage.accounts.identity.organizations.service import Organization
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget, BrokenRow
from moorage.core.audit.tables import activity, audit_head
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import ManualClock, to_wire
from moorage.platform.admin import verify_audit

pytestmark = pytest.mark.anyio

ADA = Actor(7, "Ada Moor")


def note(tx: Tx, org_id: int, name: str) -> None:
    audit.record(tx, org_id, ADA, "thing.made", AuditTarget("thing", name), size=3)


async def make_feed(db: Database, rows: int) -> tuple[Organization, str]:
    """Return an organization with that many rows, including its creation, and its owner's session."""
    user = await make_user(db)
    org = await make_org(db, user)

    def fill(tx: Tx) -> None:
        for number in range(2, rows + 1):
            note(tx, org.id, f"thing {number}")

    await db.write(fill)
    return org, session_for(db, user)


async def verify(db: Database, org: Organization) -> tuple[int, BrokenRow | None]:
    return await db.read(lambda tx: audit.verify(tx, org.id))


async def pages(api: Client, session: str, limit: int) -> list[list[str]]:
    found, cursor = [], ""
    while True:
        page = (await api.get(f"/v1/activity?limit={limit}{cursor}", token=session)).data
        found.append([item["target"]["name"] for item in page["items"]])
        if page["nextCursor"] is None:
            return found
        cursor = f"&cursor={page['nextCursor']}"


async def test_a_row_has_exactly_these_fields(api: Client, db: Database, clock: ManualClock) -> None:
    _, session = await make_feed(db, 2)

    page = (await api.get("/v1/activity", token=session)).data

    assert set(page) == {"items", "nextCursor"}
    assert page["nextCursor"] is None
    assert page["items"][0] == {
        "id": page["items"][0]["id"],
        "action": "thing.made",
        "actor": {"userId": 7, "name": "Ada Moor", "address": None, "token": None},
        "target": {"kind": "thing", "name": "thing 2"},
        "details": {"size": 3},
        "createdAt": to_wire(clock.now()),
    }


async def test_pages_follow_each_other_without_a_gap_or_a_repeat(api: Client, db: Database) -> None:
    _, session = await make_feed(db, 7)
    names = [f"thing {number}" for number in range(7, 1, -1)] + ["Harbor"]

    assert await pages(api, session, 3) == [names[:3], names[3:6], names[6:]]
    assert await pages(api, session, 7) == [names]
    assert await pages(api, session, 100) == [names]


async def test_rows_that_come_while_somebody_pages_do_not_shift_the_pages(api: Client, db: Database) -> None:
    org, session = await make_feed(db, 5)
    first = (await api.get("/v1/activity?limit=2", token=session)).data

    await db.write(lambda tx: note(tx, org.id, "late"))

    second = (await api.get(f"/v1/activity?limit=2&cursor={first['nextCursor']}", token=session)).data
    assert [item["target"]["name"] for item in second["items"]] == ["thing 3", "thing 2"]


async def test_a_cursor_that_was_altered_or_is_another_organizations_is_refused(api: Client, db: Database) -> None:
    _, session = await make_feed(db, 5)
    _, strange = await make_feed(db, 5)
    mine = (await api.get("/v1/activity?limit=2", token=session)).data["nextCursor"]
    theirs = (await api.get("/v1/activity?limit=2", token=strange)).data["nextCursor"]
    body, _, signature = mine.partition(".")
    assert (await api.get(f"/v1/activity?cursor={mine}", token=session)).status == 200

    for cursor in (theirs, "", "x", ".", body, f"{body}.", f".{signature}", f"WzFd.{signature}", f"{mine}x", "é"):
        reply = await api.get(f"/v1/activity?cursor={cursor}", token=session)
        assert (reply.status, list(reply.error["fields"])) == (400, ["cursor"]), cursor


async def test_limits_out_of_range_are_refused(api: Client, db: Database) -> None:
    _, session = await make_feed(db, 2)

    for limit in ("0", "101", "-1", "x", "1.5", ""):
        reply = await api.get(f"/v1/activity?limit={limit}", token=session)
        assert (reply.status, list(reply.error["fields"])) == (400, ["limit"]), limit
    assert len((await api.get("/v1/activity?limit=1&colour=blue", token=session)).data["items"]) == 1


async def test_the_feed_of_one_resource_holds_nothing_of_another(db: Database) -> None:
    org, _ = await make_feed(db, 4)
    target = AuditTarget("thing", "thing 3")

    rows = await db.read(lambda tx: audit.latest_of(tx, org.id, target, before=None, most=10))

    assert [(row.seq, row.target) for row in rows] == [(3, "thing 3")]


async def test_an_untouched_chain_holds(db: Database) -> None:
    org, _ = await make_feed(db, 5)

    assert await verify(db, org) == (5, None)


async def test_chains_hold_when_many_write_at_the_same_moment(db: Database) -> None:
    org, _ = await make_feed(db, 1)

    await asyncio.gather(*(db.write(lambda tx: note(tx, org.id, "busy")) for _ in range(20)))

    assert await verify(db, org) == (21, None)


async def test_what_a_failed_unit_recorded_leaves_no_gap(db: Database) -> None:
    org, _ = await make_feed(db, 2)

    def fails(tx: Tx) -> None:
        note(tx, org.id, "never")
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(fails)
    await db.write(lambda tx: note(tx, org.id, "after"))

    assert await verify(db, org) == (3, None)


CHANGES: dict[str, Any] = {
    "action": "thing.unmade",
    "actor": "Eve",
    "user_id": None,
    "at": 5,
    "target": "another",
    "target_kind": "person",
    "details": '{"size":4}',
    "seal": "é" * 64,
}


async def test_a_changed_row_is_named_whatever_was_changed(db: Database) -> None:
    for column, value in CHANGES.items():
        org, _ = await make_feed(db, 5)
        where = (activity.c.org_id == org.id) & (activity.c.seq == 3)

        await behind_the_back(db, update(activity).where(where).values({column: value}))

        assert await verify(db, org) == (2, BrokenRow(org.id, 3, "the row was changed")), column


async def test_a_removed_row_is_named(db: Database) -> None:
    org, _ = await make_feed(db, 5)

    await behind_the_back(db, delete(activity).where((activity.c.org_id == org.id) & (activity.c.seq == 2)))

    assert await verify(db, org) == (1, BrokenRow(org.id, 2, "the row is missing"))


async def test_rows_that_were_numbered_anew_after_a_removal_are_named(db: Database) -> None:
    org, _ = await make_feed(db, 5)
    mine = activity.c.org_id == org.id

    await behind_the_back(db, delete(activity).where(mine & (activity.c.seq == 3)))
    for seq in (4, 5):
        await behind_the_back(db, update(activity).where(mine & (activity.c.seq == seq)).values(seq=seq - 1))

    assert await verify(db, org) == (2, BrokenRow(org.id, 3, "the row was changed"))


async def copy_of(db: Database, org: Organization, at: int, **changes: Any) -> dict[str, Any]:
    rows = await db.read(lambda tx: rows_of(tx, activity))
    row = next(row for row in rows if (row["org_id"], row["seq"]) == (org.id, at))
    return {name: value for name, value in {**row, **changes}.items() if name != "id"}


async def test_an_inserted_row_is_named_wherever_it_stands(db: Database) -> None:
    for seq, why in ((6, "the row was changed"), (0, "the row was inserted"), (-4, "the row was inserted")):
        org, _ = await make_feed(db, 5)
        forged = await copy_of(db, org, 5, seq=seq, actor="Eve")

        await behind_the_back(db, insert(activity).values(forged))

        assert (await verify(db, org))[1] == BrokenRow(org.id, seq, why)


async def test_a_row_of_another_organization_does_not_pass_for_ones_own(db: Database) -> None:
    org, _ = await make_feed(db, 3)
    other, _ = await make_feed(db, 3)
    moved = await copy_of(db, other, 2, org_id=org.id, seq=2)
    await behind_the_back(db, delete(activity).where((activity.c.org_id == org.id) & (activity.c.seq == 2)))

    await behind_the_back(db, insert(activity).values(moved))

    assert (await verify(db, org))[1] == BrokenRow(org.id, 2, "the row was changed")


async def test_a_cut_tail_is_named(db: Database) -> None:
    org, _ = await make_feed(db, 5)

    await behind_the_back(db, delete(activity).where((activity.c.org_id == org.id) & (activity.c.seq > 3)))

    count, broken = await verify(db, org)
    assert (count, broken) == (3, BrokenRow(org.id, 4, "the newest rows are missing: the chain should end at 5"))


async def test_a_cut_tail_is_named_even_where_the_head_was_wound_back(db: Database) -> None:
    org, _ = await make_feed(db, 5)
    seal = (await copy_of(db, org, 3))["seal"]
    mine = audit_head.c.org_id == org.id

    await behind_the_back(db, delete(activity).where((activity.c.org_id == org.id) & (activity.c.seq > 3)))
    await behind_the_back(db, update(audit_head).where(mine).values(seq=3, seal=seal))

    assert await verify(db, org) == (3, BrokenRow(org.id, 4, "the head of the chain was changed"))


async def test_a_chain_without_its_head_is_named_by_the_operators_walk(db: Database) -> None:
    org, _ = await make_feed(db, 3)
    sound, _ = await make_feed(db, 2)

    await behind_the_back(db, delete(audit_head).where(audit_head.c.org_id == org.id))

    walked = await verify_audit(db)
    assert walked["broken"] == [{"organization": org.id, "row": 4, "why": "the head of the chain is missing"}]
    assert walked["rows"] == 5
    assert await verify(db, sound) == (2, None)


async def test_the_sealing_key_is_not_in_the_store(db: Database) -> None:
    await make_feed(db, 2)
    key = await db.read(lambda tx: audit._key(tx))

    stored = repr(await whole_store(db))

    assert key.hex() not in stored
