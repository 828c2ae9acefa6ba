"""Pages and cursors: bounds, and refusal of altered cursors."""

from __future__ import annotations

import base64
import string
from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client, Reply
from tests.core.http.lab import lab, one_store

from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, AuditTarget
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.paging import CursorPage, CursorQuery, Page, PageQuery, make_cursor, read_cursor
from moorage.core.http.route import Router

pytestmark = pytest.mark.anyio

TOTAL = 45


def number_routes() -> Router:
    """Two lists of numbers: one with pages, one with cursors."""
    router = Router("Lab")

    @router.get("/numbers")
    def pages(tx: Tx, query: PageQuery) -> Page[int]:
        return Page(list(range(TOTAL))[query.offset : query.offset + query.page_size], TOTAL)

    def cursors(place: str, tx: Tx, caller: Any, query: CursorQuery) -> CursorPage[int]:
        key, where = tx.env.cursor_key, f"{place}:{caller.org_id}"
        position = read_cursor(key, where, query.cursor)
        begin = position[0] if position else 0
        end = begin + query.limit
        more = make_cursor(key, where, [end]) if end < TOTAL else None
        return CursorPage(list(range(TOTAL))[begin:end], more)

    @router.get("/evens")
    def evens(tx: Tx, caller: Any, query: CursorQuery) -> CursorPage[int]:
        return cursors("evens", tx, caller, query)

    @router.get("/odds")
    def odds(tx: Tx, caller: Any, query: CursorQuery) -> CursorPage[int]:
        return cursors("odds", tx, caller, query)

    return router


@pytest.fixture
def numbers(db: Database) -> Client:
    return lab(db, number_routes())


def check_bad_cursor(reply: Reply) -> None:
    assert reply.status == 400, reply.body
    assert set(reply.error["fields"]) == {"cursor"}


@one_store
async def test_a_page_is_the_first_twenty_unless_asked_otherwise(numbers: Client) -> None:
    first = await numbers.get("/v1/numbers")
    third = await numbers.get("/v1/numbers?page=3&pageSize=15")

    assert first.data == {"items": list(range(20)), "total": TOTAL}
    assert third.data == {"items": list(range(30, 45)), "total": TOTAL}


@one_store
async def test_the_last_page_is_short_and_one_past_the_end_is_empty_with_the_true_total(numbers: Client) -> None:
    last = await numbers.get("/v1/numbers?page=3")
    past = await numbers.get("/v1/numbers?page=4")
    far = [await numbers.get(f"/v1/numbers?page={page}&pageSize=100") for page in (10**12 - 1, 10**12, 10**30)]

    assert last.data == {"items": [40, 41, 42, 43, 44], "total": TOTAL}
    assert past.data == {"items": [], "total": TOTAL}
    assert [reply.data for reply in far] == [past.data] * 3


@one_store
@pytest.mark.parametrize("size", [1, 100])
async def test_the_bounds_of_a_page_size_are_inside(numbers: Client, size: int) -> None:
    assert len((await numbers.get(f"/v1/numbers?pageSize={size}")).data["items"]) == min(size, TOTAL)


@one_store
@pytest.mark.parametrize("name", ["page", "pageSize"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "", "x", "1e9", "-" + "9" * 20, "null"])
async def test_a_page_out_of_bounds_is_refused_by_name(numbers: Client, name: str, value: str) -> None:
    reply = await numbers.get(f"/v1/numbers?{name}={value}")

    assert reply.status == 400
    assert set(reply.error["fields"]) == {name}


@one_store
async def test_a_page_size_over_a_hundred_is_refused_and_not_cut(numbers: Client) -> None:
    replies = [await numbers.get(f"/v1/numbers?pageSize={size}") for size in (101, 10**20)]

    assert [set(reply.error["fields"]) for reply in replies] == [{"pageSize"}] * 2


@one_store
@pytest.mark.parametrize("limit", ["0", "101", "-5", "x", "1.0", ""])
async def test_a_limit_out_of_bounds_is_refused(numbers: Client, limit: str) -> None:
    reply = await numbers.get(f"/v1/evens?limit={limit}")

    assert set(reply.error["fields"]) == {"limit"}


