"""Operators of the platform: users who see and change it as a whole, through `/v1/operator`.

Only a command on the host grants the role, and only sessions have it: an API token acts for an organization.
"""

from __future__ import annotations

from moorage.accounts.identity import users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.users import User
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, AuditTarget
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.errors import BadRequest, Conflict, NotFound

DEMO_EMAIL = "demo@moorage.example"  # of the user that `/v1/auth/demo` logs in, in development
_WHY = "the operator acts on the whole platform"


@across_organizations(_WHY)
def is_operator(tx: Tx, user: User) -> bool:
    """Tell whether a user has the role; in development the demo user has it."""
    is_demo = user.email == DEMO_EMAIL and not tx.env.settings.is_production
    return user.operator_at is not None or is_demo


@across_organizations(_WHY)
def check(tx: Tx, caller: Caller) -> None:
    """Raise NotFound for users without the role, and Forbidden for API tokens of operators."""
    user = users.find(tx, caller.user_id)
    if user is None or not is_operator(tx, user):
        raise NotFound("There is nothing at this address")
    caller.check_is_session()


@across_organizations(_WHY)
def grant(tx: Tx, user: User) -> None:
    """Make a user an operator. Safe to repeat."""
    if user.suspended_at is not None:
        raise Conflict(f"{user.email} is suspended")
    if user.operator_at is None:
        users.set_operator(tx, user, is_operator=True)
        record(tx, THE_PLATFORM, "operator.granted", AuditTarget("user", user.email))


@across_organizations(_WHY)
def revoke(tx: Tx, user: User) -> None:
    """Take the role from a user; the next request of their sessions is refused."""
    if user.operator_at is None:
        raise BadRequest(f"{user.email} is not an operator")
    users.set_operator(tx, user, is_operator=False)
    record(tx, THE_PLATFORM, "operator.revoked", AuditTarget("user", user.email))


@across_organizations(_WHY)
def record(tx: Tx, actor: Actor, action: str, target: AuditTarget, **details: object) -> None:
    """Add a row to the activity feed of the platform itself."""
    audit.record(tx, PLATFORM_ORG_ID, actor, action, target, **details)
