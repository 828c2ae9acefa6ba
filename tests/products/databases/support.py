"""An organization with databases, over the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client, Reply

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan, Standing
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database as Store
from moorage.core.db.tx import Tx, move
from moorage.products.databases import service
from moorage.products.databases.servers import add_server
from moorage.products.databases.states import DATABASE, DatabaseStatus
from moorage.products.databases.tables import Database
from moorage.products.projects import service as projects
from moorage.products.projects.service import NewProject

UP = (DatabaseStatus.QUEUED, DatabaseStatus.DEPLOYING, DatabaseStatus.RUNNING)


@dataclass
class Team:
    api: Client
    db: Store
    org_id: int
    tokens: dict[Role, str]

    async def create(self, name: str = "orders", **given: Any) -> Reply:
        usual = {"name": name, "type": "postgresql", "version": "16.4.0", "instanceType": "micro"}
        body = {key: value for key, value in {**usual, **given}.items() if value is not None}
        return await self.post("", json=body)

    async def get(self, path: str, role: Role = Role.MEMBER) -> Reply:
        return await self.api.get(f"/v1/databases{path}", token=self.tokens[role])

    async def post(self, path: str, role: Role = Role.OWNER, **options: Any) -> Reply:
        return await self.api.post(f"/v1/databases{path}", token=self.tokens[role], **options)

    async def read(self, name: str = "orders") -> Any:
        return (await self.get(f"/{name}")).data

    async def row(self, name: str = "orders") -> Database:
        return await self.db.read(lambda tx: service.get(tx, self.org_id, name))

    async def set_running(self, name: str = "orders") -> Database:
        """Mark a database as running, without a server."""

        def unit(tx: Tx) -> Database:
            found = service.get(tx, self.org_id, name)
            for status in UP[:-1]:
                move(tx, DATABASE, found, to=status)
            move(tx, DATABASE, found, to=UP[-1], running_since=tx.now, engine_version="16.4", engine_exact=True)
            add_server(tx, self.org_id, found.id, "primary", "s1", found.port)
            return service.get(tx, self.org_id, name)

        return await self.db.write(unit)


async def make_team(app: App, db: Store, *, plan: Plan = Plan.PRO) -> Team:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=plan)
    tokens = {Role.OWNER: await make_token(db, owner, org.id)}
    for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN):
        tokens[role] = await make_token(db, await make_member(db, org, role), org.id)
    return Team(Client(app.asgi), db, org.id, tokens)


async def make_project(team: Team, name: str, **given: Any) -> int:
    new = NewProject(name, "container", language="nodejs", repository_name="ada/app", branch="main", **given)
    actor, standing = Actor(1, "Ada"), Standing("pro", True)
    made = await team.db.write(lambda tx: projects.create(tx, team.org_id, actor, standing, new))
    return made.id
