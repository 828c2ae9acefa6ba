"""Builders of organizations with cronjobs, repositories and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders import make_member, make_org, make_token, make_user
from tests.client import Client, Reply
from tests.products.repositories.support import Checkout

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Plan
from moorage.app import App
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx, move
from moorage.core.telemetry import Telemetry
from moorage.core.worker.scheduler import Scheduler
from moorage.products.cronjobs import building, service, tables
from moorage.products.cronjobs.states import BUILD, BuildStatus
from moorage.products.cronjobs.tables import Cronjob, Execution
from moorage.products.repositories import service as repositories
from moorage.products.repositories.names import parse_name

WAIT_S = 60.0
IMAGE: dict[str, Any] = {"imageSource": "public_image", "publicImage": "127.0.0.1:9/acme/job:1", "repositoryName": None}


@dataclass
class Team:
    app: App
    api: Client
    db: Database
    org_id: int
    tokens: dict[Role, str]

    async def create(self, name: str = "nightly", role: Role = Role.OWNER, **given: Any) -> Reply:
        usual = {"name": name, "cronSchedule": "*/5 * * * *", "repositoryName": "acme/jobs"}
        body = {key: value for key, value in {**usual, **given}.items() if value is not None}
        return await self.post("", role, json=body)

    async def get(self, path: str, role: Role = Role.MEMBER) -> Reply:
        return await self.api.get(f"/v1/cronjobs{path}", token=self.tokens[role])

    async def post(self, path: str, role: Role = Role.OWNER, **options: Any) -> Reply:
        return await self.api.post(f"/v1/cronjobs{path}", token=self.tokens[role], **options)

    async def patch(self, name: str = "nightly", role: Role = Role.OWNER, **body: Any) -> Reply:
        return await self.api.patch(f"/v1/cronjobs/{name}", token=self.tokens[role], json=body)

    async def delete(self, name: str = "nightly", role: Role = Role.OWNER) -> Reply:
        return await self.api.delete(f"/v1/cronjobs/{name}", token=self.tokens[role])

    async def read(self, name: str = "nightly") -> Any:
        return (await self.get(f"/{name}")).data

    async def trigger(self, name: str = "nightly") -> str:
        return str((await self.post(f"/{name}/trigger")).data["executionUuid"])

    async def executions(self, name: str = "nightly") -> list[Any]:
        return list((await self.get(f"/{name}/executions")).data["items"])

    async def execution(self, uuid: str, name: str = "nightly") -> Any:
        return next(each for each in await self.executions(name) if each["executionUuid"] == uuid)

    async def lines(self, uuid: str) -> list[str]:
        """Return the log lines of a run, each with the first letter of its stream."""
        lines = (await self.get(f"/executions/{uuid}/logs")).data["lines"]
        return [f"{line['stream'][3] if line['stream'] != 'system' else 's'} {line['message']}" for line in lines]

    async def row(self, name: str = "nightly") -> Cronjob:
        return await self.db.read(lambda tx: service.get(tx, self.org_id, name))

    async def set_built(self, name: str = "nightly") -> None:
        """Mark the newest build of a cronjob as succeeded, without an artifact."""

        def unit(tx: Tx) -> None:
            found = service.get(tx, self.org_id, name)
            build = tx.all(tables.BUILDS_OF, org_id=self.org_id, cronjob_id=found.id)[0]
            move(tx, BUILD, build, to=BuildStatus.RUNNING)
            building._succeed(tx, self.org_id, build, "0" * 64, "{}")

        await self.db.write(unit)

    async def fail_build(self, name: str = "nightly") -> None:
        def unit(tx: Tx) -> None:
            found = service.get(tx, self.org_id, name)
            build = tx.all(tables.BUILDS_OF, org_id=self.org_id, cronjob_id=found.id)[0]
            building._fail(tx, self.org_id, build.id, "it does not build")

        await self.db.write(unit)

    async def rows(self, name: str = "nightly") -> list[Execution]:
        """Return the runs of a cronjob, oldest first."""

        def unit(tx: Tx) -> list[Execution]:
            found = service.get(tx, self.org_id, name)
            return service.executions(tx, self.org_id, found, skip=0, most=1000)[::-1]

        return await self.db.read(unit)

    async def finish(self, row: Execution, error: str | None = None) -> None:
        """Record the start and end of a run."""

        def unit(tx: Tx) -> None:
            service.begin(tx, self.org_id, row, tx.now)
            service.finish(tx, self.org_id, row, exit_code=0 if error is None else 1, error=error, ended_at=tx.now)

        await self.db.write(unit)

    async def actions(self) -> list[str]:
        reply = await self.api.get("/v1/activity", token=self.tokens[Role.OWNER])
        return [item["action"] for item in reply.data["items"]]

    def scheduler(self) -> Scheduler:
        return Scheduler(self.db, Telemetry(quiet=True), self.app.handlers.ticks)


async def make_team(app: App, db: Database, *, plan: Plan = Plan.PRO) -> Team:
    owner = await make_user(db)
    org = await make_org(db, owner, plan=plan)
    tokens = {Role.OWNER: await make_token(db, owner, org.id)}
    for role in (Role.VIEWER, Role.MEMBER, Role.ADMIN):
        tokens[role] = await make_token(db, await make_member(db, org, role), org.id)
    return Team(app, Client(app.asgi), db, org.id, tokens)


@dataclass
class Repo:
    """A repository of the built-in git server with a local checkout."""

    checkout: Checkout
    name: str

    def commit(self, **files: Any) -> str:
        """Commit and push some files; return the commit's id."""
        sha = self.checkout.commit(**files)
        self.checkout.git("push", "--quiet", "origin", "main")
        return sha


async def make_repository(db: Database, org_id: int, folder: Path, name: str = "acme/jobs") -> Repo:
    parsed = parse_name(name)
    assert parsed is not None
    actor = Actor(1, "Ada")
    row = await db.write(lambda tx: repositories.begin_push(tx, org_id, parsed, actor))
    bare = db.env.settings.folder("git") / f"{row.id}.git"
    bare.mkdir(parents=True)
    folder.mkdir(parents=True)
    checkout = Checkout(folder)
    checkout.git("init", "--quiet", "--initial-branch=main")
    checkout.git("init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    checkout.git("remote", "add", "origin", str(bare))
    return Repo(checkout, name)


async def until(is_so: Callable[[], Any]) -> Any:
    """Wait until a coroutine function returns a truthy value, and return it."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        found = await is_so()
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, "it does not become so"
        await asyncio.sleep(0.05)
