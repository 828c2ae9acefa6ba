"""All products in order, and the objects that one product hands to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

from moorage.accounts.identity.wiring import Identity
from moorage.accounts.operator import machines as operator_machines
from moorage.accounts.operator.wiring import Operator
from moorage.accounts.webhooks.wiring import Webhooks
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.core.http.relay import Relay
from moorage.core.kit.records import dataclass
from moorage.core.mail.sender import Mailer
from moorage.core.maintenance import Maintenance
from moorage.core.product import Product
from moorage.core.telemetry import Telemetry
from moorage.engines import make_engines, make_locator
from moorage.gateway.wiring import Gateway
from moorage.products.analytics.wiring import Analytics
from moorage.products.apps.wiring import Apps
from moorage.products.cronjobs import building as cronjob_building
from moorage.products.cronjobs.wiring import Cronjobs
from moorage.products.databases.wiring import Databases
from moorage.products.domains import service as domains
from moorage.products.domains.wiring import Domains
from moorage.products.functions.packages import Installer
from moorage.products.functions.wiring import Functions
from moorage.products.images.wiring import Images
from moorage.products.monitors.wiring import Monitors
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.wiring import Projects
from moorage.products.registries.wiring import Registries
from moorage.products.repositories.wiring import Repositories
from moorage.products.rules.wiring import Rules
from moorage.products.schedules.jobs import on_scheduled
from moorage.products.schedules.wiring import Schedules
from moorage.runtime.machines.wiring import Machines
from moorage.runtime.sandbox.heavy import HeavyWork


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


def make_products(
    db: Database,
    telemetry: Telemetry,
    artifacts: ArtifactStore,
    installer: Installer | None,
    sandbox_state: Callable[[], str],
    *,
    has_gateway: bool,
    runs_apps: bool,
) -> Products:
    """Make each product, and hand it the objects of other products that it uses."""
    settings, mailer, webhooks = db.env.settings, Mailer(db.env.settings), Webhooks(db)
    heavy = HeavyWork()
    functions = Functions.make(db, telemetry, artifacts, installer, sandbox_state, on_scheduled, heavy)
    machines, is_sandboxed = Machines.make(db, telemetry), sandbox_state() == "on"
    locator = make_locator(settings) if has_gateway and not runs_apps else None
    gateway = Gateway.make(db, telemetry, artifacts, machines.links.local_address, has_gateway, locator)
    identity, registries = Identity.make(db, mailer), Registries(db)
    sources = registries.sources
    engines = make_engines(db, artifacts, gateway.releases, sources, is_sandboxed=is_sandboxed)
    apps = Apps.make(db, telemetry, engines.apps, engines.app_programs, gateway, machines.links, is_sandboxed)
    machines.membership.on_change.append(apps.reconciler.wake)
    machines.membership.measure = lambda: operator_machines.measure(settings)
    projects = Projects.make(db, artifacts, webhooks.github, gateway, apps, engines.builds, sources, runs_apps, heavy)
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
            db, telemetry, artifacts, engines.databases, engines.local_databases, machines.links, is_sandboxed
        ),
        cronjobs=Cronjobs.make(
            db,
            telemetry,
            webhooks.github,
            engines.cronjobs,
            engines.cronjob_programs,
            engines.images,
            cronjob_building.Builds(db, pipeline.sources, engines.cronjob_builds, Followers(db.env.hooks)),
            is_sandboxed,
        ),
        monitors=Monitors.make(db, telemetry, mailer),
        webhooks=webhooks,
        gateway=gateway,
        maintenance=Maintenance(artifacts),
        operator=Operator(db),
    )
