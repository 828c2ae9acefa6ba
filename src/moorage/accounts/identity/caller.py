"""The authenticated sender of a request."""

from __future__ import annotations

from typing import NamedTuple

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Standing
from moorage.core.audit.service import Actor, TokenActor
from moorage.core.kit.ids import OrgId
from moorage.errors import Forbidden


class Caller(NamedTuple):
    """A user, and on org-scoped routes the active organization and role."""

    user_id: int
    email: str
    name: str
    token_id: int | None  # the API token, or None for a session
    org_id_or_none: int | None
    role_or_none: Role | None
    standing: Standing | None
    is_first_use: bool = False  # of the API token in the last minute, or of the session in the last ten
    address: str | None = None  # of the client, on writes
    token_name: str | None = None  # of the API token
    session_id: int | None = None  # of a session with a row
    is_limited: bool = False  # an API token with a lower role than its user
    org_name: str | None = None  # of the active organization, as the gate has read it

    @property
    def org_id(self) -> OrgId:
        """The active organization; 0 on routes without one."""
        return OrgId(self.org_id_or_none or 0)

    @property
    def role(self) -> Role:
        assert self.role_or_none is not None, "the route has no organization"
        return self.role_or_none

    @property
    def only_org_id(self) -> OrgId:
        """The only organization an API token can read; 0 for a session, which reads all."""
        return self.org_id if self.token_id is not None else OrgId(0)

    @property
    def actor(self) -> str:
        """Owner of a stored idempotency key."""
        return f"token:{self.token_id}" if self.token_id else f"user:{self.user_id}"

    @property
    def as_actor(self) -> Actor:
        token = TokenActor(self.token_id, self.token_name or "") if self.token_id is not None else None
        return Actor(self.user_id, self.name or self.email, self.address, token)

    def check_is_session(self) -> None:
        """Reject an API token: it acts for its organization, not for its user."""
        if self.token_id is not None:
            raise Forbidden("An API token cannot do this; log in and use a session token")

    def check_is_owner_or_session(self) -> None:
        """Reject an API token below owner for a write beyond its organization."""
        if self.token_id is not None and self.role_or_none is not Role.OWNER:
            raise Forbidden("An API token needs the owner role for this; or use a session token")

    def check_is_not_limited(self) -> None:
        """Reject an API token with a lower role than its user."""
        if self.is_limited:
            raise Forbidden("An API token with a lower role than its user cannot do this; use a session token")
