"""Wiring of repositories: the built-in git server, and GitHub accounts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Mount
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.machines import service as machines
from moorage.core.product import Duties, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.repositories import jobs, routes, service
from moorage.products.repositories.github import routes as github_routes
from moorage.products.repositories.server.http import GitServer
from moorage.products.repositories.server.receiving import OnPush
from moorage.products.repositories.storage import Storage


@dataclass(frozen=True)
class Repositories(Product):
    paths = ("/v1/github", "/v1/repositories")

    db: Database
    github: GithubEvents
    git: GitServer

    @classmethod
    def make(
        cls, db: Database, telemetry: Telemetry, github: GithubEvents, gate: IdentityGate, on_push: OnPush
    ) -> Repositories:
        return cls(db, github, GitServer(db, gate, on_push, telemetry=telemetry))

    def routers(self) -> Sequence[Router]:
        return [github_routes.make_router(self.db), routes.router]

    def mounts(self) -> Sequence[Mount]:
        return [Mount("/git/", self.git.handle)]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.github)
        self.git.register(handlers)
        self.db.env.hooks.add(orgs.IS_SLUG_USED, "repositories", service.is_owner)
        self.db.env.hooks.add(machines.STATEFUL, "repositories", service.describe_held)
        self.db.env.hooks.add(machines.LOST, "repositories", service.give_up)

    async def adopt(self, duties: Duties) -> None:
        # Repositories from before machines had rows belong to the machine with their folder.
        if duties.runs_apps and self.db.env.machine.id:
            await self.db.write(partial(service.claim, has_folder=Storage(self.db.env.settings).has))

    async def stop(self) -> None:
        await self.git.close()
