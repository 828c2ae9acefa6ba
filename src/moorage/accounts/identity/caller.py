"""Whoever sent a request, once they passed the gate."""

from __future__ import annotations

from typing import NamedTuple

from moorage.accounts.identity.roles import Role
from moorage.accounts.plans.service import Standing
from moorage.core.audit.service import Actor, TokenActor
from moorage.core.kit.ids import OrgId
from moorage.errors import Forbidden


class Caller(NamedTuple):
    """A user, and on org-scoped routes the organization and role they act in."""

    user_id: int
    email: str
    name: str
    token_id: int | None  # the API token, or None for a session
    found_org_id: int | None
    found_role: Role | None
    standing: Standing | None
    is_first_use: bool = False  # of the API token in the last minute, of the session in the last ten
    address: str | None = None  # where the request came from, on writes
    token_name: str | None = None  # of the API token
    session_id: int | None = None  # of a session that is in the list
    is_limited: bool = False  # an API token with a lower role than its user has

    @property
    def org_id(self) -> OrgId:
        """The active organization; 0 where the route has none."""
        return OrgId(self.found_org_id or 0)

    @property
    def role(self) -> Role:
        assert self.found_role is not None, "the route has no organization"
        return self.found_role

    @property
    def only_org_id(self) -> OrgId:
        """The one organization that an API token sees; 0 for a session, which sees all of its user's."""
        return self.org_id if self.token_id is not None else OrgId(0)

    @property
    def actor(self) -> str:
        """Who a stored idempotency key belongs to."""
        return f"token:{self.token_id}" if self.token_id else f"user:{self.user_id}"

    @property
    def as_actor(self) -> Actor:
        token = TokenActor(self.token_id, self.token_name or "") if self.token_id is not None else None
        return Actor(self.user_id, self.name or self.email, self.address, token)

    def check_is_session(self) -> None:
        """Refuse an API token: it acts in its organization, not in the name of the person who made it."""
        if self.token_id is not None:
            raise Forbidden("An API token cannot do this; log in and use a session token")

    def check_is_owner_or_session(self) -> None:
        """Refuse an API token below owner for a write that reaches past its organization."""
        if self.token_id is not None and self.found_role is not Role.OWNER:
            raise Forbidden("An API token needs the owner role for this; or use a session token")

    def check_is_not_limited(self) -> None:
        """Refuse an API token that has a lower role than the person who made it."""
        if self.is_limited:
            raise Forbidden("An API token with a lower role than its user cannot do this; use a session token")
