"""Wiring of accounts: logins, sessions, API tokens, organizations and members."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.accounts.identity import jobs, routes, tokens
from moorage.accounts.identity.gate import IdentityGate
from moorage.accounts.identity.oidc import OidcVerifier
from moorage.accounts.identity.organizations import freed_names, invitations, members
from moorage.accounts.identity.organizations import routes as org_routes
from moorage.accounts.identity.sessions import routes as session_routes
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Sessions
from moorage.accounts.plans import service as plans
from moorage.core import maintenance
from moorage.core.db.store import Database
from moorage.core.http.route import Router
from moorage.core.kit.records import dataclass
from moorage.core.mail.sender import Mailer
from moorage.core.product import Product
from moorage.core.worker.run import Handlers


@dataclass(frozen=True)
class Identity(Product):
    paths = (
        *("/v1/auth", "/v1/account", "/v1/api-tokens", "/v1/me", "/v1/notifications", "/v1/whoami", "/v1/sessions"),
        *("/v1/activity", "/v1/billing", "/v1/invitations", "/v1/limits", "/v1/orgs", "/v1/tiers", "/v1/usage"),
    )

    db: Database
    mailer: Mailer
    sessions: Sessions
    gate: IdentityGate

    @classmethod
    def make(cls, db: Database, mailer: Mailer) -> Identity:
        sessions = Sessions(db.env)
        return cls(db, mailer, sessions, IdentityGate(sessions))

    def routers(self) -> Sequence[Router]:
        settings = self.db.env.settings
        verifier = OidcVerifier(settings.oidc_issuers, settings.oidc_audience, self.db.env.clock)
        return [
            routes.login_router(self.db, self.sessions, verifier),
            routes.console_router(self.db),
            routes.router,
            session_routes.router,
            org_routes.router,
            org_routes.stream_router(self.db),
        ]

    def register(self, handlers: Handlers) -> None:
        jobs.register(handlers, self.mailer)
        hooks = self.db.env.hooks
        hooks.add(tokens.UNWRITTEN_USES, "gate", self.gate.unwritten_uses)
        hooks.add(plans.COUNT, "members", members.count)
        hooks.add(maintenance.SWEEP, "invitations", invitations.expire)
        hooks.add(maintenance.SWEEP, "sessions", session_list.sweep)
        hooks.add(maintenance.SWEEP, "freed names", freed_names.sweep)
