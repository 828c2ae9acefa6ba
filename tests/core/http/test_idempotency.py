"""A write that is sent twice takes effect once, on either dialect."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from tests.builders import make_member, make_org, make_token, make_user, session_for
from tests.client import Client
from tests.core.http.lab import lab, one_store, texts_in_store
from tests.core.http.yard import Yard, both_kinds, make_yard

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.idempotency import keys as idempotency
from moorage.core.http.idempotency.once import Write
from moorage.core.http.route import Router, Scope
from moorage.errors import Conflict

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]

KEY = {"Idempotency-Key": "order-7"}


@pytest.fixture
def yard(db: Database) -> Yard:
    return make_yard(db)


@both_kinds
async def test_the_same_request_gets_the_first_answer_again_and_takes_effect_once(yard: Yard, path: str) -> None:
    first = await yard.order(path)
    again = await yard.order(path)

    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["content-type"] == "application/json"
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert yard.orders == ["rope"]


@both_kinds
async def test_the_same_key_with_another_body_is_a_conflict(yard: Yard, path: str) -> None:
    await yard.order(path, "rope")

    other = await yard.order(path, "tar")

    assert (other.status, other.error["code"]) == (409, "conflict")
    assert yard.orders == ["rope"]


@both_kinds
async def test_another_key_is_another_request(yard: Yard, path: str) -> None:
    await yard.order(path, key="order-7")
    await yard.order(path, key="order-8")

    assert yard.orders == ["rope", "rope"]


async def test_without_a_key_every_request_takes_effect(yard: Yard) -> None:
    for _ in range(2):
        await yard.client.post("/v1/sync", json={"item": "rope"})

    assert yard.orders == ["rope", "rope"]


@both_kinds
@pytest.mark.parametrize("trouble", ["bad", "taken"])
async def test_a_refusal_is_kept_and_given_again_under_its_own_trace_id(yard: Yard, path: str, trouble: str) -> None:
    first = await yard.order(path, trouble=trouble)
    again = await yard.order(path, trouble=trouble, headers={"X-Request-Id": "second-try"})

    assert first.status in (400, 409)
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["x-request-id"] == again.error["traceId"] == first.headers["x-request-id"]
    assert yard.orders == ["rope"]


@both_kinds
async def test_a_body_that_is_not_valid_is_refused_the_same_way_twice(yard: Yard, path: str) -> None:
    first = await yard.client.post(path, content=b'{"item":7}', headers=KEY)
    again = await yard.client.post(path, content=b'{"item":7}', headers=KEY)

    assert first.status == 400
    assert again.body == first.body


@both_kinds
@pytest.mark.parametrize(("trouble", "status"), [("busy", 429), ("broken", 500), ("crash", 500)])
async def test_an_answer_that_may_come_out_otherwise_next_time_is_not_kept(
    yard: Yard, path: str, trouble: str, status: int
) -> None:
    first = await yard.order(path, trouble=trouble)
    again = await yard.order(path, trouble=trouble)
    mended = await yard.order(path, "tar")

    assert (first.status, again.status, mended.status // 100) == (status, status, 2)
    assert yard.orders == ["rope", "rope", "tar"]


async def test_a_handler_that_answers_5xx_itself_is_run_again(yard: Yard) -> None:
    await yard.order("/v1/unavailable")
    await yard.order("/v1/unavailable")

    assert yard.orders == ["rope", "rope"]


@pytest.mark.settings(rate_limit=2)
async def test_a_request_over_the_rate_limit_leaves_its_key_free(yard: Yard) -> None:
    await yard.client.post("/v1/sync", json={})
    await yard.client.post("/v1/sync", json={})

    limited = await yard.order("/v1/sync")
    later = await yard.order("/v1/sync", token="1-ada2")

    assert (limited.status, later.status) == (429, 200)
    assert yard.orders == ["rope"]


@pytest.mark.parametrize("path", ["/v1/slow", "/v1/slow-outside"])
async def test_while_the_first_is_at_work_the_second_is_a_conflict(yard: Yard, path: str) -> None:
    first = asyncio.create_task(yard.order(path))
    await yard.started.wait()

    second = await yard.order(path)
    other_body = await yard.order(path, "tar")
    yard.may_go_on.set()
    done = await first
    third = await yard.order(path)

    assert (second.status, other_body.status) == (409, 409)
    assert "still at work" in second.error["message"]
    assert (third.status, third.body) == (200, done.body)
    assert yard.orders == ["rope"]


async def test_of_many_at_once_one_takes_effect_and_the_others_see_it_or_a_conflict(yard: Yard) -> None:
    replies = await asyncio.gather(*(yard.order("/v1/sync") for _ in range(20)))

    assert yard.orders == ["rope"]
    assert {reply.status for reply in replies} <= {200, 409}
    assert len({reply.body for reply in replies if reply.status == 200}) == 1


@both_kinds
async def test_two_processes_that_share_a_store_run_it_once(yard: Yard, db: Database, path: str) -> None:
    """Another dispatcher on the same database does not know the running requests of the first."""
    other = Yard(yard.router, lab(db, yard.router))

    replies = await asyncio.gather(*((yard, other)[number % 2].order(path) for number in range(10)))

    assert yard.orders == ["rope"]
    assert {reply.status for reply in replies} <= {200, 202, 409}


async def test_of_two_processes_that_prepare_the_same_write_the_second_gives_the_answer_of_the_first(
    yard: Yard, db: Database
) -> None:
    other = Yard(yard.router, lab(db, yard.router))
    both = [asyncio.create_task(each.order("/v1/slow")) for each in (yard, other)]
    await yard.started.wait()

    yard.may_go_on.set()
    replies = await asyncio.gather(*both)

    assert yard.orders == ["rope"]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].body == replies[1].body


async def test_the_answer_is_stored_with_the_effect_so_a_process_that_dies_right_after_loses_neither(
    yard: Yard, db: Database
) -> None:
    """The first process never finishes; the next one sees only its rows."""
    dying = asyncio.create_task(yard.order("/v1/settles"))
    await yard.started.wait()

    again = await lab(db, yard.router).post("/v1/settles", json={"item": "rope"}, headers=KEY)
    dying.cancel()

    assert again.data == {"number": 1, "item": "rope"}
    assert again.headers["idempotency-replayed"] == "true"
    assert yard.orders == ["rope"]


async def test_a_process_that_dies_before_its_effect_leaves_the_key_free(yard: Yard, db: Database) -> None:
    dying = asyncio.create_task(yard.order("/v1/slow"))
    await yard.started.wait()

    stored = await texts_in_store(db)
    dying.cancel()
    yard.may_go_on.set()
    again = await lab(db, yard.router).post("/v1/slow", json={"item": "rope"}, headers=KEY)

    assert "order-7" not in stored
    assert again.data == {"number": 1, "item": "rope"}
    assert yard.orders == ["rope"]


async def test_an_answer_that_says_more_than_at_the_commit_is_given_again_as_it_was_sent(yard: Yard) -> None:
    yard.may_go_on.set()

    first = await yard.order("/v1/settles", "news")
    again = await yard.order("/v1/settles", "news")

    assert first.data == again.data == {"number": 1, "item": "settled"}
    assert yard.orders == ["news"]


async def test_trouble_after_the_effect_does_not_let_it_happen_again(yard: Yard) -> None:
    yard.may_go_on.set()

    first = await yard.order("/v1/settles", "late trouble")
    again = await yard.order("/v1/settles", "late trouble")

    assert (first.status, again.status) == (500, 200)
    assert yard.orders == ["late trouble"]


@one_store
async def test_a_handler_that_would_take_effect_in_two_transactions_is_refused(db: Database) -> None:
    router = Router("Lab")

    @router.post("/twice")
    async def twice(write: Write) -> None:
        await write(lambda tx: None)
        await write(lambda tx: None)

    assert (await lab(db, router).post("/v1/twice")).status == 500


@one_store
async def test_only_what_runs_outside_of_the_store_takes_effect_outside_of_its_transaction(app: App) -> None:
    credentialed = [route for route in app.routes if route.is_write and route.scope is not Scope.PUBLIC]

    outside = {route.operation for route in credentialed if route.is_async and "write" not in route.wants}

    external = {
        "invoke_function",
        "run_scheduled_function",
        "run_command",
        "begin_installation",
        "query_database",
    }
    assert outside == external | {"test_rules", "detect_project"}


@pytest.mark.parametrize("path", ["/v1/secret", "/v1/secret-later"])
async def test_an_answer_that_shows_a_secret_is_never_stored(yard: Yard, db: Database, path: str) -> None:
    first = await yard.order(path)
    again = await yard.order(path)

    assert first.data == {"secret": "psk_shown_only_once"}
    assert again.status == 409
    assert yard.orders == ["rope"]
    assert "shown_only_once" not in await texts_in_store(db)


@pytest.mark.parametrize("path", ["/v1/secret", "/v1/secret-later"])
async def test_a_refusal_of_a_route_that_shows_secrets_is_kept(yard: Yard, path: str) -> None:
    first = await yard.order(path, trouble="bad")
    again = await yard.order(path, trouble="bad")

    assert (first.status, again.body) == (400, first.body)


async def test_a_new_api_token_is_nowhere_in_the_store_and_its_repeat_is_a_conflict(api: Client, db: Database) -> None:
    user = await make_user(db)
    session = session_for(db, user)
    await make_org(db, user)

    first = await api.post("/v1/api-tokens", json={"name": "ci"}, token=session, headers=KEY)
    again = await api.post("/v1/api-tokens", json={"name": "ci"}, token=session, headers=KEY)

    assert again.status == 409
    assert len((await api.get("/v1/api-tokens", token=session)).data) == 1
    assert first.data["token"][9:] not in await texts_in_store(db)


async def test_a_key_belongs_to_an_organization_a_caller_and_a_route(yard: Yard) -> None:
    await yard.order("/v1/sync", token="1-ada")
    await yard.order("/v1/sync", token="2-ada")
    await yard.order("/v1/sync", token="1-bob")
    await yard.order("/v1/async", token="1-ada")
    await yard.client.delete("/v1/sync", headers=KEY)
    await yard.client.delete("/v1/sync", headers=KEY)

    assert yard.orders == ["rope", "rope", "rope", "rope", "cleared"]


async def test_a_path_longer_than_an_index_row_has_its_own_keys(yard: Yard) -> None:
    name = secrets.token_hex(4000)  # PostgreSQL compresses text that repeats.
    paths = [f"/v1/berths/{name}{end}" for end in ("a", "b", "a")]

    replies = [await yard.order(path) for path in paths]

    assert [reply.data["number"] for reply in replies] == [1, 2, 1]
    assert yard.orders == ["rope", "rope"]


async def test_somebody_who_asks_under_a_role_that_ended_gets_no_stored_answer(api: Client, db: Database) -> None:
    org = await make_org(db)
    admin = await make_member(db, org, Role.ADMIN)
    token = await make_token(db, admin, org.id)
    body = {"email": "eve@example.com"}
    path = f"/v1/orgs/{org.id}/invitations"
    assert (await api.post(path, json=body, token=token, headers=KEY)).status == 200

    await api.delete(f"/v1/orgs/{org.id}/members/{admin.id}", token=session_for(db, admin))
    again = await api.post(path, json=body, token=token, headers=KEY)

    assert again.status == 401


@pytest.mark.parametrize(("error", "is_kept"), [(Conflict, True), (RuntimeError, False)])
async def test_a_write_that_fails_is_undone_whether_or_not_its_answer_is_kept(
    db: Database, error: type[Exception], is_kept: bool
) -> None:
    router = Router("Lab")

    @router.post("/half")
    def half(tx: Tx) -> None:
        idempotency.begin(tx, idempotency.Claim(9, "the effect", "x", "x", "x"))
        raise error("No, after all")

    await lab(db, router).post("/v1/half", headers=KEY)

    stored = await texts_in_store(db)
    assert "the effect" not in stored
    assert ("No, after all" in stored) is is_kept
    assert ("order-7" in stored) is is_kept


async def test_an_async_write_without_a_body_tells_bodies_apart_all_the_same(yard: Yard) -> None:
    await yard.client.post("/v1/bare", content=b"1", headers=KEY)

    same = await yard.client.post("/v1/bare", content=b"1", headers=KEY)
    other = await yard.client.post("/v1/bare", content=b"2", headers=KEY)

    assert (same.status, other.status) == (200, 409)
    assert yard.orders == ["ada"]


@one_store
@pytest.mark.parametrize("key", ["a", "x" * 255, "with space", '"quoted"', "{}~!"])
async def test_any_printable_key_will_do(yard: Yard, key: str) -> None:
    assert (await yard.order("/v1/sync", key=key)).status == 200


@one_store
@pytest.mark.parametrize("key", ["", "x" * 256, "ü", "a\tb", "a\x00b", "\x7f"])
async def test_any_other_key_is_refused_by_name_and_nothing_happens(yard: Yard, key: str) -> None:
    reply = await yard.order("/v1/sync", key=key)

    assert reply.status == 400
    assert set(reply.error["fields"]) == {"Idempotency-Key"}
    assert yard.orders == []


@one_store
async def test_a_key_on_a_read_means_nothing(api: Client, db: Database) -> None:
    session = session_for(db, await make_user(db))

    reply = await api.get("/v1/orgs", token=session, headers={"Idempotency-Key": ""})

    assert reply.status == 200


@pytest.mark.parametrize("path", ["/v1/long", "/v1/long-outside"])
async def test_a_long_answer_is_not_stored_and_its_repeat_is_a_conflict(yard: Yard, db: Database, path: str) -> None:
    first = await yard.order(path)
    again = await yard.order(path)

    assert (first.status, again.status) == (200, 409)
    assert "too long" in again.error["message"]
    assert yard.orders == ["rope"]
    assert len(await texts_in_store(db)) < idempotency.MAX_ANSWER_BYTES
