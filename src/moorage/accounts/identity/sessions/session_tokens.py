"""Session tokens: JWTs that name a user and nothing else."""

from __future__ import annotations

from functools import cached_property

from joserfc import errors, jwk, jwt

from moorage.core.env import Env
from moorage.core.kit.clock import HOUR_MS, SKEW_MS
from moorage.core.kit.ids import new_uuid, parse_id
from moorage.core.kit.records import dataclass

MAX_CACHED = 4096
LISTED = "s-"  # prefix of the `jti` of sessions with a row


@dataclass(frozen=True, slots=True)
class Session:
    user_id: int
    expires_at: int
    jti: str
    issued_at: int = 0

    @property
    def is_listed(self) -> bool:
        """Whether the session has a row, and is invalid without it."""
        return self.jti.startswith(LISTED)


def new_jti() -> str:
    return LISTED + new_uuid()


class Sessions:
    """Creates and verifies session tokens; caches valid signatures."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._verified: dict[str, Session] = {}

    @cached_property
    def _key(self) -> jwk.OctKey:
        return jwk.OctKey.import_key(self._env.session_key)

    def make(self, user_id: int, jti: str | None = None) -> str:
        """Return a token. Without a listed `jti` it cannot be revoked; use `log_in`."""
        now = self._env.clock.now()
        expires = now + self._env.settings.session_hours * HOUR_MS
        claims = {"sub": str(user_id), "iat": now // 1000, "exp": expires // 1000, "jti": jti or new_uuid()}
        return jwt.encode({"alg": "HS256"}, claims, self._key, algorithms=["HS256"])

    def find(self, token: str) -> Session | None:
        """Return the session of a token; None if its signature is invalid or it expired."""
        session = self._verified.get(token)
        if session is None:
            session = self._verify(token)
            if session is None:
                return None
            if len(self._verified) >= MAX_CACHED:
                self._verified.clear()
            self._verified[token] = session
        now = self._env.clock.now()
        # A token issued in the future comes from a clock that was ahead, and would be valid for too long.
        return session if session.issued_at - SKEW_MS <= now < session.expires_at else None

    def _verify(self, token: str) -> Session | None:
        if len(token) > 4096:
            return None
        try:
            claims = jwt.decode(token, self._key, algorithms=["HS256"]).claims
        except (errors.JoseError, ValueError, TypeError, RecursionError):
            return None
        subject, expires, jti = claims.get("sub"), claims.get("exp"), claims.get("jti", "")
        user_id = parse_id(subject) if isinstance(subject, str) and subject else None
        issued = claims.get("iat", 0)
        if user_id is None or type(expires) is not int or type(issued) is not int or not isinstance(jti, str):
            return None
        return Session(user_id, expires * 1000, jti, issued * 1000)
