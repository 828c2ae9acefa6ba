"""The application: all products behind one HTTP interface, on one store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from functools import cache
from typing import Any

import moorage
from moorage.console.files import ASSETS_PREFIX, ConsoleFiles
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.http.dispatch import Dispatcher, Mount
from moorage.core.http.match import RouteGroup
from moorage.core.http.openapi import document as openapi
from moorage.core.http.openapi import routes as platform_routes
from moorage.core.http.openapi.pages import Pages
from moorage.core.http.relay import Relay
from moorage.core.http.route import Route
from moorage.core.kit.records import dataclass
from moorage.core.product import Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.products.functions.packages import Installer
from moorage.wiring import Products, make_products

# Order of the resources in the documentation of the API: as a new user needs them.
API_ORDER = (
    *("Projects", "Deployments", "Domains", "Rules", "GitHub", "Functions", "Scheduled functions", "Databases"),
    *("Cronjobs", "Registries", "Monitors", "Organizations", "Identity", "Webhooks", "Operator", "Platform"),
)


@dataclass
class App:
    """Everything that one process serves and runs."""

    asgi: Dispatcher
    groups: tuple[RouteGroup, ...]  # of routes, by product
    handlers: Handlers
    artifacts: ArtifactStore
    products: Products
    describe: Callable[[], dict[str, Any]] = field(repr=False)  # returns the OpenAPI document

    @property
    def routes(self) -> tuple[Route, ...]:
        """Declare all routes and return them."""
        return routes_of(self.groups)

    async def close(self) -> None:
        """Stop and close all products; after this the store may be closed."""
        self.asgi.stop_waiting()
        for product in self.products:
            await product.stop()
        await self.asgi.close()
        for product in reversed(list(self.products)):
            await product.close()


def build(
    db: Database,
    telemetry: Telemetry,
    *,
    installer: Installer | None = None,
    sandbox_state: Callable[[], str] = lambda: "on",
    has_gateway: bool = True,
    runs_apps: bool = False,
) -> App:
    """Build the application. Without an `installer`, functions with dependencies are refused.

    `sandbox_state` returns `on`, or a warning about the isolation of functions. `has_gateway` says whether the public
    gateway runs on this machine, and `runs_apps` whether this process keeps the apps of this machine running.
    """
    artifacts, settings = ArtifactStore(db), db.env.settings
    products = make_products(
        db, telemetry, artifacts, installer, sandbox_state, has_gateway=has_gateway, runs_apps=runs_apps
    )
    # The document is made on first use: it takes longer than all the rest, and few processes need it.
    describe = cache(
        lambda: openapi.document(
            routes_of(groups), version=moorage.__version__, server=settings.api_url, tag_order=API_ORDER
        )
    )
    groups = (*map(group_of, products), RouteGroup(lambda: platform_routes.make_router(describe).routes))
    handlers = Handlers()
    for product in products:
        product.register(handlers)
    console = ConsoleFiles()
    mounts = [mount for product in products for mount in product.mounts()]
    mounts.append(Mount(ASSETS_PREFIX, console.asset, is_counted=False))
    pages = Pages(describe, settings, console.page)
    asgi = Dispatcher(groups, db, products.identity.gate, telemetry, fallback=pages.find, mounts=mounts)
    asgi.relay = Relay(products.machines.reach)
    return App(asgi, groups, handlers, artifacts, products, describe)


def group_of(product: Product) -> RouteGroup:
    return RouteGroup(lambda: [route for router in product.routers() for route in router.routes], product.paths)


def routes_of(groups: Iterable[RouteGroup]) -> tuple[Route, ...]:
    return tuple(route for group in groups for route in group.routes)
