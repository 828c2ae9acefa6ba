"""Shared by tests of projects: a user with projects, archives, and a gateway stub."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client, Reply
from tests.products.functions.support import form, zip_of
from tests.products.repositories.support import Checkout

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.gateway import reconciler as keeper
from moorage.gateway.reconciler import Hosts
from moorage.products.repositories import service
from moorage.products.repositories.names import Name
from moorage.products.repositories.storage import Storage

SITE = {"index.html": "<h1>one</h1>", "about.html": "<h1>about</h1>"}


@dataclass(frozen=True)
class Team:
    """An organization, and a client that speaks as one of its members."""

    org_id: int
    api: Client
    db: Database

    async def create(self, name: str = "site", slug: str = "static", **fields: Any) -> Reply:
        body: dict[str, Any] = {"slug": slug, "name": name, "repositoryName": "acme/site", **fields}
        if slug == "container":
            body.setdefault("language", "nodejs")
        return await self.api.post("/v1/projects", json=body)

    async def upload(self, name: str = "site", files: dict[str, str | bytes] | None = None, **options: Any) -> Reply:
        sent = form(zip_of(files or SITE), sent_as="staticFiles", name=name)
        sent["headers"] |= options
        return await self.api.post("/v1/projects/static-upload", **sent)

    async def read(self, name: str = "site") -> Any:
        return (await self.api.get(f"/v1/projects/{name}")).data

    async def deployments(self, name: str = "site") -> list[Any]:
        return list((await self.api.get(f"/v1/projects/{name}/deployments")).data["items"])

    async def status(self, uuid: str) -> Any:
        return (await self.api.get(f"/v1/deployments/{uuid}/status")).data

    async def log(self, uuid: str) -> list[str]:
        """Return the lines of a deployment that has ended."""
        reply = await self.api.get(f"/v1/deployments/{uuid}/logs/stream")
        return [line for line in reply.body.decode().splitlines() if line.startswith("data: ")]

    async def hosts(self) -> Hosts:
        """Return the sites that the gateway should serve."""
        return await self.db.read(keeper.read_hosts)

    async def actions(self, name: str = "site") -> list[str]:
        items = (await self.api.get(f"/v1/projects/{name}/audit-log")).data["items"]
        return [item["action"] for item in items]


async def make_team(app: App, db: Database, *, plan: Plan = Plan.PRO, role: Role = Role.OWNER) -> Team:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=plan)
    user = owner if role is Role.OWNER else await make_member(db, org, role)
    token = await make_token(db, user, org.id)
    return Team(org.id, Client(app.asgi, token=token), db)


async def push(team: Team, work: Checkout) -> None:
    """Put the commits into the built-in git server, as a push to `acme/site` would."""
    storage, name = Storage(team.db.env.settings), Name("acme", "site")
    made = await team.db.write(lambda tx: service.begin_push(tx, team.org_id, name, Actor(None, "Ada")))
    folder = await storage.ensure(made.id)
    await asyncio.to_thread(work.git, "push", str(folder), "--all")
