"""Users and organizations of the whole platform, for operators."""

from __future__ import annotations

from sqlalchemy import Text, func, or_, select

from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.tables import account, membership, organization
from moorage.accounts.identity.users import User
from moorage.accounts.plans import service as plans
from moorage.core.db.query import Query, arg, columns, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.errors import NotFound

_WHY = "the operator sees all organizations and users"
ESCAPE = "\\"


@dataclass(frozen=True, slots=True)
class Tenant:
    id: int
    name: str
    slug: str
    plan: str
    card_verified: bool
    suspended_at: int | None
    created_at: int
    owner: str | None  # mail address of the first owner


_o, _m, _u = organization.c, membership.c, account.c
_owner = (
    select(_u.email)
    .select_from(membership.join(account, _u.id == _m.user_id))
    .where((_m.org_id == _o.id) & (_m.role == Role.OWNER.value))
    .order_by(_m.id)
    .limit(1)
    .correlate(organization)
    .scalar_subquery()
)
_alive = _o.deleted_at.is_(None)
_found = _alive & or_(
    func.lower(_o.name).like(arg("pattern"), escape=ESCAPE),
    _o.slug.like(arg("pattern"), escape=ESCAPE),
    _owner.like(arg("pattern"), escape=ESCAPE),
    _o.id == arg("id"),
)
_TENANT = (_o.id, _o.name, _o.slug, _o.plan, _o.card_verified, _o.suspended_at, _o.created_at, _owner)
_PAGE = Query(
    select(*_TENANT).where(_found).order_by(_o.id.desc()).limit(arg("most")).offset(arg("skip")),
    Tenant,
)
_COUNT: Query[int] = Query(select(func.count()).select_from(organization).where(_found), scalar)
_FIND = Query(select(*_TENANT).where(_alive & (_o.id == arg("id"))), Tenant)
_users_found = or_(
    _u.email.like(arg("pattern"), escape=ESCAPE),
    func.lower(_u.first_name + " " + _u.last_name).like(arg("pattern"), escape=ESCAPE),
) & or_(arg("status", Text) == "", _u.status == arg("status", Text))
_USERS = Query(
    select(*columns(account)).where(_users_found).order_by(_u.id.desc()).limit(arg("most")).offset(arg("skip")), User
)
_COUNT_USERS: Query[int] = Query(select(func.count()).select_from(account).where(_users_found), scalar)


@across_organizations(_WHY)
def page(tx: Tx, search: str, *, skip: int, most: int) -> tuple[list[Tenant], int]:
    """Return organizations whose name, slug, owner or id matches, newest first; and their number."""
    filters = {"pattern": _pattern(search), "id": int(search) if search.isdecimal() and len(search) < 19 else 0}
    return tx.all(_PAGE, skip=skip, most=most, **filters), tx.one(_COUNT, **filters)


@across_organizations(_WHY)
def get(tx: Tx, org_id: int) -> Tenant:
    tenant = tx.find(_FIND, id=org_id)
    if tenant is None:
        raise NotFound("There is no such organization")
    return tenant


def counts(tx: Tx, org_id: int) -> dict[str, int]:
    """Return the number of each resource of an organization."""
    return {name: count(tx, org_id) for name, count in tx.env.hooks.of(plans.COUNT).items()}


def metered(tx: Tx, org_id: int) -> dict[str, float]:
    """Return the metered usage of an organization in this calendar month."""
    return {name: measure(tx, org_id) for name, measure in tx.env.hooks.of(plans.METER).items()}


@across_organizations(_WHY)
def users_page(tx: Tx, search: str, status: str, *, skip: int, most: int) -> tuple[list[User], int]:
    """Return users whose mail address or name matches, newest first; and their number."""
    filters = {"pattern": _pattern(search), "status": status}
    return tx.all(_USERS, skip=skip, most=most, **filters), tx.one(_COUNT_USERS, **filters)


def _pattern(search: str) -> str:
    """Return the LIKE pattern of texts that contain the search text."""
    text = search.strip().lower()
    for special in (ESCAPE, "%", "_"):
        text = text.replace(special, ESCAPE + special)
    return f"%{text}%"
