"""API tokens: shown once, stored as a hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import func, insert, select, update

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.accounts.identity.tables import api_token
from moorage.core.audit import service as audit
from moorage.core.audit.service import AuditTarget
from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.clock import DAY_MS
from moorage.core.kit.ids import OrgId, new_token, token_hash, token_preview
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, Forbidden, NotFound

MAX_OF_ORGANIZATION = 200  # Each has its own rate limit.
MAX_IN_DEVELOPMENT = 1_000
PREFIXES = ("psk_live_", "psk_test_")


class Use(NamedTuple):
    """Use of a token: its organization and the time in milliseconds."""

    org_id: OrgId
    at: int


# Returns the latest use of each token that this process has not written yet.
UNWRITTEN_USES: Hook[[], Mapping[int, Use]] = Hook("api_token.unwritten_uses")


@dataclass(frozen=True, slots=True)
class ApiToken:
    id: int
    user_id: int
    name: str
    role: str
    preview: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None


_t = api_token.c
_COLUMNS = (_t.id, _t.user_id, _t.name, _t.role, _t.preview, _t.created_at, _t.expires_at, _t.last_used_at)
_live = (_t.org_id == arg("org_id")) & _t.revoked_at.is_(None)
_LIST = Query(select(*_COLUMNS).where(_live).order_by(_t.id.desc()), ApiToken)
_FIND = Query(select(*_COLUMNS).where(_live & (_t.id == arg("id"))), ApiToken)
_COUNT: Query[int] = Query(
    select(func.count()).where(_live & (_t.expires_at.is_(None) | (_t.expires_at > arg("now")))), scalar
)
_ADD: Query[int] = Query(
    insert(api_token).returning(_t.id),
    scalar,
    sets=("org_id", "user_id", "name", "role", "hash", "preview", "created_at", "expires_at"),
)
_FIND_LIVE: Query[int] = Query(
    select(_t.id).where(
        _live
        & (_t.user_id == arg("user_id"))
        & (_t.hash == arg("hash"))
        & (_t.expires_at.is_(None) | (_t.expires_at > arg("now")))
    ),
    scalar,
)
_OF_USER = Query(
    select(*_COLUMNS).where(_live & (_t.user_id == arg("user_id")) & (_t.name == arg("name"))).order_by(_t.id), ApiToken
)
_REVOKE = Command(update(api_token).where(_live & (_t.id == arg("id"))).values(revoked_at=arg("now")))
_TOUCH = Command(
    update(api_token).where((_t.org_id == arg("org_id")) & (_t.id == arg("id"))).values(last_used_at=arg("now"))
)


def all_of(tx: Tx, org_id: int) -> list[ApiToken]:
    uses = {number: use.at for mapping in tx.env.hooks.call(UNWRITTEN_USES) for number, use in mapping.items()}
    listed = tx.all(_LIST, org_id=org_id)
    return [replace(token, last_used_at=uses.get(token.id, token.last_used_at)) for token in listed]


def is_valid(tx: Tx, org_id: int, user_id: int, raw: str) -> bool:
    """Check whether a raw value is a user's token for this organization."""
    return tx.find(_FIND_LIVE, org_id=org_id, user_id=user_id, hash=token_hash(raw), now=tx.now) is not None


def named(tx: Tx, org_id: int, user_id: int, name: str) -> list[ApiToken]:
    """Return a user's tokens of one name for this organization."""
    return tx.all(_OF_USER, org_id=org_id, user_id=user_id, name=name)


def create(
    tx: Tx, org_id: int, caller: Caller, name: str, *, role: Role | None = None, expires_in_days: int | None = None
) -> tuple[ApiToken, str]:
    """Create a token; return its row and its raw value, which is not stored."""
    role = role or caller.role
    if not caller.role.reaches(role):
        raise Forbidden("You cannot make a token with a role above your own")
    # The audit feed of an organization has one writer at a time: no other transaction can add tokens now.
    audit.record(tx, org_id, caller.as_actor, "api_token.created", AuditTarget("api_token", name), role=role)
    is_production = tx.env.settings.is_production
    most = MAX_OF_ORGANIZATION if is_production else MAX_IN_DEVELOPMENT
    if tx.one(_COUNT, org_id=org_id, now=tx.now) >= most:
        raise Conflict(f"An organization has at most {most:,} API tokens; revoke one that is not used")
    raw = new_token(PREFIXES[0] if is_production else PREFIXES[1])
    token_id = tx.one(
        _ADD,
        org_id=org_id,
        user_id=caller.user_id,
        name=name,
        role=role,
        hash=token_hash(raw),
        preview=token_preview(raw),
        created_at=tx.now,
        expires_at=_expiry(tx, org_id, caller, expires_in_days),
    )
    return get(tx, org_id, token_id), raw


def _expiry(tx: Tx, org_id: int, caller: Caller, expires_in_days: int | None) -> int | None:
    """Return the expiry of a new token: no later than that of the caller's token."""
    requested = None if expires_in_days is None else tx.now + expires_in_days * DAY_MS
    most = get(tx, org_id, caller.token_id).expires_at if caller.token_id is not None else None
    return min((at for at in (requested, most) if at is not None), default=None)


def get(tx: Tx, org_id: int, token_id: int) -> ApiToken:
    token = tx.find(_FIND, org_id=org_id, id=token_id)
    if token is None:
        raise NotFound("There is no such API token")
    return token


def revoke(tx: Tx, org_id: int, caller: Caller, token_id: int) -> None:
    token = get(tx, org_id, token_id)
    tx.run(_REVOKE, org_id=org_id, id=token_id, now=tx.now)
    audit.record(tx, org_id, caller.as_actor, "api_token.revoked", AuditTarget("api_token", token.name))


@across_organizations("one write records tokens of several organizations")
def touch_all(tx: Tx, uses: Mapping[int, Use]) -> None:
    """Record uses of tokens."""
    tx.run_many(_TOUCH, [{"org_id": use.org_id, "id": number, "now": use.at} for number, use in uses.items()])
