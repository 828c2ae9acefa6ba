"""Changes of users and organizations by operators: on the host (`moorage admin`), or with a session."""

from __future__ import annotations

from moorage.accounts.identity import logins, tokens, users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.operators import role as operator_role
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.users import User
from moorage.accounts.plans.service import Plan
from moorage.core.audit.service import THE_PLATFORM, Actor, AuditTarget
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.ids import parse_id
from moorage.errors import BadRequest, Conflict, NotFound

_WHY = "the operator acts on the whole platform"


@across_organizations(_WHY)
def create_user(tx: Tx, email: str) -> tuple[User, int]:
    if not users.is_email(users.normal_email(email)):
        raise BadRequest(f"{email!r} is not a mail address")
    user = users.add(tx, email, status=Approval.APPROVED, terms_accepted=False)
    return user, logins.personal_organization(tx, user)


@across_organizations(_WHY)
def approve(tx: Tx, user: User, actor: Actor = THE_PLATFORM) -> User:
    """Approve a user that awaits approval or was rejected. Safe to repeat."""
    if user.status != Approval.APPROVED:
        users.approve(tx, user)
        operator_role.record(tx, actor, "user.approved", AuditTarget("user", user.email))
    return user


@across_organizations(_WHY)
def suspend(tx: Tx, user: User, actor: Actor = THE_PLATFORM, *, suspended: bool) -> User:
    """Refuse all requests of a user, or lift that. Safe to repeat."""
    if (user.suspended_at is not None) == suspended:
        return user
    if suspended and user.operator_at is not None:
        raise Conflict(f"{user.email} is an operator; run this on the host first: moorage admin revoke-operator EMAIL")
    users.suspend(tx, user, suspended=suspended)
    action = "user.suspended" if suspended else "user.unsuspended"
    operator_role.record(tx, actor, action, AuditTarget("user", user.email))
    return user


@across_organizations(_WHY)
def suspend_organization(tx: Tx, org_id: int, actor: Actor = THE_PLATFORM, *, suspended: bool) -> str:
    """Refuse all requests to an organization, or lift that. Safe to repeat."""
    organization = orgs.get(tx, org_id)
    if (organization.suspended_at is not None) != suspended:
        # The members see that an operator did it, and not who.
        orgs.suspend(tx, org_id, THE_PLATFORM, suspended=suspended)
        action = "organization.suspended" if suspended else "organization.unsuspended"
        operator_role.record(tx, actor, action, _target(organization))
    return organization.name


@across_organizations(_WHY)
def set_card(tx: Tx, org_id: int, actor: Actor = THE_PLATFORM, *, verified: bool) -> str:
    organization = orgs.get(tx, org_id)
    if not orgs.set_card(tx, org_id, THE_PLATFORM, verified=verified):
        raise Conflict("a newer event has already decided about the card")
    action = "billing.card_verified" if verified else "billing.card_removed"
    operator_role.record(tx, actor, action, _target(organization))
    return organization.name


@across_organizations(_WHY)
def set_plan(tx: Tx, org_id: int, plan: str, actor: Actor = THE_PLATFORM) -> str:
    if plan not in tuple(Plan):
        raise BadRequest(f"there is no plan {plan!r}; there are {', '.join(Plan)}")
    organization = orgs.get(tx, org_id)
    if not orgs.set_plan(tx, org_id, THE_PLATFORM, Plan(plan)):
        raise Conflict("a newer event has already decided about the plan")
    operator_role.record(tx, actor, "billing.plan_changed", _target(organization), plan=plan)
    return organization.name


def _target(organization: orgs.Organization) -> AuditTarget:
    return AuditTarget("organization", f"{organization.name} ({organization.id})")


@across_organizations(_WHY)
def make_token(tx: Tx, email: str | None, org: str | None, role: str | None, name: str) -> str:
    """Create an API token for the named user, or else the demo user or the first user.

    Without a name, development uses the demo user and production the first user.
    """
    if email is not None:
        user = get_user(tx, email)
    elif not tx.env.settings.is_production:
        user, demo_org = logins.demo(tx)
        org = org if org is not None else str(demo_org)
    else:
        oldest = users.find_oldest(tx)
        if oldest is None:
            raise NotFound("there is no user yet; open the setup link, or: moorage admin create-user EMAIL")
        user = oldest
    mine = members.memberships(tx, user.id)
    org_id = get_org(tx, org).id if org is not None else None
    membership = next((each for each in mine if org_id in (None, each.org_id)), None)
    if membership is None:
        raise NotFound(f"{user.email} does not belong to that organization")
    caller = Caller(
        user_id=user.id,
        email=user.email,
        name=user.name,
        token_id=None,
        org_id_or_none=membership.org_id,
        role_or_none=Role(membership.role),
        standing=membership.standing,
    )
    if role is not None and role not in tuple(Role):
        raise BadRequest(f"there is no role {role!r}; there are {', '.join(Role)}")
    _, raw = tokens.create(tx, membership.org_id, caller, name, role=Role(role) if role else None)
    return raw


@across_organizations(_WHY)
def get_user(tx: Tx, email: str) -> User:
    user = users.find_by_email(tx, email)
    if user is None:
        raise NotFound(f"there is no user {email}")
    return user


@across_organizations(_WHY)
def get_org(tx: Tx, org: str) -> orgs.Organization:
    org_id = parse_id(org) if org else None
    organization = orgs.find(tx, org_id) if org_id is not None else None
    organization = organization or orgs.find_by_slug(tx, org)  # A slug may consist of digits.
    if organization is None:
        raise NotFound(f"there is no organization {org}")
    return organization
