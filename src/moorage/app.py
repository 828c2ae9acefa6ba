"""Builds the API: every feature's routes, jobs and ticks, wired to one store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import moorage
from moorage.artifacts.store import ArtifactStore
from moorage.db.store import Database
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
from moorage.telemetry import Telemetry
from moorage.webhooks import jobs as webhook_jobs
from moorage.webhooks import routes as webhook_routes
from moorage.webhooks.service import GithubEvents
from moorage.worker.run import Handlers


class Health(Output, frozen=True):
    status: str
    version: str


@dataclass
class App:
    """Everything that one process serves and runs."""

    asgi: Dispatcher
    routes: tuple[Route, ...]
    handlers: Handlers
    ticks: dict[str, TickHandler]
    sessions: Sessions
    artifacts: ArtifactStore
    github: GithubEvents  # features that deploy listen here
    document: dict[str, Any] = field(repr=False)


def build(db: Database, telemetry: Telemetry) -> App:
    settings = db.env.settings
    sessions = Sessions(db.env)
    verifier = OidcVerifier(settings.oidc_issuers, settings.oidc_audience, db.env.clock)
    routers = [
        identity_routes.login_router(db, sessions, verifier),
        identity_routes.router,
        org_routes.router,
        org_routes.stream_router(db),
        webhook_routes.make_router(db),
    ]
    document: dict[str, Any] = {}
    routers.append(platform_router(document))
    routes = tuple(route for router in routers for route in router.routes)
    document.update(openapi.document(routes, version=moorage.__version__, server=settings.api_url))
    pages = Pages(document, settings)
    handlers, ticks = Handlers(), dict[str, TickHandler]()
    artifacts = ArtifactStore(db)
    identity_jobs.register(handlers, Mailer(settings))
    github = webhook_jobs.register(handlers)
    chores.register(handlers, ticks, artifacts)
    asgi = Dispatcher(routes, db, IdentityGate(sessions), telemetry, fallback=pages.find)
    return App(asgi, routes, handlers, ticks, sessions, artifacts, github, document)


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
