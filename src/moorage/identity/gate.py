"""The gate: from a credential to a caller, in the order the API promises.

    credential, suspension, organization, card wall, role floor, plan

Everything but the token's signature is read from the store on every request: a membership that ended a moment ago no
longer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import select

from moorage.db.query import Query, arg
from moorage.db.scope import across_organizations
from moorage.db.store import Database
from moorage.db.tx import Tx
from moorage.errors import Forbidden, NotFound, QuotaExceeded, Unauthorized, bad_field
from moorage.http.dispatch import Ask
from moorage.http.route import Route, Scope
from moorage.identity import tokens
from moorage.identity.caller import Caller
from moorage.identity.roles import Role, lower
from moorage.identity.sessions import Sessions
from moorage.identity.states import Approval
from moorage.identity.tables import account, api_token, membership, organization
from moorage.kit.clock import MINUTE_MS
from moorage.kit.ids import is_token, parse_id, token_hash
from moorage.plans import service as plans
from moorage.plans.service import Standing


@dataclass(frozen=True, slots=True)
class _Row:
    """A user, joined with one of their organizations."""

    user_id: int
    email: str
    first_name: str
    last_name: str
    approval: str
    suspended_at: int | None
    org_id: int | None
    role: str | None
    plan: str | None
    card_verified: bool | None

    def caller(self, *, token_id: int | None = None, role: Role | None = None, first_use: bool = False) -> Caller:
        standing = Standing(self.plan, bool(self.card_verified)) if self.plan is not None else None
        return Caller(
            user_id=self.user_id,
            email=self.email,
            name=f"{self.first_name} {self.last_name}".strip(),
            token_id=token_id,
            found_org_id=self.org_id,
            found_role=role or (Role(self.role) if self.role else None),
            standing=standing,
            is_first_use=first_use,
        )


@dataclass(frozen=True, slots=True)
class _TokenRow:
    token_id: int
    token_role: str
    expires_at: int | None
    last_used_at: int | None
    row: _Row

    @classmethod
    def of(cls, token_id: int, role: str, expires_at: int | None, last_used_at: int | None, *rest: object) -> _TokenRow:
        return cls(token_id, role, expires_at, last_used_at, _Row(*rest))  # type: ignore[arg-type]


_t, _u, _m, _o = api_token.c, account.c, membership.c, organization.c
_ROW = (
    _u.id,
    _u.email,
    _u.first_name,
    _u.last_name,
    _u.status,
    _u.suspended_at,
    _m.org_id,
    _m.role,
    _o.plan,
    _o.card_verified,
)
_BY_TOKEN = Query(
    select(_t.id, _t.role, _t.expires_at, _t.last_used_at, *_ROW)
    .select_from(api_token)
    .join(account, _u.id == _t.user_id)
    .join(membership, (_m.user_id == _u.id) & (_m.org_id == _t.org_id))
    .join(organization, _o.id == _m.org_id)
    .where((_t.hash == arg("hash")) & _t.revoked_at.is_(None) & _o.deleted_at.is_(None)),
    _TokenRow.of,
)
_BY_USER = Query(
    select(*_ROW)
    .select_from(account)
    .outerjoin(membership, _m.user_id == _u.id)
    .outerjoin(organization, (_o.id == _m.org_id) & _o.deleted_at.is_(None))
    .where(_u.id == arg("user_id"))
    .order_by(_o.created_at, _o.id),
    _Row,
)


class IdentityGate:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    @across_organizations("who the caller is decides which organization it is")
    def admit(self, tx: Tx, route: Route, ask: Ask) -> Caller:
        assert ask.token is not None
        if is_token(ask.token, *tokens.PREFIXES):
            caller = self._by_token(tx, route, ask)
        else:
            caller = self._by_session(tx, route, ask)
        _check_standing(tx, route, caller)
        return caller

    async def passed(self, db: Database, caller: Caller) -> None:
        token_id = caller.token_id
        if token_id is not None:
            await db.write(lambda tx: tokens.touch(tx, caller.org_id, token_id))

    @across_organizations("the token says which organization it is")
    def _by_token(self, tx: Tx, route: Route, ask: Ask) -> Caller:
        assert ask.token is not None
        found = tx.find(_BY_TOKEN, hash=token_hash(ask.token))
        if found is None or (found.expires_at is not None and found.expires_at <= tx.now):
            raise Unauthorized("The token is not valid or has expired")
        _check_suspension(route, found.row)
        if route.scope is not Scope.IDENTITY or route.operation == "whoami":
            for named in (ask.organization, ask.path_organization):
                if named is not None and parse_id(named or "-") != found.row.org_id:
                    raise NotFound("There is no such organization")
        assert found.row.role is not None
        return found.row.caller(
            token_id=found.token_id,
            role=lower(Role(found.token_role), Role(found.row.role)),
            first_use=found.last_used_at is None or tx.now - found.last_used_at > MINUTE_MS,
        )

    @across_organizations("the request names the organization; membership is checked here")
    def _by_session(self, tx: Tx, route: Route, ask: Ask) -> Caller:
        assert ask.token is not None
        rows = tx.all(_BY_USER, user_id=self.sessions.read(ask.token).user_id)
        if not rows:
            raise Unauthorized("The token is not valid or has expired")
        _check_suspension(route, rows[0])
        mine = [row for row in rows if row.plan is not None]
        if route.scope is Scope.IDENTITY:
            return _for_identity(route, ask, rows[0], mine).caller()
        named = ask.path_organization if route.scope is Scope.PATH_ORG else ask.organization
        if named is None:
            if len(mine) != 1:
                raise bad_field("x-organization-id", "is required: you belong to more than one organization, or none")
            return mine[0].caller()
        return _named(mine, named).caller()


def _for_identity(route: Route, ask: Ask, user: _Row, mine: list[_Row]) -> _Row:
    """Only `whoami` looks at the organization: the one that is named, else the oldest.

    Elsewhere a session acts in none, so that an idempotency key does not change its owner when the first is made.
    """
    nowhere = replace(user, org_id=None, role=None, plan=None, card_verified=None)
    if route.operation != "whoami":
        return nowhere
    if ask.organization is not None:
        return _named(mine, ask.organization)
    return mine[0] if mine else nowhere


def _named(mine: list[_Row], named: str) -> _Row:
    org_id = parse_id(named or "-")
    for row in mine:
        if row.org_id == org_id:
            return row
    raise NotFound("There is no such organization")


def _check_suspension(route: Route, user: _Row) -> None:
    if user.suspended_at is not None:
        raise Forbidden("This user is suspended")
    if user.approval != Approval.APPROVED and route.scope in (Scope.ORG, Scope.PATH_ORG):
        raise Forbidden("This user waits for approval")


def _check_standing(tx: Tx, route: Route, caller: Caller) -> None:
    settings = tx.env.settings
    if route.scope is Scope.IDENTITY:
        return
    assert caller.standing is not None
    if route.walled and not plans.counts_as_verified(settings, caller.standing):
        raise QuotaExceeded("This organization needs a verified payment method; add a card under /v1/billing")
    if isinstance(route.floor, Role) and not caller.role.reaches(route.floor):
        raise Forbidden(f"This needs the {route.floor} role")
    if route.paid and not plans.counts_as_paid(settings, caller.standing):
        raise QuotaExceeded("This needs a paid plan")
