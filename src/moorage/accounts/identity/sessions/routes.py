"""Routes that list and revoke the sessions of the caller."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.schemas import RevokedSession, SessionOut
from moorage.accounts.identity.sessions import service as session_list
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router, Scope

router = Router("Identity")


@router.get("/sessions", scope=Scope.IDENTITY)
def list_sessions(tx: Tx, caller: Caller) -> list[SessionOut]:
    """List the caller's sessions, the most recently seen first. Needs a session token.

    `device` is derived from the `User-Agent` of the login, and `address` is its client address. `lastSeenAt` is updated
    every ten minutes. `current` is the session of this request.
    """
    caller.check_is_session()
    return [SessionOut.of(each, caller.session_id) for each in session_list.all_of(tx, caller.user_id)]


@router.delete("/sessions/{session_id}", scope=Scope.IDENTITY)
def revoke_session(tx: Tx, caller: Caller, session_id: int) -> RevokedSession:
    """Revoke a session of the caller immediately. Needs a session token.

    Its event streams end within 15 seconds.
    """
    caller.check_is_session()
    session_list.revoke(tx, caller.user_id, session_id)
    return RevokedSession(True)
