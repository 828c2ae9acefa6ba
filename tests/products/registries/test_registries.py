"""Credentials of registries through the API: inputs, roles, audit log and the secret."""

from __future__ import annotations

from typing import Any

import pytest
from tests.accounts.identity.support import House, make_house, whole_store
from tests.client import Client, Reply
from tests.conftest import RunJobs

from moorage.accounts.identity.organizations.service import OrganizationDeleted
from moorage.accounts.identity.roles import Role
from moorage.app import App
from moorage.core import jobs
from moorage.core.db.store import Database
from moorage.products.registries.service import MAX_REGISTRIES

pytestmark = pytest.mark.anyio

SECRET = "sesame-3f9c"
BODY = {"host": "Registry.Example.com:5000", "username": "ada", "secret": SECRET}


@pytest.fixture
async def house(db: Database) -> House:
    return await make_house(db)


async def create(api: Client, house: House, role: Role = Role.ADMIN, **given: Any) -> Reply:
    return await api.post("/v1/registries", token=house.tokens[role], json={**BODY, **given})


async def test_credentials_are_stored_and_their_secret_is_never_returned(
    app: App, api: Client, db: Database, house: House
) -> None:
    made = await create(api, house)
    path = f"/v1/registries/{made.data['id']}"

    listed = await api.get("/v1/registries", token=house.tokens[Role.MEMBER])
    read = await api.get(path, token=house.tokens[Role.MEMBER])
    changed = await api.patch(path, token=house.tokens[Role.ADMIN], json={"secret": f"{SECRET}-2", "tokenHost": "a.io"})

    assert made.data | {"createdAt": "", "updatedAt": ""} == {
        "id": made.data["id"], "host": "registry.example.com:5000", "username": "ada", "tokenHost": "",
        "createdAt": "", "updatedAt": "",
    }  # fmt: skip
    assert listed.data == [made.data]
    assert read.data == made.data
    assert (changed.data["username"], changed.data["tokenHost"]) == ("ada", "a.io")
    assert SECRET not in b"".join(each.body for each in (made, listed, read, changed)).decode()
    assert SECRET not in str(await whole_store(db))
    found = await app.products.registries.find_credentials(house.org.id, "registry.example.com:5000")
    assert found is not None
    assert (found.username, found.secret, found.token_host) == ("ada", f"{SECRET}-2", "a.io")


async def test_every_change_is_in_the_audit_log_without_the_secret(api: Client, house: House) -> None:
    path = f"/v1/registries/{(await create(api, house)).data['id']}"
    await api.patch(path, token=house.tokens[Role.ADMIN], json={"username": "eve"})
    await api.delete(path, token=house.tokens[Role.ADMIN])

    feed = await api.get("/v1/activity", token=house.tokens[Role.OWNER])

    assert feed.status == 200
    text = feed.body.decode()
    for action in ("registry.created", "registry.updated", "registry.deleted"):
        assert action in text
    assert SECRET not in text


async def test_members_read_and_admins_write(api: Client, house: House) -> None:
    path = f"/v1/registries/{(await create(api, house)).data['id']}"

    for role, read, write in ((Role.VIEWER, 403, 403), (Role.MEMBER, 200, 403), (Role.ADMIN, 200, 200)):
        token = house.tokens[role]
        assert (await api.get("/v1/registries", token=token)).status == read
        assert (await api.get(path, token=token)).status == read
        assert (await create(api, house, role, host="other.example.com")).status == write
        assert (await api.patch(path, token=token, json={"username": "bob"})).status == write
        assert (await api.delete(path, token=token)).status == write

    assert (await api.get(path, token=house.tokens[Role.OWNER])).status == 404


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"host": "https://registry.example.com"}, "host"),
        ({"host": "registry.example.com/team"}, "host"),
        ({"host": "user@registry.example.com"}, "host"),
        ({"host": "registry"}, "host"),
        ({"host": "registry.example.com:99999"}, "host"),
        ({"host": ""}, "host"),
        ({"username": "a:b"}, "username"),
        ({"username": "a\nb"}, "username"),
        ({"username": ""}, "username"),
        ({"secret": ""}, "secret"),
        ({"secret": "two\r\nlines"}, "secret"),
        ({"tokenHost": "https://a"}, "tokenHost"),
    ],
)
async def test_bad_fields_are_named(api: Client, house: House, given: dict[str, Any], field: str) -> None:
    reply = await create(api, house, **given)

    assert reply.status == 400
    assert set(reply.error["fields"]) == {field}


@pytest.mark.parametrize("name", ["docker.io", "index.docker.io", "REGISTRY-1.docker.io"])
async def test_all_names_of_docker_hub_are_one(api: Client, house: House, name: str) -> None:
    made = await create(api, house, host=name)
    again = await create(api, house, host="docker.io")

    assert made.data["host"] == "docker.io"
    assert again.status == 409


async def test_an_organization_has_a_limited_number(api: Client, house: House) -> None:
    for number in range(MAX_REGISTRIES):
        assert (await create(api, house, host=f"r{number}.example.com")).status == 200

    reply = await create(api, house, host="one.more.example.com")

    assert reply.status == 409
    assert "at most 50 registries" in reply.error["message"]


async def test_another_organization_has_its_own_credentials(app: App, api: Client, db: Database, house: House) -> None:
    await create(api, house)
    other = await make_house(db, name="Other")

    assert await app.products.registries.find_credentials(other.org.id, "registry.example.com:5000") is None
    assert await app.products.registries.find_credentials(house.org.id, "registry.example.com") is None
    assert (await create(api, other, username="eve")).status == 200


async def test_the_credentials_go_with_their_organization(
    app: App, api: Client, db: Database, house: House, run_jobs: RunJobs
) -> None:
    await create(api, house)

    await db.write(lambda tx: jobs.add(tx, OrganizationDeleted(house.org.id)))
    await run_jobs()

    assert await app.products.registries.find_credentials(house.org.id, "registry.example.com:5000") is None
