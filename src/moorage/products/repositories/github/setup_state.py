"""OAuth `state`: signed, short-lived, and bound to one organization and user."""

from __future__ import annotations

import secrets

from joserfc import errors, jwk, jwt

from moorage.core.env import Env
from moorage.core.kit.clock import MINUTE_MS, SKEW_MS
from moorage.core.kit.crypto import derive
from moorage.core.kit.records import dataclass

LIFETIME_MS = 15 * MINUTE_MS
MAX_STATE_CHARS = 1024


@dataclass(frozen=True, slots=True)
class SetupState:
    org_id: int
    user_id: int
    nonce: str
    expires_at: int

    def is_current(self, now: int) -> bool:
        """Return whether the state is neither expired nor from a clock that was ahead."""
        return now < self.expires_at <= now + LIFETIME_MS + SKEW_MS


def make(env: Env, org_id: int, user_id: int) -> tuple[str, int]:
    """Return a new state and its expiry time."""
    expires_at = env.clock.now() + LIFETIME_MS
    claims = {"org": org_id, "user": user_id, "nonce": secrets.token_urlsafe(16), "until": expires_at}
    return jwt.encode({"alg": "HS256"}, claims, _key(env), algorithms=["HS256"]), expires_at


def read(env: Env, text: str) -> SetupState | None:
    """Return a state with a valid signature; the caller checks expiry and reuse."""
    if len(text) > MAX_STATE_CHARS:
        return None
    try:
        claims = jwt.decode(text, _key(env), algorithms=["HS256"]).claims
        return SetupState(claims["org"], claims["user"], claims["nonce"], claims["until"])
    except (errors.JoseError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _key(env: Env) -> jwk.OctKey:
    return jwk.OctKey.import_key(derive(env.session_key, "github setup"))
