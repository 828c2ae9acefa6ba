"""Wiring of header and redirect rules."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.worker.run import Handlers
from moorage.products.projects import service as projects
from moorage.products.projects.route_sync import SyncRoutes
from moorage.products.rules import routes, service
from moorage.products.rules.service import HostsOf


@dataclass(frozen=True)
class Rules(Product):
    paths = ("/v1/projects",)

    db: Database
    sync_routes: SyncRoutes
    domains_of: HostsOf  # further hosts of a project

    def routers(self) -> Sequence[Router]:
        return [routes.make_router(self.db, self.sync_routes)]

    def register(self, handlers: Handlers) -> None:
        hooks = self.db.env.hooks
        hooks.add(projects.REMOVE, "rules", service.remove_of_project)
        hooks.add(service.HOSTS, "domains", self.domains_of)
