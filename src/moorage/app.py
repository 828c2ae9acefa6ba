"""Builds the API: every feature's routes, jobs and ticks, wired to one store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import moorage
from moorage.accounts.identity import jobs as identity_jobs
from moorage.accounts.identity import routes as identity_routes
from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.oidc import OidcVerifier
from moorage.accounts.identity.organizations import routes as org_routes
from moorage.accounts.identity.sessions import routes as session_routes
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.webhooks import jobs as webhook_jobs
from moorage.accounts.webhooks import routes as webhook_routes
from moorage.accounts.webhooks.service import GithubEvents
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.answer import Answer, plain_json
from moorage.core.http.dispatch import Dispatcher, Mount
from moorage.core.http.models import Output
from moorage.core.http.openapi import document as openapi
from moorage.core.http.openapi.pages import Pages
from moorage.core.http.request import Request
from moorage.core.http.route import Route, Router, Scope
from moorage.core.jobs.timetable import TickHandler
from moorage.core.mail.sender import Mailer
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.gateway.config.app_proxy import waker_socket
from moorage.gateway.config.tls import ASK_PATH, GatewayCertificates
from moorage.gateway.reconciler import GatewayReconciler
from moorage.gateway.releases import SITES
from moorage.gateway.releases import prepare as prepare_release
from moorage.gateway.routes import Routes
from moorage.platform import chores
from moorage.products.analytics import retention as analytics_retention
from moorage.products.analytics import routes as analytics_routes
from moorage.products.analytics import service as analytics_service
from moorage.products.analytics.ingest import Ingest, find_own_host
from moorage.products.apps import removal
from moorage.products.apps import retention as app_retention
from moorage.products.apps.autoscaler import Tending
from moorage.products.apps.deploying import Deploying
from moorage.products.apps.exec import routes as exec_routes
from moorage.products.apps.launching import Launcher
from moorage.products.apps.logs import routes as log_routes
from moorage.products.apps.logs.log_files import AppLogs
from moorage.products.apps.metrics import routes as metric_routes
from moorage.products.apps.metrics import service as metrics
from moorage.products.apps.metrics.service import RequestCounter
from moorage.products.apps.reconciler import Keeper as AppKeeper
from moorage.products.apps.waker import Waker
from moorage.products.apps.waking import Waking
from moorage.products.cronjobs.wiring import Cronjobs
from moorage.products.databases.wiring import Databases
from moorage.products.domains import jobs as domain_jobs
from moorage.products.domains import routes as domain_routes
from moorage.products.domains import service as domain_service
from moorage.products.domains.dns import Resolver
from moorage.products.domains.issuance import Permission
from moorage.products.domains.service import ServedDomainsChanged
from moorage.products.domains.verifying import Verifier
from moorage.products.functions import jobs as function_jobs
from moorage.products.functions import routes as function_routes
from moorage.products.functions import service as function_service
from moorage.products.functions.edge_client import EdgeClient
from moorage.products.functions.logs.hidden_values import HiddenValues
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.packages import Installer, Packages
from moorage.products.functions.publisher import Publisher
from moorage.products.functions.records import retention
from moorage.products.functions.records import routes as record_routes
from moorage.products.functions.records.recorder import Recorder
from moorage.products.monitors.wiring import Monitors
from moorage.products.projects import github as project_github
from moorage.products.projects import jobs as project_jobs
from moorage.products.projects import route_sync as settling
from moorage.products.projects import routes as project_routes
from moorage.products.projects import service as project_service
from moorage.products.projects import uploads as project_uploads
from moorage.products.projects.deployments import routes as deployment_routes
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.followers import Followers
from moorage.products.projects.deployments.pipeline import Pipeline
from moorage.products.projects.deployments.pushes import Pushes
from moorage.products.projects.route_sync import Settle
from moorage.products.projects.uploads import Uploads
from moorage.products.repositories import jobs as repository_jobs
from moorage.products.repositories.fetch import Sources
from moorage.products.repositories.github import routes as repository_routes
from moorage.products.repositories.server.http import GitServer
from moorage.products.rules import routes as rule_routes
from moorage.products.rules import service as rule_service
from moorage.products.schedules import jobs as schedule_jobs
from moorage.products.schedules import routes as schedule_routes
from moorage.products.schedules import service as schedule_service
from moorage.products.schedules.runner import ScheduleRunner
from moorage.runtime.builds.builder import Builder
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.ports import Replicas
from moorage.runtime.sandbox.heavy import HeavyWork
from moorage.settings import Settings


class Health(Output, frozen=True):
    status: str
    version: str


@dataclass(frozen=True)
class Functions:
    """The parts of functions that live beside the requests; whoever runs the platform starts and closes them."""

    edge: EdgeClient
    publisher: Publisher
    recorder: Recorder
    runner: ScheduleRunner  # of schedules
    packages: Packages
    sandbox_state: Callable[[], str]

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        installer: Installer | None,
        sandbox_state: Callable[[], str],
    ) -> Functions:
        settings = db.env.settings
        edge = EdgeClient(settings.edge_door)
        hidden = HiddenValues()
        recorder = Recorder(
            db,
            telemetry,
            settings.folder("spool"),
            FunctionLogs.of(settings),
            on_scheduled=schedule_jobs.on_scheduled,
            hidden=hidden,
        )
        return cls(
            edge=edge,
            publisher=Publisher(db, settings, edge, artifacts, telemetry, hidden),
            recorder=recorder,
            runner=ScheduleRunner(db, edge, telemetry, recorder.catch_up),
            packages=Packages(db, artifacts, installer),
            sandbox_state=sandbox_state,
        )

    def routers(self, db: Database) -> list[Router]:
        parts = function_routes.Parts(db, self.packages, self.publisher, self.edge, self.sandbox_state)
        return [
            function_routes.make_router(parts),
            record_routes.make_router(db, self.recorder),
            schedule_routes.make_router(self.runner),
        ]

    def register(self, handlers: Handlers, ticks: dict[str, TickHandler]) -> None:
        function_service.dependents["schedules"] = schedule_service.remove_of_function
        function_jobs.register(handlers, self.publisher, self.recorder.logs)
        retention.register(handlers, ticks)
        schedule_jobs.register(handlers, ticks, self.runner)


@dataclass(frozen=True)
class Apps:
    """The parts of container apps that live beside the requests; whoever runs the platform starts and closes them."""

    engine: Replicas
    keeper: AppKeeper
    deploying: Deploying
    tending: Tending
    waker: Waker
    logs: AppLogs
    launcher: Launcher

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        settle: Settle,
        *,
        is_sandboxed: bool,
    ) -> Apps:
        settings = db.env.settings
        engine = LocalReplicas(settings.folder("run"))
        launcher = Launcher(db, artifacts, make_app_releases(settings), is_sandboxed)
        keeper = AppKeeper(db, engine, launcher, telemetry, settle)
        logs = AppLogs(settings.folder("logs") / "apps")
        return cls(
            engine=engine,
            keeper=keeper,
            deploying=Deploying(db, keeper, logs, settle),
            tending=Tending(db, engine, keeper, telemetry),
            waker=Waker(waker_socket(settings), Waking(db, keeper).wake, within_s=settings.app_start_s + 10),
            logs=logs,
            launcher=launcher,
        )

    def routers(self, db: Database) -> list[Router]:
        return [
            log_routes.make_router(db, self.logs),
            metric_routes.make_router(),
            exec_routes.make_router(db, self.launcher.prepare_command),
        ]

    def register(self, handlers: Handlers, ticks: dict[str, TickHandler]) -> None:
        removal.register(handlers, self.logs)
        app_retention.register(handlers, ticks, self.logs)
        project_service.dependents["app metrics"] = metrics.remove_of_project


@dataclass(frozen=True)
class Projects:
    """The parts of projects that live beside the requests; whoever runs the platform starts and closes them."""

    pipeline: Pipeline
    keeper: GatewayReconciler
    apps: Apps
    uploads: Uploads
    git: GitServer
    verifier: Verifier
    ingest: Ingest

    @classmethod
    def make(
        cls,
        db: Database,
        telemetry: Telemetry,
        artifacts: ArtifactStore,
        gate: IdentityGate,
        *,
        is_sandboxed: bool,
        has_gateway: bool,
        runs_apps: bool,
    ) -> Projects:
        settings = db.env.settings
        releases = make_releases(settings)
        keeper = GatewayReconciler(db, Routes(settings, telemetry), releases, artifacts, telemetry)
        followers = Followers()
        # On a machine without the gateway there is nothing to settle: the one that has it looks by itself.
        settle_gateway = keeper.sync_routes if has_gateway else _nothing
        apps = Apps.make(db, telemetry, artifacts, settle_gateway, is_sandboxed=is_sandboxed)

        async def settle() -> None:
            apps.keeper.wake()
            await settle_gateway()

        made = Pipeline(
            db=db,
            artifacts=artifacts,
            releases=releases,
            app_releases=apps.launcher.releases,
            sources=Sources(db),
            builder=Builder(settings, is_sandboxed=is_sandboxed),
            followers=followers,
            settle=settle,
            apps=apps.deploying if runs_apps else None,
        )
        return cls(
            pipeline=made,
            keeper=keeper,
            apps=apps,
            uploads=Uploads(
                db, artifacts, releases, HeavyWork(), finish=f"{prepare_release.__module__}:{prepare_release.__name__}"
            ),
            git=GitServer(db, gate, Pushes(db, followers), telemetry=telemetry),
            verifier=Verifier(db, Resolver(settings), GatewayCertificates(settings)),
            ingest=Ingest(db, settings, telemetry, find_host, also=[RequestCounter(apps.tending.window)]),
        )

    def routers(self, db: Database) -> list[Router]:
        parts = project_routes.Parts(db, self.pipeline.remove_unused, self.pipeline.settle)
        return [
            project_routes.make_router(parts),
            project_uploads.make_router(db, self.uploads),
            deployment_routes.make_router(db, self.pipeline.followers),
            domain_routes.make_router(self.verifier),
            rule_routes.make_router(db, parts.settle),
            analytics_routes.make_router(),
            repository_routes.make_router(db),
            *self.apps.routers(db),
        ]

    def register(self, handlers: Handlers, ticks: dict[str, TickHandler], github: GithubEvents) -> None:
        project_jobs.register(handlers, self.pipeline)
        domain_jobs.register(handlers, ticks, self.verifier)
        handlers.listen(ServedDomainsChanged, _settle_domains)
        repository_jobs.register(handlers, ticks, github)
        self.git.register(handlers)
        analytics_retention.register(handlers, ticks)
        project_service.dependents["rules"] = rule_service.remove_of_project
        rule_service.other_hosts["domains"] = domain_service.hosts_of
        project_service.dependents["analytics"] = analytics_service.remove_of_project
        project_github.listen(github)
        self.apps.register(handlers, ticks)


async def _nothing() -> None:
    return None


@across_organizations("one gateway serves everybody")
def _settle_domains(tx: Tx, _: ServedDomainsChanged) -> None:
    settling.ask(tx)


@across_organizations("a host leads to whoever has it")
def find_host(tx: Tx, host: str) -> tuple[int, int] | None:
    """Return whose a host is: the organization's id and the project's."""
    return find_own_host(tx, host) or domain_service.find_owner(tx, host)


def make_releases(settings: Settings) -> Unpacked:
    """The folders that the gateway serves sites from; it may run as another user, so they can be read by all."""
    return Unpacked(
        settings.folder("releases"),
        SITES,
        is_used=deployments.is_published,
        finish=prepare_release,
        mode=0o755,
    )


def make_app_releases(settings: Settings) -> Unpacked:
    """The folders that apps run in, read-only; each runs as a user of its own, so they can be read by all."""
    return Unpacked(settings.folder("app-releases"), APP_CAPS, is_used=deployments.is_published)


@dataclass
class App:
    """Everything that one process serves and runs."""

    asgi: Dispatcher
    routes: tuple[Route, ...]
    handlers: Handlers
    ticks: dict[str, TickHandler]
    sessions: Sessions
    artifacts: ArtifactStore
    functions: Functions
    projects: Projects
    databases: Databases
    cronjobs: Cronjobs
    monitors: Monitors
    github: GithubEvents  # features that deploy listen here
    describe: Callable[[], dict[str, Any]] = field(repr=False)

    @property
    def document(self) -> dict[str, Any]:
        """The document of all routes."""
        return self.describe()

    async def close(self) -> None:
        """Bring what runs beside requests to its end; after this the store may be closed."""
        await self.functions.runner.stop()
        await self.projects.git.close()
        self.projects.uploads.close()
        await self.asgi.close()
        await self.projects.apps.engine.close()
        await self.databases.close()
        await self.cronjobs.close()
        await self.monitors.close()
        await self.functions.edge.close()
        self.functions.recorder.close()


def sandbox_is_on() -> str:
    return "on"


def build(
    db: Database,
    telemetry: Telemetry,
    *,
    installer: Installer | None = None,
    sandbox_state: Callable[[], str] = sandbox_is_on,
    has_gateway: bool = True,
    runs_apps: bool = False,
) -> App:
    """Build the application.

    `installer` gets the dependencies of functions, which are refused without one. `sandbox_state` says `on`, or what
    a user should know about where functions run. `has_gateway` says whether this machine has the public gateway, and
    `runs_apps` whether this process keeps the apps of this machine running.
    """
    settings = db.env.settings
    artifacts = ArtifactStore(db)
    functions = Functions.make(db, telemetry, artifacts, installer, sandbox_state)
    sessions = Sessions(db.env)
    gate = IdentityGate(sessions)
    is_sandboxed = sandbox_state() == "on"
    projects = Projects.make(
        db, telemetry, artifacts, gate, is_sandboxed=is_sandboxed, has_gateway=has_gateway, runs_apps=runs_apps
    )
    databases = Databases.make(db, telemetry, artifacts, is_sandboxed=is_sandboxed)
    pipeline = projects.pipeline
    cronjobs = Cronjobs.make(db, telemetry, artifacts, pipeline.sources, pipeline.builder, is_sandboxed=is_sandboxed)
    mailer = Mailer(settings)
    monitors = Monitors.make(db, telemetry, mailer)
    routers = [
        *identity_routers(db, sessions),
        *functions.routers(db),
        *projects.routers(db),
        *databases.routers(),
        *cronjobs.routers(),
        *monitors.routers(),
        webhook_routes.make_router(db),
    ]
    # Made when somebody first reads it: that takes longer than to build all else, and few processes are asked for it.
    describe = cache(lambda: openapi.document(routes, version=moorage.__version__, server=settings.api_url))
    routers.append(platform_router(describe))
    routes = tuple(route for router in routers for route in router.routes)
    pages = Pages(describe, settings)
    handlers, ticks = Handlers(), dict[str, TickHandler]()
    identity_jobs.register(handlers, mailer)
    github = webhook_jobs.register(handlers)
    functions.register(handlers, ticks)
    projects.register(handlers, ticks, github)
    databases.register(handlers, ticks)
    cronjobs.register(handlers, ticks, github)
    monitors.register(handlers, ticks)
    chores.register(handlers, ticks, artifacts, [pipeline.releases, pipeline.app_releases, cronjobs.releases])
    permission = Permission(db, GatewayCertificates(settings), telemetry.log)
    mounts = [Mount("/git/", projects.git.handle), asking(permission), monitors.mount()]
    asgi = Dispatcher(routes, db, gate, telemetry, fallback=pages.find, mounts=mounts)
    return App(
        asgi, routes, handlers, ticks, sessions, artifacts, functions, projects, databases, cronjobs, monitors, github,
        describe,
    )  # fmt: skip


def identity_routers(db: Database, sessions: Sessions) -> list[Router]:
    settings = db.env.settings
    verifier = OidcVerifier(settings.oidc_issuers, settings.oidc_audience, db.env.clock)
    login = identity_routes.login_router(db, sessions, verifier)
    return [login, identity_routes.router, session_routes.router, org_routes.router, org_routes.stream_router(db)]


def asking(permission: Permission) -> Mount:
    """What the public gateway asks before it gets a certificate for a name. It tells no more than a request would."""

    async def may_have_certificate(request: Request) -> Answer | None:
        if request.path != ASK_PATH or request.method != "GET":
            return None
        is_served = await permission.ask(request.from_query("domain") or "")
        return plain_json({"served": is_served}, 200 if is_served else 404)

    return Mount(ASK_PATH.rpartition("/")[0] + "/", may_have_certificate, is_counted=False)


def platform_router(describe: Callable[[], dict[str, Any]]) -> Router:
    """The routes of the platform itself: liveness, and the document of all routes."""
    router = Router("Platform", prefix="")

    @router.get("/health", scope=Scope.PUBLIC, raw=True, is_counted=False, point=True)
    def health() -> Health:
        """Answer while the process lives. It touches nothing else."""
        return Health("ok", moorage.__version__)

    @router.get("/v1/openapi.json", scope=Scope.PUBLIC, point=True)
    def read_openapi() -> Answer:
        """Return this document."""
        return plain_json(describe())

    return router
