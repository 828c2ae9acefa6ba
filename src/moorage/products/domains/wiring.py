"""Wiring of custom domains."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.worker.run import Handlers
from moorage.products.domains import jobs, routes, service
from moorage.products.domains.dns import Resolver
from moorage.products.domains.service import ServedDomainsChanged
from moorage.products.domains.verifying import Certificates, Verifier
from moorage.products.projects import route_sync
from moorage.products.projects import service as projects
from moorage.products.projects.pushed import USES_PROJECT


@dataclass(frozen=True)
class Domains(Product):
    paths = ("/v1/domains", "/v1/projects")

    db: Database
    verifier: Verifier

    @classmethod
    def make(cls, db: Database, certificates: Certificates) -> Domains:
        return cls(db, Verifier(db, Resolver(db.env.settings), certificates))

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.verifier)]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.verifier)
        handlers.listen(ServedDomainsChanged, _sync_routes)
        self.db.env.hooks.add(projects.REMOVE, "domains", service.remove_of_project)
        self.db.env.hooks.add(USES_PROJECT, "domains", service.has_any)


@across_organizations("one gateway serves all organizations")
def _sync_routes(tx: Tx, _: ServedDomainsChanged) -> None:
    route_sync.request(tx)
