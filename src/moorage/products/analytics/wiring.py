"""Wiring of analytics: visits, counted from the access log of the gateway."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.product import Duties, Loop, Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.analytics import retention, routes, service
from moorage.products.analytics.counting import Consumer, FindHost, Owner
from moorage.products.analytics.ingest import Ingest, find_own_host
from moorage.products.projects import service as projects


@dataclass(frozen=True)
class Analytics(Product):
    paths = ("/v1/projects",)

    db: Database
    ingest: Ingest

    @classmethod
    def make(cls, db: Database, telemetry: Telemetry, find_domain: FindHost, *consumers: Consumer) -> Analytics:
        """Make the wiring; `consumers` receive the lines of the access log as well."""

        @across_organizations("a host belongs to one project of one organization")
        def find_host(tx: Tx, host: str) -> Owner | None:
            return find_own_host(tx, host) or find_domain(tx, host)

        return cls(db, Ingest(db, db.env.settings, telemetry, find_host, also=consumers))

    def routers(self) -> Sequence[Router]:
        return [routes.make_router()]

    def register(self, handlers: Handlers) -> None:
        retention.register(handlers)
        self.db.env.hooks.add(projects.REMOVE, "analytics", service.remove_of_project)

    def loops(self, duties: Duties) -> Sequence[Loop]:
        return [self.ingest.run()] if duties.has_gateway else []
