"""Organizations with a project, the routes and the jobs for tests of domains."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.builders import make_org, make_token, make_user
from tests.client import Client, Reply
from tests.products.domains.dns_server import Zone

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.plans.service import Plan, Standing
from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.dispatch import Dispatcher
from moorage.core.jobs.timetable import Tick
from moorage.core.kit.clock import ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.worker.pool import Worker
from moorage.core.worker.run import Handlers
from moorage.gateway.config.tls import GatewayCertificates
from moorage.products.domains import jobs, routes, service
from moorage.products.domains.dns import Resolver
from moorage.products.domains.service import ServedDomainsChanged
from moorage.products.domains.verifying import Verifier
from moorage.products.functions import tables as function_tables
from moorage.products.projects import service as projects
from moorage.products.projects.service import NewProject
from moorage.products.projects.tables import Project

STANDING = Standing(Plan.PRO, card_verified=True)


@dataclass
class Team:
    """An organization with a project, and its client."""

    org_id: int
    project: Project
    client: Client
    viewer: Client

    async def add(self, domain: str) -> Any:
        reply = await self.try_to_add(domain)
        return reply.data

    async def try_to_add(self, domain: Any) -> Reply:
        return await self.client.post(f"/v1/projects/{self.project.name}/domains", json={"domain": domain})

    async def verify(self, added: Any) -> Any:
        reply = await self.client.post(f"/v1/domains/{added['id']}/verify")
        return reply.data

    async def only(self) -> Any:
        """Return the team's only domain."""
        (found,) = (await self.client.get(f"/v1/projects/{self.project.name}/domains")).data
        return found

    async def delete(self, added: Any) -> Reply:
        return await self.client.delete(f"/v1/domains/{added['id']}")


@dataclass
class Desk:
    db: Database
    zone: Zone
    certificates: GatewayCertificates | None = None
    handlers: Handlers = field(default_factory=Handlers)
    changes: list[ServedDomainsChanged] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.db.env.settings
        certificates = self.certificates or GatewayCertificates(settings)
        self.verifier = Verifier(self.db, Resolver(settings), certificates)
        jobs.register(self.handlers, self.verifier)
        self.db.env.hooks.add(projects.REMOVE, "domains", service.remove_of_project)
        self.handlers.listen(ServedDomainsChanged, self._hear)
        router = routes.make_router(self.verifier)
        gate = IdentityGate(Sessions(self.db.env))
        self.asgi = Dispatcher(router.routes, self.db, gate, Telemetry(quiet=True))

    def _hear(self, tx: Tx, event: ServedDomainsChanged) -> None:
        self.changes.append(event)

    async def close(self) -> None:
        await self.asgi.close()

    async def make_team(self, project: str) -> Team:
        user = await make_user(self.db)
        org = await make_org(self.db, user)
        member = await make_token(self.db, user, org.id, role=Role.MEMBER)
        viewer = await make_token(self.db, user, org.id, role=Role.VIEWER)
        new = NewProject(project, "static", source="upload")
        actor = Actor(user.id, user.name)
        made = await self.db.write(lambda tx: projects.create(tx, org.id, actor, STANDING, new))
        return Team(org.id, made, Client(self.asgi, token=member), Client(self.asgi, token=viewer))

    def prove(self, added: Any) -> None:
        """Add the TXT record of a domain to those of other organizations."""
        proof = added["verification"]
        self.zone.add_txt(proof["name"], proof["value"])

    async def make_verified(self, team: Team, domain: str) -> Any:
        added = await team.add(domain)
        self.prove(added)
        verified = await team.verify(added)
        assert verified["status"] == "verified"
        return verified

    async def run_jobs(self) -> None:
        await Worker(self.db, self.handlers, Telemetry(quiet=True), slots=8).run_due(turns=10)

    async def recheck(self, after_ms: int) -> None:
        """Advance the clock and recheck the domains that are due."""
        clock = self.db.env.clock
        assert isinstance(clock, ManualClock)
        clock.advance(after_ms)
        tick = Tick(jobs.KIND, 0, "", clock.now())
        await self.db.write(lambda tx: self.handlers.ticks[jobs.KIND](tx, tick))
        await self.run_jobs()

    async def served(self) -> dict[str, int]:
        return await self.db.read(service.served)

    async def feed(self, team: Team) -> list[str]:
        """Return the audit entries of domains, oldest first."""
        rows = await self.db.read(partial(audit.latest, org_id=team.org_id, before=None, most=100))
        return [row.action for row in reversed(rows) if row.action.startswith("domain.")]


async def add_function(db: Database, org_id: int, name: str) -> None:
    """Add the row of a function without code."""
    numbers = {column.name: 0 for column in function_tables.function.c if column.name != "id"}
    texts = {"name": name, "runtime": "python", "description": "", "env": "[]", "network": "none"}
    flags = {"raw_http": False, "own_options": False}
    await db.write(lambda tx: tx.find(function_tables.ADD, **{**numbers, **texts, **flags, "org_id": org_id}))
