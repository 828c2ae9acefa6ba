"""Databases over the API: create, read, list, change, delete. No server runs here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.products.databases.support import Team, make_project, make_team

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.audit import service as audit
from moorage.core.db.store import Database
from moorage.core.vault import service as vault
from moorage.products.apps import launching
from moorage.products.projects import service as projects

pytestmark = pytest.mark.anyio

DETAIL = {
    "id", "name", "type", "version", "engineVersion", "engineExact", "engineNote", "status", "statusReason",
    "visibility", "instanceType", "organizationId", "projectId", "region", "backup", "backupsToKeep", "architecture",
    "serverDetails", "diskUsedBytes", "publicUrl", "privateUrl", "connectionDetails", "lastVerifiedRestore",
    "createdAt", "updatedAt",
}  # fmt: skip


async def test_a_new_database_has_the_defaults_and_no_address_yet(team: Team) -> None:
    made = (await team.create()).data

    assert set(made) == DETAIL
    assert (made["name"], made["type"], made["version"], made["status"]) == (
        "orders",
        "postgresql",
        "16.4.0",
        "pending",
    )
    assert (made["visibility"], made["region"], made["backup"], made["architecture"]) == (
        "public",
        "us",
        "disabled",
        "standalone",
    )
    assert made["serverDetails"] == {"cpu": 0.5, "memory": 0.5, "disk": 5}
    assert (made["publicUrl"], made["privateUrl"], made["engineExact"]) == (None, None, None)
    assert made["connectionDetails"]["database"] == "orders"
    assert made["connectionDetails"]["passwordAvailable"] is False
    assert made["organizationId"] == str(team.org_id)
    assert made["backupsToKeep"] is None


async def test_a_running_database_is_found_at_a_masked_address(team: Team) -> None:
    await team.create(username="ada", dbName="harbor", password="correct horse/battery")
    row = await team.set_running()

    read = await team.read()
    strings = (await team.get("/orders/connection-strings")).data

    address = f"postgresql://ada:****@127.0.0.1:{row.port}/harbor"
    assert (read["publicUrl"], read["privateUrl"]) == (address, address)
    assert read["connectionDetails"] == {
        "host": "127.0.0.1",
        "port": row.port,
        "username": "ada",
        "database": "harbor",
        "passwordAvailable": True,
    }
    assert (strings["publicUrl"], strings["privateUrl"]) == (address, address)
    assert (read["engineVersion"], read["engineExact"]) == ("16.4", True)


@pytest.mark.parametrize(
    ("name", "engine", "database"),
    [("mysql", "mysql", "mysql_db"), ("postgres", "postgresql", "postgres_db"), ("my-shop", "mysql", "my_shop")],
)
async def test_the_default_database_is_none_of_the_server_s_own(
    team: Team, name: str, engine: str, database: str
) -> None:
    await team.create(name, type=engine, version="8.4.2" if engine == "mysql" else "16.4.0")

    assert (await team.read(name))["connectionDetails"]["database"] == database


async def test_a_private_database_has_no_public_address(team: Team) -> None:
    await team.create(visibility="private", type="mysql", version="8.4.2")
    row = await team.set_running()

    read = await team.read()

    assert read["publicUrl"] is None
    assert read["privateUrl"] == f"mysql://{row.username}:****@127.0.0.1:{row.port}/orders"


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "Orders"}, "name"),
        ({"name": "-orders"}, "name"),
        ({"name": 7}, "name"),
        ({"type": "mongodb"}, "type"),
        ({"type": "POSTGRESQL"}, "type"),
        ({"version": "15.1.0"}, "version"),
        ({"version": "8.4.2"}, "version"),
        ({"type": "mysql"}, "version"),
        ({"version": 16}, "version"),
        ({"instanceType": "huge"}, "instanceType"),
        ({"visibility": "open"}, "visibility"),
        ({"username": ""}, "username"),
        ({"username": "a" * 64}, "username"),
        ({"username": "postgres"}, "username"),
        ({"username": "moorage"}, "username"),
        ({"username": "pg_monitor"}, "username"),
        ({"username": "a\nb"}, "username"),
        ({"dbName": ""}, "dbName"),
        ({"dbName": "a" * 64}, "dbName"),
        ({"dbName": "template1"}, "dbName"),
        ({"dbName": "mysql"}, "dbName"),
        ({"password": "seven77"}, "password"),
        ({"backup": True}, "backup"),
        ({"architecture": "cluster"}, "architecture"),
        ({"projectId": 0}, "projectId"),
        ({"projectId": "1"}, "projectId"),
    ],
)
async def test_what_does_not_hold_is_refused_by_its_field(team: Team, sent: dict[str, Any], field: str) -> None:
    refused = await team.create(**sent)

    assert (refused.status, refused.error["code"]) == (400, "bad_request")
    assert set(refused.error["fields"]) == {field}


@pytest.mark.parametrize("name", ["harbor\U0001f6a2", "#mysql50#harbor", "harbor "])
@pytest.mark.parametrize("field", ["username", "dbName"])
async def test_names_that_mysql_does_not_store_as_they_are_are_refused(team: Team, field: str, name: str) -> None:
    refused = await team.create(type="mysql", version="8.4.2", **{field: name})

    assert (refused.status, set(refused.error["fields"])) == (400, {field})


@pytest.mark.boundary("code-to-host", "No name of a MySQL database stands for the server's own database.")
async def test_a_mysql_database_cannot_have_the_name_of_the_folder_of_the_servers_own(team: Team) -> None:
    refused = await team.create(type="mysql", version="8.4.2", dbName="#mysql50#mysql")

    assert refused.error["fields"] == {"dbName": "is reserved for the server itself"}


async def test_names_above_the_basic_plane_are_for_postgresql(team: Team) -> None:
    made = await team.create("wide", username="ada\U0001f6a2", dbName="harbor\U0001f6a2")
    basic = await team.create("basic", type="mysql", version="8.4.2", username="zo\u00eb", dbName="\u6e2f")

    assert (made.status, basic.status) == (200, 200)


@pytest.mark.parametrize("missing", ["name", "type", "version", "instanceType"])
async def test_what_is_needed_is_named(team: Team, missing: str) -> None:
    body = {"name": "orders", "type": "postgresql", "version": "16.4.0", "instanceType": "micro"}

    refused = await team.post("", json={key: value for key, value in body.items() if key != missing})

    assert set(refused.error["fields"]) == {missing}


async def test_bounds_are_part_of_what_holds(team: Team) -> None:
    made = await team.create("a" * 63, username="u" * 63, dbName="d" * 63, password="eight888")

    assert made.status == 200


async def test_a_name_is_taken_once_in_an_organization_and_free_in_another(team: Team, stranger: Team) -> None:
    await team.create()

    again, elsewhere = await team.create(), await stranger.create()

    assert (again.status, elsewhere.status) == (409, 200)


@pytest.mark.both_stores
async def test_lists_are_in_pages_newest_first(team: Team, stranger: Team) -> None:
    for name in ("one", "two", "three"):
        await team.create(name, instanceType="free")

    first = (await team.get("?pageSize=2")).data
    second = (await team.get("?pageSize=2&page=2")).data
    beyond, far = [(await team.get(f"?page={page}&pageSize=100")).data for page in (9, 999_999_999_999)]

    assert [item["name"] for item in first["items"]] == ["three", "two"]
    assert [item["name"] for item in second["items"]] == ["one"]
    assert first["total"] == 3
    assert beyond == far == {"items": [], "total": 3}
    assert set(first["items"][0]) == {
        "id", "name", "type", "version", "status", "visibility", "instanceType", "serverDetails", "createdAt",
    }  # fmt: skip
    assert (await stranger.get("")).data == {"items": [], "total": 0}
    assert (await team.get("?pageSize=101")).status == 400


async def test_only_who_may_can_see_the_password_and_it_is_written_down(team: Team, db: Database) -> None:
    await team.create(password="correct horse/battery", username="ada")
    row = await team.set_running()

    refused = await team.get("/orders/password", Role.MEMBER)
    shown = await team.get("/orders/password", Role.ADMIN)

    assert refused.status == 403
    assert shown.headers["cache-control"] == "no-store"
    assert shown.data == {
        "password": "correct horse/battery",
        "publicUrl": f"postgresql://ada:correct%20horse%2Fbattery@127.0.0.1:{row.port}/orders",
        "privateUrl": f"postgresql://ada:correct%20horse%2Fbattery@127.0.0.1:{row.port}/orders",
    }
    feed = await db.read(lambda tx: audit.latest(tx, team.org_id, before=None, most=1))
    assert feed[0].action == "database.password_revealed"


async def test_a_password_is_made_where_none_is_given_and_never_stored_as_it_is(team: Team, db: Database) -> None:
    await team.create()
    await team.set_running()

    password = (await team.get("/orders/password", Role.ADMIN)).data["password"]

    assert re.fullmatch(r"[A-Za-z0-9]{32}", password)
    assert password not in str(await team.read())


@pytest.mark.parametrize(
    ("method", "path", "floor"),
    [
        ("POST", "", Role.MEMBER),
        ("GET", "/orders/password", Role.ADMIN),
        ("POST", "/orders/change-tier", Role.ADMIN),
        ("POST", "/orders/upgrade", Role.ADMIN),
        ("POST", "/orders/rotate-password", Role.ADMIN),
        ("DELETE", "/orders", Role.MEMBER),
    ],
)
async def test_below_its_role_nobody_gets_through(team: Team, method: str, path: str, floor: Role) -> None:
    below = {Role.MEMBER: Role.VIEWER, Role.ADMIN: Role.MEMBER}[floor]
    await team.create()

    refused = await team.api.request(method, f"/v1/databases{path}", token=team.tokens[below], json={})

    assert refused.status == 403


async def test_another_tier_is_asked_for_and_nothing_else_meanwhile(team: Team) -> None:
    await team.create()
    early = await team.post("/orders/change-tier", json={"instanceType": "mini"})
    await team.set_running()

    changing = await team.post("/orders/change-tier", json={"instanceType": "mini", "expectedCurrentTier": "micro"})
    second = await team.post("/orders/change-tier", json={"instanceType": "small"})
    password = await team.post("/orders/rotate-password")

    assert early.status == 409
    assert (changing.status, changing.data["status"]) == (200, "updating")
    assert (second.status, password.status) == (409, 409)


@pytest.mark.parametrize(
    ("sent", "status", "field"),
    [
        ({"instanceType": "micro"}, 409, None),
        ({"instanceType": "mini", "expectedCurrentTier": "small"}, 409, None),
        ({"instanceType": "free"}, 400, "confirmDowngradeToFree"),
        ({"instanceType": "free", "confirmDowngradeToFree": False}, 400, "confirmDowngradeToFree"),
        ({"instanceType": "huge"}, 400, "instanceType"),
        ({}, 400, "instanceType"),
        ({"instanceType": "mini", "confirmDowngradeToFree": "yes"}, 400, "confirmDowngradeToFree"),
    ],
)
async def test_a_tier_that_cannot_be_given_is_refused(
    team: Team, sent: dict[str, Any], status: int, field: str | None
) -> None:
    await team.create()
    await team.set_running()

    refused = await team.post("/orders/change-tier", json=sent)

    assert refused.status == status
    assert field is None or set(refused.error["fields"]) == {field}
    assert (await team.read())["status"] == "running"


async def test_the_former_name_of_changing_a_tier_says_that_it_is_one(team: Team) -> None:
    await team.create()
    await team.set_running()

    changed = await team.post("/orders/upgrade", json={"instanceType": "free", "confirmDowngradeToFree": True})

    assert changed.data["status"] == "updating"
    assert changed.headers["deprecation"].startswith("@")


async def test_deleting_is_asked_for_once(team: Team) -> None:
    await team.create()

    deleted = await team.api.delete("/v1/databases/orders", token=team.tokens[Role.MEMBER])
    again = await team.api.delete("/v1/databases/orders", token=team.tokens[Role.MEMBER])

    assert deleted.json == {"success": True, "data": {"async": True}}
    assert again.status == 200
    assert (await team.read())["status"] == "deleting"


async def test_what_is_not_there_is_not_found(team: Team, stranger: Team) -> None:
    await stranger.create("theirs")

    for path in ("/theirs", "/theirs/connection-strings", "/theirs/metrics", "/theirs/backups"):
        assert (await team.get(path)).status == 404
    assert (await team.post("/theirs/change-tier", json={"instanceType": "mini"})).status == 404
    for unknown in (999_999, 2**63, 10**30):
        assert (await team.create(projectId=unknown)).status == 404


@pytest.mark.settings(billing="manual")
async def test_paid_tiers_and_backups_need_a_paid_plan(app: App, db: Database) -> None:
    unpaid = await make_team(app, db, plan=Plan.FREE)

    assert (await unpaid.create()).status == 402
    assert (await unpaid.create(instanceType="free", backup="enabled")).status == 402
    assert (await unpaid.create(instanceType="free")).status == 200
    assert (await unpaid.create("second", instanceType="free")).status == 402  # The plan allows one.


async def test_backups_need_a_paid_tier(team: Team) -> None:
    assert (await team.create(instanceType="free", backup="enabled")).status == 402
    made = (await team.create(backup="enabled")).data
    assert (made["backup"], made["backupsToKeep"]) == ("enabled", 7)


@pytest.mark.settings(engine_substitution="off")
async def test_what_cannot_be_run_is_refused_and_what_is_there_is_named(team: Team) -> None:
    for version in ("16.4.0", "14.8.0"):
        refused = await team.create(version=version)

        assert refused.status == 400
        assert "installed: PostgreSQL 14.23 and PostgreSQL 16.14;" in refused.error["fields"]["version"]


async def test_a_linked_project_gets_the_address_and_a_way_there(team: Team, db: Database) -> None:
    project_id = await make_project(team, "shop")
    await team.create(password="correct horse", username="ada", projectId=project_id)
    row = await team.row()

    secret = await db.read(lambda tx: vault.find(tx, team.org_id, projects.resource_of(project_id), "DATABASE_URL"))
    rules = await db.read(lambda tx: tx.env.hooks.of(launching.EGRESS)["databases"](tx, team.org_id, project_id))

    assert secret == f"postgresql://ada:correct%20horse@127.0.0.1:{row.port}/orders"
    assert [(each.workload, str(each.address)) for each in rules] == [(f"database-{row.id}", f"127.0.0.1:{row.port}")]
    assert (await team.read())["projectId"] == project_id


async def test_a_second_database_of_a_project_has_its_own_name_there(team: Team, db: Database) -> None:
    project_id = await make_project(team, "shop")
    await team.create("first", projectId=project_id)

    await team.create("second-one", projectId=project_id)

    names = await db.read(lambda tx: vault.names(tx, team.org_id, projects.resource_of(project_id)))
    assert set(names) == {"DATABASE_URL", "DATABASE_URL_SECOND_ONE"}


async def test_a_project_of_somebody_else_cannot_be_linked(team: Team, stranger: Team) -> None:
    theirs = await make_project(stranger, "shop")

    assert (await team.create(projectId=theirs)).status == 404
