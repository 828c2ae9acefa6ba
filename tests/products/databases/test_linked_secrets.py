"""Secrets of a database link: for admins only, until a member replaces them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client import Reply
from tests.products.databases.support import Team, make_project

from moorage.accounts.identity.roles import Role
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.products.databases import linking
from moorage.products.databases.servers import PASSWORD
from moorage.products.projects import service as projects

pytestmark = pytest.mark.anyio


async def reveal(team: Team, role: Role, name: str = "DATABASE_URL") -> Reply:
    path = "/v1/projects/shop/secrets/reveal"
    return await team.api.post(path, token=team.tokens[role], json={"name": name})


async def set_secrets(team: Team, *secrets: Any) -> None:
    body = {"secrets": list(secrets)}
    reply = await team.api.patch("/v1/projects/shop", token=team.tokens[Role.MEMBER], json=body)
    assert reply.status == 200, reply.body


async def rotate(team: Team, db: Store, password: str) -> None:
    row = await team.row()

    def unit(tx: Tx) -> None:
        vault.put(tx, team.org_id, row.resource, PASSWORD, password)
        linking.update_secret(tx, team.org_id, row)

    await db.write(unit)


@pytest.mark.boundary("role-to-role", "Only admins reveal a project's secret that a database link made.")
async def test_a_linked_secret_is_revealed_to_admins_only(team: Team, db: Store) -> None:
    await team.create(password="correct-horse", projectId=await make_project(team, "shop"))

    refused = await reveal(team, Role.MEMBER)
    shown = await reveal(team, Role.ADMIN)
    await rotate(team, db, "battery-staple")
    again = await reveal(team, Role.MEMBER)

    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert "admin" in refused.error["message"]
    assert b"correct-horse" not in refused.body
    assert "correct-horse" in shown.data["value"]
    assert again.status == 403


async def test_an_own_value_makes_a_linked_secret_an_ordinary_one(team: Team, db: Store) -> None:
    await team.create(password="correct-horse", projectId=await make_project(team, "shop"))

    await set_secrets(team, {"name": "DATABASE_URL", "value": "postgresql://elsewhere/"})
    await rotate(team, db, "battery-staple")

    assert (await reveal(team, Role.MEMBER)).data["value"] == "postgresql://elsewhere/"


async def test_a_bare_name_in_an_update_keeps_a_linked_secret_linked(team: Team) -> None:
    await team.create(password="correct-horse", projectId=await make_project(team, "shop"))

    await set_secrets(team, {"name": "DATABASE_URL"}, {"name": "TOKEN", "value": "own"})

    assert (await reveal(team, Role.MEMBER)).status == 403
    assert (await reveal(team, Role.MEMBER, "TOKEN")).data["value"] == "own"


async def test_a_link_that_was_removed_is_made_again_as_a_linked_secret(team: Team, db: Store) -> None:
    project_id = await make_project(team, "shop")
    await team.create(password="correct-horse", projectId=project_id)
    row = await team.row()
    resource = projects.resource_of(project_id)

    await db.write(lambda tx: linking.unlink(tx, team.org_id, row))
    removed = await db.read(lambda tx: vault.names(tx, team.org_id, resource))
    await db.write(lambda tx: linking.update_secret(tx, team.org_id, row))

    assert removed == []
    assert (await reveal(team, Role.MEMBER)).status == 403