@one_store
async def test_cursors_walk_a_list_to_its_end_without_a_gap(numbers: Client) -> None:
    page = (await numbers.get("/v1/evens?limit=10")).data
    seen = page["items"]
    while page["nextCursor"] is not None:
        page = (await numbers.get(f"/v1/evens?limit=10&cursor={page['nextCursor']}")).data
        seen += page["items"]

    assert seen == list(range(TOTAL))


@one_store
async def test_a_cursor_with_any_byte_changed_cut_or_added_is_refused(numbers: Client) -> None:
    cursor = (await numbers.get("/v1/evens?limit=10")).data["nextCursor"]
    letters = string.ascii_letters + string.digits + "-_"
    others = [cursor[:at] + letter + cursor[at + 1 :] for at in range(len(cursor)) for letter in letters[::7]]
    others += [cursor[:at] for at in range(1, len(cursor))]
    others += [cursor + "A", "A" + cursor, cursor + "=", cursor + ".", cursor.replace(".", ""), cursor.upper()]

    replies = {other: await numbers.get(f"/v1/evens?cursor={other}") for other in others if other != cursor}

    assert len(replies) > 300
    for reply in replies.values():
        check_bad_cursor(reply)


@one_store
@pytest.mark.parametrize("cursor", ["", ".", "x", "x.y", "%00", "%ff", "%F0%9F%9A%80", "a" * 2001, "W10.", "null"])
async def test_what_never_was_a_cursor_is_refused(numbers: Client, cursor: str) -> None:
    reply = await numbers.get(f"/v1/evens?cursor={cursor}")

    assert reply.status == 400


@one_store
async def test_a_cursor_signed_under_another_key_is_refused(numbers: Client) -> None:
    forged = make_cursor(b"k" * 32, "evens:1", [10])

    check_bad_cursor(await numbers.get(f"/v1/evens?cursor={forged}"))


@one_store
async def test_a_cursor_of_another_list_or_organization_is_refused(numbers: Client) -> None:
    cursor = (await numbers.get("/v1/evens?limit=10")).data["nextCursor"]

    check_bad_cursor(await numbers.get(f"/v1/odds?cursor={cursor}"))
    check_bad_cursor(await numbers.get(f"/v1/evens?cursor={cursor}", token="2-ada"))
    assert (await numbers.get(f"/v1/evens?cursor={cursor}", token="1-bob")).status == 200


@one_store
async def test_a_cursor_shows_its_reader_that_changing_it_is_in_vain(numbers: Client) -> None:
    """A cursor is signed, not encrypted: with another position and the old signature it is refused."""
    cursor = (await numbers.get("/v1/evens?limit=10")).data["nextCursor"]
    body, _, signature = cursor.partition(".")
    assert base64.urlsafe_b64decode(body + "==") == b"[10]"

    other = base64.urlsafe_b64encode(b"[0]").decode().rstrip("=")

    check_bad_cursor(await numbers.get(f"/v1/evens?cursor={other}.{signature}"))


async def test_the_activity_feed_is_walked_newest_first_on_either_store(api: Client, db: Database) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    token = await make_token(db, user, org.id)
    for number in range(5):
        target = AuditTarget("ship", str(number))
        await db.write(lambda tx, target=target: audit.record(tx, org.id, THE_PLATFORM, "sailed", target))  # type: ignore[misc]

    first = (await api.get("/v1/activity?limit=2", token=token)).data
    second = (await api.get(f"/v1/activity?limit=2&cursor={first['nextCursor']}", token=token)).data

    assert [item["target"]["name"] for item in first["items"] + second["items"]] == ["4", "3", "2", "1"]


async def test_a_cursor_of_one_organization_opens_no_other_to_somebody_in_both(api: Client, db: Database) -> None:
    user = await make_user(db)
    mine, other = await make_org(db, user), await make_org(db)
    await make_member(db, other, user=user)
    session = session_for(db, user)
    await make_token(db, user, mine.id)

    cursor = (await api.get("/v1/activity?limit=1", token=session, org=mine.id)).data["nextCursor"]

    check_bad_cursor(await api.get(f"/v1/activity?cursor={cursor}", token=session, org=other.id))
