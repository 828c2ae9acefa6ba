"""The commands of `moorage admin`, for operators with shell access to the host."""

from __future__ import annotations

from moorage.accounts.identity import logins, tokens, users
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.organizations import members
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.users import User
from moorage.accounts.plans.service import Plan
from moorage.core.audit.service import THE_PLATFORM
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
def approve(tx: Tx, email: str) -> User:
    user = get_user(tx, email)
    users.approve(tx, user)
    return user


@across_organizations(_WHY)
def suspend(tx: Tx, email: str, *, suspended: bool) -> User:
    user = get_user(tx, email)
    users.suspend(tx, user, suspended=suspended)
    return user


@across_organizations(_WHY)
def set_card(tx: Tx, org: str, *, verified: bool) -> str:
    organization = _get_org(tx, org)
    if not orgs.set_card(tx, organization.id, THE_PLATFORM, verified=verified):
        raise Conflict("a newer event has already decided about the card")
    return organization.name


@across_organizations(_WHY)
def set_plan(tx: Tx, org: str, plan: str) -> str:
    if plan not in tuple(Plan):
        raise BadRequest(f"there is no plan {plan!r}; there are {', '.join(Plan)}")
    organization = _get_org(tx, org)
    if not orgs.set_plan(tx, organization.id, THE_PLATFORM, Plan(plan)):
        raise Conflict("a newer event has already decided about the plan")
    return organization.name


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
    org_id = _get_org(tx, org).id if org is not None else None
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
def _get_org(tx: Tx, org: str) -> orgs.Organization:
    org_id = parse_id(org) if org else None
    organization = orgs.find(tx, org_id) if org_id is not None else None
    organization = organization or orgs.find_by_slug(tx, org)  # A slug may consist of digits.
    if organization is None:
        raise NotFound(f"there is no organization {org}")
    return organization
