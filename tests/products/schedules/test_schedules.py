"""The routes of scheduled functions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client, Reply
from tests.conftest import RunJobs
from tests.products.functions.edge_stand_in import EdgeStandIn, Fate
from tests.products.schedules.support import make_client, make_function, make_schedule, open_runs

from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.jobs import tables as timetable
from moorage.core.kit.clock import MINUTE_MS, ManualClock, to_wire
from moorage.products.functions import service as functions

pytestmark = pytest.mark.anyio

PATH = "/v1/scheduled-functions"


def bad_fields(refused: Reply) -> list[str]:
    assert refused.status == 400, refused.body
    return sorted(refused.error["fields"])


def body(**changes: Any) -> dict[str, Any]:
    return {"name": "nightly", "function": "hello", "cronSchedule": "0 3 * * *", **changes}


@pytest.fixture
async def team(app: App, db: Database) -> tuple[Client, int, int]:
    """A client with all permissions, its organization and a function."""
    client, org_id = await make_client(app.asgi, db)
    return client, org_id, await make_function(db, org_id)


async def test_a_schedule_is_made_with_defaults_and_read_back_the_same(
    team: tuple[Client, int, int], clock: ManualClock
) -> None:
    client, org_id, function_id = team

    made = await client.post(PATH, json=body())
    read = await client.get(f"{PATH}/{made.data['id']}")
    listed = await client.get(PATH)

    assert made.data == {
        "id": made.data["id"],
        "name": "nightly",
        "functionId": function_id,
        "functionName": "hello",
        "organizationId": str(org_id),
        "cronSchedule": "0 3 * * *",
        "timezone": "UTC",
        "enabled": True,
        "params": {},
        "lastRunAt": None,
        "nextRunAt": "2026-01-01T03:00:00.000Z",
        "lastStatus": None,
        "lastError": None,
        "totalRuns": 0,
        "createdAt": to_wire(clock.now()),
        "updatedAt": to_wire(clock.now()),
    }
    assert read.data == made.data
    assert listed.data == [made.data]


async def test_the_list_is_in_the_order_they_were_made(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    for name in ("c", "a", "b"):
        await client.post(PATH, json=body(name=name))

    listed = await client.get(PATH)

    assert [each["name"] for each in listed.data] == ["c", "a", "b"]


async def test_a_function_is_named_by_its_id_or_its_name_and_digits_in_quotes_are_a_name(
    db: Database, team: tuple[Client, int, int]
) -> None:
    client, org_id, first = team
    second = await make_function(db, org_id, name=str(first))

    by_id = await client.post(PATH, json=body(name="by-id", function=first))
    by_name = await client.post(PATH, json=body(name="by-name", function=str(first)))

    assert by_id.data["functionId"] == first
    assert by_name.data["functionId"] == second


async def test_an_unknown_function_is_not_found(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    unknown = ["nobody", 987654, 2**63, 2**80, "x" * 500]

    refused = [await client.post(PATH, json=body(function=function)) for function in unknown]

    assert [(answer.status, answer.error["code"]) for answer in refused] == [(404, "not_found")] * 5
    assert (await client.get(PATH)).data == []


async def test_the_function_of_another_organization_is_not_found(
    db: Database, app: App, team: tuple[Client, int, int]
) -> None:
    _, _, function_id = team
    stranger, _ = await make_client(app.asgi, db)

    by_id = await stranger.post(PATH, json=body(function=function_id))
    by_name = await stranger.post(PATH, json=body(function="hello"))

    assert (by_id.status, by_name.status) == (404, 404)


async def test_what_cannot_name_a_function_is_a_bad_field(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    wrong: list[Any] = [0, -1, 1.5, True, None, "", [], {"id": 1}]
    for function in wrong:
        refused = await client.post(PATH, json=body(function=function))

        assert bad_fields(refused) == ["function"], function


async def test_names_at_their_bounds_are_taken(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    for name in ("a", "0", "a" * 63, "a-b", "9-9"):
        made = await client.post(PATH, json=body(name=name))

        assert made.data["name"] == name


async def test_names_outside_their_bounds_are_a_bad_field(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    for name in ("", "a" * 64, "-a", "a-", "A", "a_b", "a b", "a\n", "é", 5, None):
        refused = await client.post(PATH, json=body(name=name))

        assert bad_fields(refused) == ["name"], name


BAD_CRONS = ("", "* * * *", "* * * * * *", "61 * * * *", "0 0 31 2 *", "@never", "0 0 * * *" + " " * 112, 5, None)


async def test_a_bad_cron_expression_is_a_bad_field(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    for cron in BAD_CRONS:
        on_create = await client.post(PATH, json=body(name="other", cronSchedule=cron))
        on_update = await client.patch(f"{PATH}/{made.data['id']}", json={"cronSchedule": cron})

        assert bad_fields(on_create) == bad_fields(on_update) == ["cronSchedule"], cron


async def test_a_cron_expression_is_kept_as_it_was_given(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    for number, cron in enumerate(("@hourly", "@daily", "*/5 9-17 * * MON-FRI", "0 0 1,15 * *")):
        made = await client.post(PATH, json=body(name=f"n{number}", cronSchedule=cron))

        assert made.data["cronSchedule"] == cron


async def test_a_bad_time_zone_is_a_bad_field(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    for zone in ("", "Mars/Olympus", "../etc/passwd", "x" * 65, 5, None):
        on_create = await client.post(PATH, json=body(name="other", timezone=zone))
        on_update = await client.patch(f"{PATH}/{made.data['id']}", json={"timezone": zone})

        assert bad_fields(on_create) == bad_fields(on_update) == ["timezone"], zone


async def test_all_bad_fields_are_named_at_once(team: tuple[Client, int, int]) -> None:
    client, _, _ = team

    refused = await client.post(PATH, json={"cronSchedule": "x", "timezone": "x", "enabled": "yes", "params": []})

    assert sorted(refused.error["fields"]) == ["cronSchedule", "enabled", "function", "name", "params", "timezone"]


async def test_times_are_those_of_the_time_zone(team: tuple[Client, int, int]) -> None:
    client, _, _ = team

    made = await client.post(PATH, json=body(timezone="Asia/Tokyo"))

    assert made.data["nextRunAt"] == "2026-01-01T18:00:00.000Z"


async def test_params_come_in_under_either_name_and_go_out_as_params(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    deep = {"a": [1, 2.5, None, {"é": "\\u"}], "big": 2**70, "": {}}

    made = await client.post(PATH, json=body(params=deep))
    aliased = await client.post(PATH, json=body(name="aliased", payload={"n": 1}))
    both = await client.post(PATH, json=body(name="both", payload={"n": 1}, params={"n": 2}))
    changed = await client.patch(f"{PATH}/{made.data['id']}", json={"payload": {"n": 3}})

    assert made.data["params"] == deep
    assert aliased.data["params"] == {"n": 1}
    assert both.data["params"] == {"n": 2}
    assert changed.data["params"] == {"n": 3}


@pytest.mark.parametrize("field", ["params", "payload"])
async def test_params_that_are_no_object_are_a_bad_field(team: tuple[Client, int, int], field: str) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    wrong: list[Any] = [[], "x", 1, None]
    for value in wrong:
        on_create = await client.post(PATH, json=body(name="other", **{field: value}))
        on_update = await client.patch(f"{PATH}/{made.data['id']}", json={field: value})

        assert bad_fields(on_create) == bad_fields(on_update) == [field], value


async def test_a_name_is_taken_once_in_an_organization(db: Database, app: App, team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    other, other_org = await make_client(app.asgi, db)
    await make_function(db, other_org)
    await client.post(PATH, json=body())

    again = await client.post(PATH, json=body())
    elsewhere = await other.post(PATH, json=body())

    assert (again.status, again.error["code"]) == (409, "conflict")
    assert elsewhere.status == 200


async def test_a_change_sets_only_what_was_sent(team: tuple[Client, int, int], clock: ManualClock) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body(params={"n": 1}))
    path = f"{PATH}/{made.data['id']}"
    clock.advance(1_000)

    same = await client.patch(path, json={})
    off = await client.patch(path, json={"enabled": False, "unknown": "ignored"})
    refused = await client.patch(path, json={"enabled": True, "name": "other", "lastStatus": "success"})
    moved = await client.patch(path, json={"cronSchedule": "30 4 * * *", "timezone": "Europe/Paris"})
    on = await client.patch(path, json={"enabled": True})

    assert {**same.data, "updatedAt": made.data["updatedAt"]} == made.data
    assert (off.data["enabled"], off.data["nextRunAt"], off.data["name"]) == (False, None, "nightly")
    assert set(refused.error["fields"]) == {"name", "lastStatus"}
    assert (moved.data["cronSchedule"], moved.data["timezone"]) == ("30 4 * * *", "Europe/Paris")
    assert (moved.data["enabled"], moved.data["nextRunAt"]) == (False, None)
    assert (on.data["nextRunAt"], on.data["params"]) == ("2026-01-01T03:30:00.000Z", {"n": 1})
    assert on.data["updatedAt"] == to_wire(clock.now())


async def test_the_function_of_a_schedule_cannot_be_changed(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    path = f"{PATH}/{made.data['id']}"

    refused = await client.patch(path, json={"function": "other", "functionId": 7, "functionName": "other"})

    message = f"cannot be changed here; use DELETE {path} and POST {PATH}"
    assert refused.status == 400
    assert refused.error["fields"] == dict.fromkeys(("function", "functionId", "functionName"), message)


async def test_a_schedule_that_is_made_switched_off_has_no_next_run(team: tuple[Client, int, int]) -> None:
    client, _, _ = team

    made = await client.post(PATH, json=body(enabled=False))

    assert (made.data["enabled"], made.data["nextRunAt"]) == (False, None)


async def test_a_deleted_schedule_is_gone_and_its_name_is_free(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    path = f"{PATH}/{made.data['id']}"

    deleted = await client.delete(path)
    answers = [await client.get(path), await client.patch(path, json={}), await client.delete(path)]
    answers.append(await client.post(f"{path}/run"))
    again = await client.post(PATH, json=body())

    assert deleted.json == {"success": True}
    assert [answer.status for answer in answers] == [404] * 4
    assert again.data["id"] != made.data["id"]


async def test_an_id_that_names_nothing_is_not_found(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    for id_ in ("abc", "0", "-1", "01", "99999999999999999999", "987654"):
        read = await client.get(f"{PATH}/{id_}")
        run = await client.post(f"{PATH}/{id_}/run")

        assert (read.status, run.status) == (404, 404), id_


async def test_the_schedules_of_others_are_not_found(db: Database, app: App, team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    stranger, _ = await make_client(app.asgi, db)
    made = await client.post(PATH, json=body())
    path = f"{PATH}/{made.data['id']}"

    answers = [await stranger.get(path), await stranger.patch(path, json={"enabled": False})]
    answers += [await stranger.delete(path), await stranger.post(f"{path}/run")]

    assert [answer.status for answer in answers] == [404] * 4
    assert (await stranger.get(PATH)).data == []
    assert (await client.get(path)).data == made.data


async def test_viewers_read_and_only_members_write(db: Database, app: App) -> None:
    org = await make_org(db)
    await make_function(db, org.id)
    viewer = await make_member(db, org, Role.VIEWER)
    member = await make_member(db, org, Role.MEMBER)
    reads = Client(app.asgi, token=await make_token(db, viewer, org.id))
    writes = Client(app.asgi, token=await make_token(db, member, org.id))
    made = await writes.post(PATH, json=body())
    path = f"{PATH}/{made.data['id']}"

    refused = [await reads.post(PATH, json=body(name="x")), await reads.patch(path, json={})]
    refused += [await reads.delete(path), await reads.post(f"{path}/run")]

    assert [answer.status for answer in refused] == [403] * 4
    assert (await reads.get(path)).data == made.data


async def test_deleting_a_function_deletes_its_schedules_at_once(db: Database, team: tuple[Client, int, int]) -> None:
    client, org_id, _ = team
    await make_function(db, org_id, name="other")
    await client.post(PATH, json=body())
    kept = await client.post(PATH, json=body(name="kept", function="other"))

    await db.write(lambda tx: functions.delete(tx, org_id, THE_PLATFORM, "hello"))

    assert (await client.get(PATH)).data == [kept.data]
    assert await db.read(lambda tx: tx.find(timetable.NEXT_TICK, skipped="", also_skipped="")) is not None


@pytest.mark.usefixtures("impatient")
async def test_deleting_an_organization_deletes_its_schedules(db: Database, app: App, run_jobs: RunJobs) -> None:
    owner = await make_user(db)
    org = await make_org(db, owner)
    await make_function(db, org.id)
    await make_schedule(db, org.id)
    client = Client(app.asgi, token=await make_token(db, owner, org.id))

    await client.delete(f"/v1/orgs/{org.id}")
    await run_jobs()

    due = await db.read(lambda tx: tx.all(timetable.DUE, now=2**62, most=100, skipped="", also_skipped=""))
    assert [entry for entry in due if entry.kind == "schedule"] == []


async def test_what_happens_to_a_schedule_is_in_the_activity_feed(team: tuple[Client, int, int]) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    await client.patch(f"{PATH}/{made.data['id']}", json={"enabled": False})
    await client.delete(f"{PATH}/{made.data['id']}")

    feed = await client.get("/v1/activity")

    assert [entry["action"] for entry in feed.data["items"][:3]] == [
        "schedule.deleted",
        "schedule.updated",
        "schedule.created",
    ]


async def test_a_run_answers_with_the_outcome_and_is_counted_by_then(
    live_app: App, team: tuple[Client, int, int], edge: EdgeStandIn, clock: ManualClock
) -> None:
    client, _, function_id = team
    made = await client.post(PATH, json=body(enabled=False, params={"n": 1}))
    path = f"{PATH}/{made.data['id']}"
    edge.fate = lambda call: Fate(result={"statusCode": 200, "body": "é"})
    clock.advance(MINUTE_MS)

    ran = await client.post(f"{path}/run")
    read = await client.get(path)

    assert ran.data == {
        "status": "success",
        "result": {"statusCode": 200, "body": "é"},
        "error": None,
        "durationMs": 5.0,
        "version": 1,
        "activationId": edge.calls[0]["activation"],
    }
    assert (edge.calls[0]["function"], edge.calls[0]["params"]) == (function_id, {"n": 1})
    assert (read.data["totalRuns"], read.data["lastStatus"]) == (1, "success")
    assert read.data["lastRunAt"] == to_wire(clock.now())
    assert read.data["nextRunAt"] is None


async def test_a_run_of_a_function_that_fails_is_a_success_on_the_wire(
    live_app: App, team: tuple[Client, int, int], edge: EdgeStandIn
) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    path = f"{PATH}/{made.data['id']}"
    edge.fate = lambda call: Fate(error="it broke")

    ran = await client.post(f"{path}/run")
    read = await client.get(path)

    assert (ran.status, ran.data["status"], ran.data["result"], ran.data["error"]) == (200, "error", None, "it broke")
    assert (read.data["lastStatus"], read.data["lastError"]) == ("error", "it broke")
    assert read.data["nextRunAt"] == made.data["nextRunAt"]


async def test_a_run_past_a_full_queue_is_refused_and_not_counted(
    db: Database, live_app: App, team: tuple[Client, int, int], edge: EdgeStandIn
) -> None:
    client, _, _ = team
    made = await client.post(PATH, json=body())
    path = f"{PATH}/{made.data['id']}"
    edge.fate = lambda call: Fate(refusal=429)

    refused = await client.post(f"{path}/run")

    assert (refused.status, refused.error["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 0
    assert (await client.get(path)).data["totalRuns"] == 0
    assert await open_runs(db) == []
