"""The function API: create, read, update, deploy, roll back and delete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.core.http.lab import one_store
from tests.products.functions.edge_stand_in import EdgeStandIn
from tests.products.functions.support import (
    NODE,
    PYTHON,
    Team,
    actions,
    code_folders,
    form,
    make_team,
    references,
    zip_of,
)

from moorage import app as application
from moorage.accounts.plans.service import ALLOWANCES, Plan
from moorage.app import App
from moorage.core.db.store import Database
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.runtime.workers import runtimes

pytestmark = pytest.mark.anyio


async def test_a_function_is_made_with_the_defaults(team: Team, gateway: EdgeStandIn, db: Database) -> None:
    reply = await team.api.post("/v1/functions", **form(zip_of(NODE), name="hello"))

    made = reply.data
    assert made == {
        "id": made["id"],
        "name": "hello",
        "runtime": runtimes.resolve("nodejs"),
        "timeout": 60_000,
        "memory": 256,
        "organizationId": str(team.org_id),
        "currentVersion": 1,
        "description": None,
        "namespace": f"org-{team.org_id}",
        "endpoint": "/v1/functions/hello/invoke",
        "env": [],
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "network": "internet",
        "rawHttp": False,
        "handleOptions": False,
        "url": f"http://org-{team.org_id}.localhost:{db.env.settings.edge_port}/default/hello",
        "sandbox": "on",
    }
    assert (await team.api.get("/v1/functions/hello")).data == made
    assert await actions(team) == ["function.created"]


async def test_every_field_of_the_form_counts_and_the_gateway_knows_it_by_the_answer(
    team: Team, gateway: EdgeStandIn
) -> None:
    env = [{"name": "GREETING", "value": "ahoy"}, {"name": "EMPTY", "value": ""}]

    reply = await team.create(
        timeout="1000",
        memory="128",
        description="says hello",
        env=json.dumps(env),
        network="none",
        rawHttp="true",
        handleOptions="1",
    )

    made = reply.data
    assert (made["timeout"], made["memory"], made["description"]) == (1000, 128, "says hello")
    assert (made["env"], made["network"], made["rawHttp"], made["handleOptions"]) == (env, "none", True, True)
    (route,) = gateway.routes.values()
    assert route == {
        "id": made["id"],
        "org": str(team.org_id),
        "name": "hello",
        "revision": 1,
        "version": 1,
        "runtime": runtimes.resolve("python"),
        "digest": route["digest"],
        "main": "main.py",
        "timeout_ms": 1000,
        "memory_mb": 128,
        "env": [["GREETING", "ahoy"], ["EMPTY", ""]],
        "network": "none",
        "raw_http": True,
        "own_options": True,
        "secrets": [],
    }


@pytest.mark.parametrize("sent_as", ["code", "file"])
async def test_the_archive_comes_as_code_or_as_file(team: Team, sent_as: str) -> None:
    assert (await team.upload(zip_of(PYTHON), sent_as=sent_as)).status == 200


@one_store
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "a"),
        ("name", "a" * 63),
        ("name", "0-0"),
        ("timeout", "1000"),
        ("timeout", "900000"),
        ("memory", "128"),
        ("memory", "2048"),
        ("description", ""),
        ("description", "x" * 500),
        ("description", "é" * 500),
        ("env", "[]"),
        ("env", json.dumps([{"name": "N" * 255, "value": ""}])),
        ("env", json.dumps([{"name": "ABCD", "value": "x" * (64 * 1024 - 4)}])),
        ("env", json.dumps([{"name": "A", "value": "1", "extra": True}])),
        ("env", json.dumps([{"name": "__OWN", "value": "1"}, {"name": "a b.c", "value": "é"}])),
        ("network", "internet"),
        ("rawHttp", "false"),
        ("handleOptions", "0"),
        ("runtime", runtimes.resolve("python")),
        ("somethingElse", "ignored"),
    ],
)
async def test_a_value_at_its_bound_is_taken(team: Team, field: str, value: str) -> None:
    reply = await team.upload(zip_of(PYTHON), **{"name": "hello", field: value})

    assert reply.status == 200, reply.body


@one_store
@pytest.mark.parametrize(
    ("field", "value", "at"),
    [
        ("name", "", "name"),
        ("name", "a" * 64, "name"),
        ("name", "-a", "name"),
        ("name", "a-", "name"),
        ("name", "Hello", "name"),
        ("name", "a_b", "name"),
        ("name", "a.b", "name"),
        ("name", "a\n", "name"),
        ("runtime", "ruby", "runtime"),
        ("runtime", "nodejs:4", "runtime"),
        ("runtime", "", "runtime"),
        ("timeout", "999", "timeout"),
        ("timeout", "900001", "timeout"),
        ("timeout", "6e4", "timeout"),
        ("timeout", " 60000", "timeout"),
        ("timeout", "60000.0", "timeout"),
        ("timeout", "", "timeout"),
        ("timeout", "٦٠٠٠٠", "timeout"),
        ("timeout", "9" * 400, "timeout"),
        ("memory", "127", "memory"),
        ("memory", "2049", "memory"),
        ("memory", "1.5", "memory"),
        ("memory", "-256", "memory"),
        ("description", "x" * 501, "description"),
        ("network", "lan", "network"),
        ("rawHttp", "yes", "rawHttp"),
        ("handleOptions", "", "handleOptions"),
        ("env", "", "env"),
        ("env", "not json", "env"),
        ("env", "{}", "env"),
        ("env", '{"A": "1"}', "env"),
        ("env", '"A=1"', "env"),
        ("env", "null", "env"),
        ("env", '["A=1"]', "env[0]"),
        ("env", '[{"name": "A"}]', "env[0].value"),
        ("env", '[{"value": "1"}]', "env[0].name"),
        ("env", '[{"name": "A", "value": 1}]', "env[0].value"),
        ("env", '[{"name": 1, "value": "1"}]', "env[0].name"),
        ("env", '[{"name": "A", "value": null}]', "env[0].value"),
        ("env", '[{"name": "", "value": ""}]', "env[0].name"),
        ("env", '[{"name": "A", "value": ""}, {"name": "A=B", "value": ""}]', "env[1].name"),
        ("env", '[{"name": "A\\u0000", "value": ""}]', "env"),
        ("env", '[{"name": "A", "value": "", "name": "B"}]', "env"),
        ("env", json.dumps([{"name": "N" * 256, "value": ""}]), "env[0].name"),
        ("env", json.dumps([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]), "env[1].name"),
        ("env", '[{"name": "__OW_ACTION_NAME", "value": ""}]', "env[0].name"),
        ("env", '[{"name": "__ow_method", "value": ""}]', "env[0].name"),
        ("env", json.dumps([{"name": "ABCD", "value": "x" * (64 * 1024 - 3)}]), "env"),
        ("env", json.dumps([{"name": "ABCD", "value": "é" * (32 * 1024 - 1)}]), "env"),
    ],
)
async def test_a_value_past_its_bound_is_refused_with_its_field(
    team: Team, db: Database, field: str, value: str, at: str
) -> None:
    reply = await team.upload(zip_of(PYTHON), **{"name": "hello", field: value})

    assert (reply.status, reply.error["code"], list(reply.error["fields"])) == (400, "bad_request", [at])
    assert (await team.api.get("/v1/functions")).data == {"items": [], "total": 0}


@one_store
async def test_an_unknown_runtime_is_told_what_is_installed(team: Team) -> None:
    reply = await team.create(runtime="python:2.7")

    assert all(name in reply.error["fields"]["runtime"] for name in runtimes.installed())


@one_store
async def test_all_bad_fields_are_named_at_once(team: Team) -> None:
    reply = await team.api.post(
        "/v1/functions", **form(None, name="-", runtime="cobol", timeout="soon", env='[{"name": "__OW_X"}]')
    )

    named = set(reply.error["fields"])
    assert named == {"code", "name", "runtime", "timeout", "env[0].name", "env[0].value"}


@one_store
@pytest.mark.parametrize("sent", [{"name": "hello"}, {"name": "hello", "code": "text and no file"}])
async def test_without_a_file_the_field_code_is_named(team: Team, sent: dict[str, str]) -> None:
    created = await team.api.post("/v1/functions", **form(None, **sent))
    await team.create("there")
    deployed = await team.api.post("/v1/functions/there/deploy", **form(None, **sent))

    assert (created.status, list(created.error["fields"])) == (400, ["code"])
    assert (deployed.status, list(deployed.error["fields"])) == (400, ["code"])


@one_store
async def test_a_form_that_is_none_is_refused(team: Team) -> None:
    assert (await team.api.post("/v1/functions", json={"name": "hello"})).status == 400


async def test_a_taken_name_is_a_conflict_and_another_organization_may_have_it(
    team: Team, app: App, db: Database
) -> None:
    await team.create()
    other = await make_team(app.asgi, db)

    assert (await team.create()).error["code"] == "conflict"
    assert (await other.create()).status == 200
    assert (await team.api.get("/v1/functions")).data["total"] == 1


@one_store
async def test_the_name_of_another_route_is_reserved(team: Team) -> None:
    assert (await team.create("token")).status == 409


async def test_of_many_who_create_the_same_name_at_once_one_wins(team: Team, db: Database) -> None:
    replies = await asyncio.gather(*(team.create(files={"main.py": f"x = {n}"}) for n in range(4)))

    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409]
    assert [owner.partition(":version")[2] for _, owner, _ in await references(db)] == [":1"]


async def test_functions_are_listed_by_pages_newest_first(team: Team, app: App, db: Database) -> None:
    for number in range(3):
        await team.create(f"f{number}")
    await (await make_team(app.asgi, db)).create("strange")

    first = (await team.api.get("/v1/functions?pageSize=2")).data
    second = (await team.api.get("/v1/functions?pageSize=2&page=2")).data
    past, far = [(await team.api.get(f"/v1/functions?page={page}&pageSize=100")).data for page in (9, 10**12 - 1)]

    assert [item["name"] for item in first["items"] + second["items"]] == ["f2", "f1", "f0"]
    assert (first["total"], second["total"]) == (3, 3)
    assert past == far == {"items": [], "total": 3}
    assert set(first["items"][0]) == {
        "id",
        "name",
        "runtime",
        "currentVersion",
        "endpoint",
        "createdAt",
        "updatedAt",
    }


@one_store
@pytest.mark.parametrize("query", ["page=0", "pageSize=0", "pageSize=101", "page=x", "pageSize=1.5"])
async def test_a_page_out_of_range_is_refused(team: Team, query: str) -> None:
    reply = await team.api.get(f"/v1/functions?{query}")

    assert (reply.status, list(reply.error["fields"])) == (400, [query.partition("=")[0]])


async def test_the_function_token_is_shown_masked_only(team: Team) -> None:
    token = (await team.api.get("/v1/functions/token")).data["token"]

    assert (len(token), token[:7]) == (11, "fnk_...")


async def test_settings_are_changed_one_by_one(team: Team, gateway: EdgeStandIn, clock: ManualClock) -> None:
    await team.create(env='[{"name": "A", "value": "1"}]', description="old")
    clock.advance(MINUTE_MS)

    async def change(**body: Any) -> dict[str, Any]:
        changed: dict[str, Any] = (await team.api.patch("/v1/functions/hello", json=body)).data
        return changed

    assert (await change(timeout=900_000))["timeout"] == 900_000
    assert (await change(memory=2048))["memory"] == 2048
    assert (await change(description=None))["description"] is None
    assert (await change(env=[{"name": "B", "value": "2"}]))["env"] == [{"name": "B", "value": "2"}]
    assert (await change(network="none"))["network"] == "none"
    assert (await change(rawHttp=True))["rawHttp"] is True
    assert (await change(handleOptions=True))["handleOptions"] is True
    last = await change(unknown=1)
    assert (last["timeout"], last["memory"], last["updatedAt"]) == (900_000, 2048, "2026-01-01T00:01:00.000Z")
    (route,) = gateway.routes.values()
    assert (route["revision"], route["version"], route["env"], route["own_options"]) == (8, 1, [["B", "2"]], True)


async def test_an_update_of_nothing_changes_nothing(team: Team, clock: ManualClock) -> None:
    before = (await team.create()).data
    clock.advance(MINUTE_MS)

    assert (await team.api.patch("/v1/functions/hello", json={})).data == before
    assert await actions(team) == ["function.created"]


@one_store
@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({"timeout": 999}, "timeout"),
        ({"timeout": 900_001}, "timeout"),
        ({"timeout": "60000"}, "timeout"),
        ({"timeout": 60000.5}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"memory": 127}, "memory"),
        ({"memory": 2049}, "memory"),
        ({"memory": True}, "memory"),
        ({"description": "x" * 501}, "description"),
        ({"description": 1}, "description"),
        ({"env": {}}, "env"),
        ({"env": "[]"}, "env"),
        ({"env": None}, "env"),
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "1"}]}, "env[1].name"),
        ({"env": [{"name": "__OW_X", "value": "1"}]}, "env[0].name"),
        ({"env": [{"name": "A"}]}, "env[0].value"),
        ({"network": "lan"}, "network"),
        ({"rawHttp": "true"}, "rawHttp"),
        ({"handleOptions": 1}, "handleOptions"),
    ],
)
async def test_an_update_past_a_bound_is_refused_with_its_field(team: Team, body: dict[str, Any], at: str) -> None:
    before = (await team.create()).data

    reply = await team.api.patch("/v1/functions/hello", json=body)

    assert (reply.status, list(reply.error["fields"])) == (400, [at])
    assert (await team.api.get("/v1/functions/hello")).data == before


@pytest.mark.settings(billing="manual")
async def test_a_plan_allows_so_many_functions(app: App, db: Database, gateway: EdgeStandIn) -> None:
    team = await make_team(app.asgi, db, plan=Plan.FREE)
    most = ALLOWANCES[Plan.FREE]["functions"]
    for number in range(most):
        assert (await team.create(f"f{number}")).status == 200

    over = await team.create("over")

    assert (over.status, over.error["code"]) == (402, "quota_exceeded")
    assert (await team.api.get("/v1/usage")).data["usage"]["functions"]["used"] == most
    assert (await team.deploy("f0")).status == 200


async def test_a_key_makes_a_repeated_creation_take_effect_once(team: Team) -> None:
    sent = form(zip_of(PYTHON), name="hello", runtime="python")
    sent["headers"]["Idempotency-Key"] = "one"
    other = form(zip_of(PYTHON), name="other", runtime="python")
    other["headers"]["Idempotency-Key"] = "one"

    first, again = await team.api.post("/v1/functions", **sent), await team.api.post("/v1/functions", **sent)
    clash = await team.api.post("/v1/functions", **other)

    assert (first.status, again.status, clash.status) == (200, 200, 409)
    assert (again.body, again.headers["idempotency-replayed"]) == (first.body, "true")
    assert (await team.api.get("/v1/functions")).data["total"] == 1


async def test_a_key_makes_a_repeated_deployment_one_version(team: Team) -> None:
    await team.create()
    sent = form(zip_of(PYTHON))
    sent["headers"]["Idempotency-Key"] = "one"

    for _ in range(2):
        assert (await team.api.post("/v1/functions/hello/deploy", **sent)).data["currentVersion"] == 2

    assert await team.versions() == [2, 1]


@pytest.mark.usefixtures("impatient")
async def test_without_a_gateway_a_change_is_made_all_the_same(app: App, db: Database) -> None:
    team = await make_team(app.asgi, db)

    made = await team.create()
    await app.products.functions.edge.close()

    assert made.status == 200
    assert len(code_folders(db.env.settings)) == 1


async def test_what_a_user_should_know_about_the_sandbox_stands_in_the_detail(
    db: Database, gateway: EdgeStandIn
) -> None:
    built = application.build(db, Telemetry(quiet=True), sandbox_state=lambda: "off: this machine cannot sandbox")
    team = await make_team(built.asgi, db)

    made = await team.create()
    await built.close()

    assert made.data["sandbox"] == "off: this machine cannot sandbox"
