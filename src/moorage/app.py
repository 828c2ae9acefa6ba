"""The application: all products, in order, wired to one store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import moorage
from moorage.accounts.identity.wiring import Identity
from moorage.accounts.operator import machines as operator_machines
from moorage.accounts.operator.wiring import Operator
from moorage.accounts.webhooks.wiring import Webhooks
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
from moorage.core.mail.sender import Mailer
from moorage.core.maintenance import Maintenance
from moorage.core.product import Product
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.gateway.wiring import Gateway
from moorage.products.analytics.wiring import Analytics
from moorage.products.apps.wiring import Apps
from moorage.products.cronjobs.wiring import Cronjobs
from moorage.products.databases.wiring import Databases
from moorage.products.domains import service as domains
from moorage.products.domains.wiring import Domains
from moorage.products.functions.packages import Installer
from moorage.products.functions.wiring import Functions
from moorage.products.images.wiring import Images
from moorage.products.monitors.wiring import Monitors
from moorage.products.projects.wiring import Projects
from moorage.products.registries.wiring import Registries
from moorage.products.repositories.wiring import Repositories
from moorage.products.rules.wiring import Rules
from moorage.products.schedules.jobs import on_scheduled
from moorage.products.schedules.wiring import Schedules
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.machines.wiring import Machines

# Order of the resources in the documentation of the API: as a new user needs them.
API_ORDER = (
    *("Projects", "Deployments", "Domains", "Rules", "GitHub", "Functions", "Scheduled functions", "Databases"),
    *("Cronjobs", "Registries", "Monitors", "Organizations", "Identity", "Webhooks", "Operator", "Platform"),
)


@dataclass(frozen=True)
class Products:
    """All products, in the order in which they start."""

    machines: Machines
    identity: Identity
    registries: Registries
    functions: Functions
    schedules: Schedules
    projects: Projects
    domains: Domains
    rules: Rules
    analytics: Analytics
    repositories: Repositories
    images: Images
    apps: Apps
    databases: Databases
    cronjobs: Cronjobs
    monitors: Monitors
    webhooks: Webhooks
    gateway: Gateway
    maintenance: Maintenance
    operator: Operator

    def __iter__(self) -> Iterator[Product]:
        return (getattr(self, each.name) for each in fields(self))


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
    functions = Functions.make(db, telemetry, artifacts, installer, sandbox_state, on_scheduled)
    machines = Machines.make(db, telemetry)
    gateway = Gateway.make(db, telemetry, artifacts, machines.links.local_address, is_here=has_gateway)
    products = _make_products(
        db, telemetry, machines, functions, gateway, artifacts, sandbox_state() == "on", runs_apps
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
    asgi.relay = Relay(machines.reach)
    return App(asgi, groups, handlers, artifacts, products, describe)


def group_of(product: Product) -> RouteGroup:
    return RouteGroup(lambda: [route for router in product.routers() for route in router.routes], product.paths)


def routes_of(groups: Iterable[RouteGroup]) -> tuple[Route, ...]:
    return tuple(route for group in groups for route in group.routes)


def _make_products(
    db: Database,
    telemetry: Telemetry,
    machines: Machines,
    functions: Functions,
    gateway: Gateway,
    artifacts: ArtifactStore,
    is_sandboxed: bool,
    runs_apps: bool,
) -> Products:
    run, mailer, webhooks = db.env.settings.folder("run"), Mailer(db.env.settings), Webhooks(db)
    identity, registries = Identity.make(db, mailer), Registries(db)
    apps = Apps.make(db, telemetry, artifacts, LocalReplicas(run), gateway, machines.links, is_sandboxed)
    machines.membership.on_change.append(apps.reconciler.wake)
    machines.membership.measure = lambda: operator_machines.measure(db.env.settings)
    sources = registries.sources
    projects = Projects.make(db, artifacts, webhooks.github, gateway, apps, sources, is_sandboxed, runs_apps)
    pipeline = projects.pipeline
    repositories = Repositories.make(db, telemetry, webhooks.github, identity.gate, projects.pushes)
    pipeline.sources.reach_machine = machines.reach
    repositories.git.relay = Relay(machines.reach)
    return Products(
        machines=machines,
        identity=identity,
        registries=registries,
        functions=functions,
        schedules=Schedules.make(db, telemetry, functions),
        projects=projects,
        domains=Domains.make(db, gateway.certificates),
        rules=Rules(db, pipeline.sync_routes, domains.hosts_of),
        analytics=Analytics.make(db, telemetry, domains.find_owner, apps.request_counter),
        repositories=repositories,
        images=Images.make(db, artifacts, identity.gate),
        apps=apps,
        databases=Databases.make(
            db, telemetry, artifacts, LocalReplicas(run, "databases"), machines.links, is_sandboxed
        ),
        cronjobs=Cronjobs.make(
            db,
            telemetry,
            artifacts,
            webhooks.github,
            LocalReplicas(run, "cronjobs"),
            pipeline,
            sources,
            is_sandboxed,
        ),
        monitors=Monitors.make(db, telemetry, mailer),
        webhooks=webhooks,
        gateway=gateway,
        maintenance=Maintenance(artifacts),
        operator=Operator(db),
    )
