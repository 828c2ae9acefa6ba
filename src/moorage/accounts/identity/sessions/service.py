"""Sessions with a row per login, which lets users list and revoke each session.

The `jti` of a session token names its row. Without the row the token is invalid, regardless of its signature. Tokens
from before this table existed have another kind of `jti` and are valid until they expire.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, func, insert, select, update

from moorage.accounts.identity.sessions.session_tokens import Sessions, new_jti
from moorage.accounts.identity.tables import login_session
from moorage.core.db.query import Command, Query, arg, scalar
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import HOUR_MS
from moorage.core.kit.records import dataclass
from moorage.errors import NotFound

# Per user; a login beyond that ends the least recently seen one. Demo logins would add rows without limit.
MAX_SESSIONS = 1000
MAX_DEVICE_CHARS = 120
_WHY = "a session belongs to a user, not to an organization"

_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListedSession:
    id: int
    device: str
    address: str | None
    created_at: int
    last_seen_at: int
    expires_at: int


_s = login_session.c
_mine = _s.user_id == arg("user_id")
_ADD: Query[int] = Query(
    insert(login_session).returning(_s.id),
    scalar,
    sets=("jti", "user_id", "device", "address", "created_at", "last_seen_at", "expires_at"),
)
_LIST = Query(
    select(_s.id, _s.device, _s.address, _s.created_at, _s.last_seen_at, _s.expires_at)
    .where(_mine & (_s.expires_at > arg("now")))
    .order_by(_s.last_seen_at.desc(), _s.id.desc()),
    ListedSession,
)
_COUNT = Query(select(func.count()).where(_mine), scalar)
_OLDEST = select(_s.id).where(_mine).order_by(_s.last_seen_at, _s.id).limit(arg("most"))
_DROP_OLDEST = Command(delete(login_session).where(_s.id.in_(_OLDEST.scalar_subquery())))
_REVOKE = Command(delete(login_session).where(_mine & (_s.id == arg("id"))))
_SEEN = Command(update(login_session).where(_s.id == arg("id")).values(last_seen_at=arg("now")))
_SWEEP = Command(delete(login_session).where(_s.expires_at <= arg("now")))


@across_organizations(_WHY)
def log_in(tx: Tx, sessions: Sessions, user_id: int, *, device: str, address: str | None = None) -> str:
    surplus = int(tx.one(_COUNT, user_id=user_id)) - MAX_SESSIONS + 1
    if surplus > 0:
        tx.run(_DROP_OLDEST, user_id=user_id, most=surplus)
    jti = new_jti()
    tx.one(
        _ADD,
        jti=jti,
        user_id=user_id,
        device=device[:MAX_DEVICE_CHARS],
        address=address,
        created_at=tx.now,
        last_seen_at=tx.now,
        expires_at=tx.now + tx.env.settings.session_hours * HOUR_MS,
    )
    return sessions.make(user_id, jti)


@across_organizations(_WHY)
def all_of(tx: Tx, user_id: int) -> list[ListedSession]:
    """Return the valid sessions of a user, the most recently seen first."""
    return tx.all(_LIST, user_id=user_id, now=tx.now)


@across_organizations(_WHY)
def revoke(tx: Tx, user_id: int, session_id: int) -> None:
    """Revoke a session of a user; its token is invalid from the next request on."""
    if tx.run(_REVOKE, user_id=user_id, id=session_id) == 0:
        raise NotFound("There is no such session")


@across_organizations(_WHY)
def touch_all(tx: Tx, session_ids: Iterable[int]) -> None:
    tx.run_many(_SEEN, [{"id": session_id, "now": tx.now} for session_id in session_ids])


@across_organizations("expired sessions of all users")
def sweep(tx: Tx) -> None:
    tx.run(_SWEEP, now=tx.trusted_now)


def device_of(user_agent: str | None) -> str:
    """Return a short name of a user agent: `Firefox on Linux`, `curl/8.5.0`."""
    text = "".join(c for c in user_agent or "" if c.isprintable()).strip()
    if not text:
        return "unknown"
    browser = next((name for mark, name in _BROWSERS if mark in text), None)
    if browser is None or not text.startswith("Mozilla/"):
        return text.split(" ")[0][:MAX_DEVICE_CHARS]
    system = next((name for mark, name in _SYSTEMS if mark in text), None)
    return f"{browser} on {system}" if system else browser
