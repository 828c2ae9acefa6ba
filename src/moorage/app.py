"""Builds the API: every feature's routes, jobs and ticks, wired to one store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import moorage
from moorage.artifacts.store import ArtifactStore
from moorage.db.store import Database
from moorage.functions import jobs as function_jobs
from moorage.functions import record_routes, retention
from moorage.functions import routes as function_routes
from moorage.functions import service as function_service
from moorage.functions.edge_client import EdgeClient
from moorage.functions.packages import Installer, Packages
from moorage.functions.publisher import Publisher
from moorage.functions.recorder import Recorder
from moorage.http import openapi
from moorage.http.answer import Answer, plain_json
from moorage.http.dispatch import Dispatcher
from moorage.http.models import Output
from moorage.http.pages import Pages
from moorage.http.route import Route, Router, Scope
from moorage.identity import jobs as identity_jobs
from moorage.identity import org_routes
from moorage.identity import routes as identity_routes
from moorage.identity.gate import IdentityGate
from moorage.identity.oidc import OidcVerifier
from moorage.identity.sessions import Sessions
from moorage.jobs.timetable import TickHandler
from moorage.mail.sender import Mailer
from moorage.platform import chores
from moorage.schedules import jobs as schedule_jobs
from moorage.schedules import routes as schedule_routes
from moorage.schedules import service as schedule_service
from moorage.schedules.runner import ScheduleRunner
from moorage.telemetry import Telemetry
from moorage.webhooks import jobs as webhook_jobs
from moorage.webhooks import routes as webhook_routes
from moorage.webhooks.service import GithubEvents
from moorage.worker.run import Handlers


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
        recorder = Recorder(db, telemetry, settings.folder("spool"), on_scheduled=schedule_jobs.on_scheduled)
        return cls(
            edge=edge,
            publisher=Publisher(db, settings, edge, artifacts, telemetry),
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
        function_jobs.register(handlers, self.publisher)
        retention.register(handlers, ticks)
        schedule_jobs.register(handlers, ticks, self.runner)


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
    github: GithubEvents  # features that deploy listen here
    document: dict[str, Any] = field(repr=False)

    async def close(self) -> None:
        """Bring what runs beside requests to its end; after this the store may be closed."""
        await self.functions.runner.stop()
        await self.asgi.close()
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
) -> App:
    """Build the application.

    `installer` gets the dependencies of functions, which are refused without one. `sandbox_state` says `on`, or what
    a user should know about where functions run.
    """
    settings = db.env.settings
    artifacts = ArtifactStore(db)
    functions = Functions.make(db, telemetry, artifacts, installer, sandbox_state)
    sessions = Sessions(db.env)
    verifier = OidcVerifier(settings.oidc_issuers, settings.oidc_audience, db.env.clock)
    routers = [
        identity_routes.login_router(db, sessions, verifier),
        identity_routes.router,
        org_routes.router,
        org_routes.stream_router(db),
        *functions.routers(db),
        webhook_routes.make_router(db),
    ]
    document: dict[str, Any] = {}
    routers.append(platform_router(document))
    routes = tuple(route for router in routers for route in router.routes)
    document.update(openapi.document(routes, version=moorage.__version__, server=settings.api_url))
    pages = Pages(document, settings)
    handlers, ticks = Handlers(), dict[str, TickHandler]()
    identity_jobs.register(handlers, Mailer(settings))
    github = webhook_jobs.register(handlers)
    functions.register(handlers, ticks)
    chores.register(handlers, ticks, artifacts)
    asgi = Dispatcher(routes, db, IdentityGate(sessions), telemetry, fallback=pages.find)
    return App(asgi, routes, handlers, ticks, sessions, artifacts, functions, github, document)


def platform_router(document: dict[str, Any]) -> Router:
    """The routes of the platform itself: liveness, and the document of all routes."""
    router = Router("Platform", prefix="")

    @router.get("/health", scope=Scope.PUBLIC, raw=True, point=True)
    def health() -> Health:
        """Answer while the process lives. It touches nothing else."""
        return Health("ok", moorage.__version__)

    @router.get("/v1/openapi.json", scope=Scope.PUBLIC, point=True)
    def read_openapi() -> Answer:
        """Return this document."""
        return plain_json(document)

    return router
