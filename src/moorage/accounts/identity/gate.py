"""Authenticates and authorizes requests, in the documented order:

    credential, suspension, organization, verified card, minimum role, plan

Every request reads these from the database, except for the signature of a session token: the end of a membership has
an immediate effect.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, NamedTuple, NoReturn

from sqlalchemy import Integer, null, select, type_coerce

from moorage.accounts.identity import tokens
from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.operators import role as operator_role
from moorage.accounts.identity.roles import BY_NAME, Role, lower
from moorage.accounts.identity.sessions import service as session_list
from moorage.accounts.identity.sessions.session_tokens import Session, Sessions
from moorage.accounts.identity.states import Approval
from moorage.accounts.identity.tables import account, api_token, login_session, membership, organization
from moorage.accounts.plans import service as plans
from moorage.accounts.plans.service import Standing
from moorage.core.db.query import Query, arg, scalar
from moorage.core.db.schema import Id
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.dispatch import AccessRequest
from moorage.core.http.route import Route, Scope
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.kit.ids import parse_id, token_hash
from moorage.errors import BadRequest, Forbidden, NotFound, QuotaExceeded, Unauthorized, bad_field

LAST_USED_DELAY_S = 0.05  # collects uses of tokens and sessions for one write
SEEN_INTERVAL_MS = 10 * MINUTE_MS


class _Row(NamedTuple):
    user_id: int
    email: str
    first_name: str
    last_name: str
    approval: str
    suspended_at: int | None
    org_id: int | None
    role: str | None
    plan: str | None
    card_verified: int | None
    org_suspended_at: int | None
    org_name: str | None
    session_id: int | None = None  # these two for a session with a row
    session_seen_at: int | None = None
    token_id: int | None = None  # these five for an API token
    token_role: str | None = None
    expires_at: int | None = None
    last_used_at: int | None = None
    token_name: str | None = None

    @property
    def without_organization(self) -> _Row:
        return self._replace(
            org_id=None, role=None, plan=None, card_verified=None, org_suspended_at=None, org_name=None
        )

    def caller(self, *, first_use: bool = False) -> Caller:
        role = own_role = BY_NAME[self.role] if self.role else None
        if role is not None and self.token_role is not None:
            role = lower(role, BY_NAME[self.token_role])
        standing = Standing(self.plan, bool(self.card_verified)) if self.plan is not None else None
        name = f"{self.first_name} {self.last_name}".strip()
        return Caller(
            self.user_id, self.email, name, self.token_id, self.org_id, role, standing, first_use, None,
            self.token_name, self.session_id, role is not own_role, self.org_name,
        )  # fmt: skip


_t, _u, _m, _o, _s = api_token.c, account.c, membership.c, organization.c, login_session.c
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
    type_coerce(_o.card_verified, Integer),
    _o.suspended_at,
    _o.name,
)
_BY_TOKEN = Query(
    select(*_ROW, null(), null(), _t.id, _t.role, _t.expires_at, _t.last_used_at, _t.name)
    .select_from(api_token)
    .join(account, _u.id == _t.user_id)
    .join(membership, (_m.user_id == _u.id) & (_m.org_id == _t.org_id))
    .join(organization, _o.id == _m.org_id)
    .where((_t.hash == arg("hash")) & _t.revoked_at.is_(None) & _o.deleted_at.is_(None)),
    _Row,
)
# Only the named organization or the oldest two: a user may belong to thousands.
_candidates = (_m.user_id == _u.id) & ((arg("org_id", Id) == 0) | (_m.org_id == arg("org_id", Id)))
_BY_USER = Query(
    select(*_ROW, _s.id, _s.last_seen_at)
    .select_from(account)
    .outerjoin(login_session, (_s.jti == arg("jti")) & (_s.user_id == _u.id))
    .outerjoin(membership, _candidates)
    .outerjoin(organization, (_o.id == _m.org_id) & _o.deleted_at.is_(None))
    .where(_u.id == arg("user_id"))
    .order_by(_o.created_at, _o.id)
    .limit(2),
    _Row,
)
_ORG_OF_SLUG: Query[int] = Query(select(_o.id).where((_o.slug == arg("slug")) & _o.deleted_at.is_(None)), scalar)


class IdentityGate:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self._used: dict[int, tokens.Use] = {}  # by token; not written yet
        self._writing: dict[int, tokens.Use] = {}  # by token; being written
        self._seen: set[int] = set()  # sessions with a use that is not written yet

    @across_organizations("the credential determines the organization")
    def admit(self, tx: Tx, route: Route, ask: AccessRequest) -> Caller:
        assert ask.token is not None
        # The checksum is not verified: an invalid token has no row, and most tokens are valid.
        if ask.token.startswith(tokens.PREFIXES):
            caller = self._by_token(tx, route, ask)
        else:
            caller = self._by_session(tx, route, ask)
        if route.scope is Scope.OPERATOR:
            operator_role.check(tx, caller)
        _check_standing(tx, route, caller)
        return caller._replace(address=ask.client) if route.is_write else caller

    @across_organizations("the credential and the slug determine the organization")
    def admit_to(self, tx: Tx, route: Route, ask: AccessRequest, slug: str) -> Caller:
        """Admit a caller to the organization of a path that begins with a slug.

        An API token identifies the organization. For a session it is the one with the slug, else the only one of the
        caller.
        """
        assert ask.token is not None
        named = None if ask.token.startswith(tokens.PREFIXES) else tx.find(_ORG_OF_SLUG, slug=slug.lower())
        if named is not None:
            with contextlib.suppress(NotFound):
                return self.admit(tx, route, ask._replace(organization=str(named)))
        try:
            return self.admit(tx, route, ask)
        except BadRequest:
            raise Forbidden(
                "It is not clear which organization you mean: use the slug of one as the owner, or an API token"
            ) from None

    @across_organizations("the caller has the organization")
    def recheck(self, tx: Tx, route: Route, ask: AccessRequest, caller: Caller) -> None:
        # By id, because the user may have joined another organization meanwhile.
        named = ask if ask.path_organization is not None else ask._replace(organization=str(caller.org_id))
        current = self.admit(tx, route, named)
        if caller.role_or_none is not None and not current.role.reaches(caller.role_or_none):
            raise Forbidden(f"The role changed from {caller.role_or_none} to {current.role}; open the stream again")

    def record_use(self, db: Database, caller: Caller) -> Coroutine[Any, Any, None] | None:
        """Record the use of a token or session; return a write of this use and the next ones, if none waits."""
        is_first = not self._used and not self._seen
        if caller.token_id is not None:
            known, now = self.unwritten_uses().get(caller.token_id), db.env.clock.now()
            if known is None or now - known.at > MINUTE_MS:
                self._used[caller.token_id] = tokens.Use(caller.org_id, now)
        elif caller.session_id is not None:
            self._seen.add(caller.session_id)
        return self._write_uses(db) if is_first and (self._used or self._seen) else None

    async def _write_uses(self, db: Database) -> None:
        await asyncio.sleep(LAST_USED_DELAY_S)
        used, self._used = self._used, {}
        seen, self._seen = self._seen, set()
        self._writing = self._writing | used
        try:
            await db.write(lambda tx: _touch(tx, used, seen))
        finally:
            self._writing = {token: use for token, use in self._writing.items() if token not in used}

    def unwritten_uses(self) -> dict[int, tokens.Use]:
        """Return the latest use of each token whose use is not in the store yet."""
        return self._writing | self._used

    @across_organizations("the token determines the organization")
    def _by_token(self, tx: Tx, route: Route, ask: AccessRequest) -> Caller:
        assert ask.token is not None
        row = tx.find(_BY_TOKEN, hash=token_hash(ask.token))
        if row is None or (row.expires_at is not None and row.expires_at <= tx.now):
            _reject(ask)
        ask.count_request(True)
        _check_suspension(route, row)
        if route.scope is Scope.OPERATOR:
            return row.without_organization.caller()
        if route.scope is not Scope.IDENTITY or route.operation == "whoami":
            for named in (ask.organization, ask.path_organization):
                if named is not None and parse_id(named or "-") != row.org_id:
                    raise NotFound("There is no such organization")
        _check_organization(route, row)
        return row.caller(first_use=row.last_used_at is None or tx.now - row.last_used_at > MINUTE_MS)

    @across_organizations("the request names the organization; membership is checked here")
    def _by_session(self, tx: Tx, route: Route, ask: AccessRequest) -> Caller:
        assert ask.token is not None
        named = _named_organization(route, ask)
        session = self.sessions.find(ask.token)
        rows = self._rows(tx, session, named) if session is not None else []
        if not rows:
            _reject(ask)
        ask.count_request(True)
        _check_suspension(route, rows[0])
        seen_at = rows[0].session_seen_at
        first_use = seen_at is not None and tx.now - seen_at > SEEN_INTERVAL_MS
        if route.scope is Scope.OPERATOR or (route.scope is Scope.IDENTITY and route.operation != "whoami"):
            # Without an organization, so that an idempotency key keeps its owner when the first one is created.
            return rows[0].without_organization.caller(first_use=first_use)
        mine = [row for row in rows if row.plan is not None]
        if named is not None and not mine:
            raise NotFound("There is no such organization")
        if route.scope is Scope.IDENTITY:
            return (mine[0] if mine else rows[0].without_organization).caller(first_use=first_use)
        if len(mine) != 1:
            raise bad_field("x-organization-id", "is required: you belong to more than one organization, or none")
        _check_organization(route, mine[0])
        return mine[0].caller(first_use=first_use)

    @across_organizations("the session determines the user")
    def _rows(self, tx: Tx, session: Session, named: int | None) -> list[_Row]:
        """Return a row per organization of the user; none if the session was revoked."""
        rows = tx.all(_BY_USER, user_id=session.user_id, jti=session.jti, org_id=named or 0)
        return [] if session.is_listed and rows and rows[0].session_id is None else rows


@across_organizations("one write records tokens and sessions of several organizations")
def _touch(tx: Tx, used: Mapping[int, tokens.Use], seen: Collection[int]) -> None:
    if used:
        tokens.touch_all(tx, used)
    if seen:
        session_list.touch_all(tx, seen)


def _reject(ask: AccessRequest) -> NoReturn:
    """Reject an invalid credential and count it against the address of the client."""
    ask.count_request(False)
    raise Unauthorized("The token is not valid or has expired")


def _named_organization(route: Route, ask: AccessRequest) -> int | None:
    """Return the organization id of a request: None without one, -1 if it is invalid."""
    if route.scope is Scope.OPERATOR or (route.scope is Scope.IDENTITY and route.operation != "whoami"):
        return None
    text = ask.path_organization if route.scope is Scope.PATH_ORG else ask.organization
    return None if text is None else parse_id(text or "-") or -1


def _check_suspension(route: Route, user: _Row) -> None:
    if user.suspended_at is not None:
        raise Forbidden("This user is suspended")
    if user.approval != Approval.APPROVED and route.scope in (Scope.ORG, Scope.PATH_ORG, Scope.OPERATOR):
        raise Forbidden("This user waits for approval")


def _check_organization(route: Route, row: _Row) -> None:
    if row.org_suspended_at is not None and route.scope in (Scope.ORG, Scope.PATH_ORG):
        raise Forbidden("This organization is suspended; ask the operator of the platform")


def _check_standing(tx: Tx, route: Route, caller: Caller) -> None:
    settings = tx.env.settings
    if route.scope in (Scope.IDENTITY, Scope.OPERATOR):
        return
    assert caller.standing is not None
    if route.walled and not plans.counts_as_verified(settings, caller.standing):
        raise QuotaExceeded("This organization needs a verified payment method; add a card under /v1/billing")
    if isinstance(route.min_role, Role) and not caller.role.reaches(route.min_role):
        raise Forbidden(f"This needs the {route.min_role} role")
    if route.paid and not plans.counts_as_paid(settings, caller.standing):
        raise QuotaExceeded("This needs a paid plan")
