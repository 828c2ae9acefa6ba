"""Whoever sent a request, once they passed the gate."""

from __future__ import annotations

from typing import NamedTuple

from moorage.audit.service import Actor
from moorage.errors import Forbidden
from moorage.identity.roles import Role
from moorage.kit.ids import OrgId
from moorage.plans.service import Standing


class Caller(NamedTuple):
    """A user, and on org-scoped routes the organization and role they act in."""

    user_id: int
    email: str
    name: str
    token_id: int | None  # the API token, or None for a session
    found_org_id: int | None
    found_role: Role | None
    standing: Standing | None
    is_first_use: bool = False  # of the API token within the last minute
    address: str | None = None  # where the request came from, on writes

    @property
    def org_id(self) -> OrgId:
        """The active organization; 0 where the route has none."""
        return OrgId(self.found_org_id or 0)

    @property
    def role(self) -> Role:
        assert self.found_role is not None, "the route has no organization"
        return self.found_role

    @property
    def actor(self) -> str:
        """Who a stored idempotency key belongs to."""
        return f"token:{self.token_id}" if self.token_id else f"user:{self.user_id}"

    @property
    def as_actor(self) -> Actor:
        return Actor(self.user_id, self.name or self.email, self.address)

    def check_may_act_for_user(self) -> None:
        """Refuse an API token that could not do everything its user can: what follows reaches past its organization."""
        if self.token_id is not None and self.found_role is not Role.OWNER:
            raise Forbidden("An API token needs the owner role for this; or use a session token")
