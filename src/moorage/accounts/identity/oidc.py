"""Verifies ID tokens of the configured OpenID issuers.

The keys of an issuer are cached. If a signature does not match the cached keys, the issuer may have rotated them, so
they are fetched again: a few times at once, and then at most every few seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from joserfc import errors, jwk, jws, jwt

from moorage.core.kit.clock import HOUR_MS, SECOND_MS, Clock
from moorage.core.kit.records import dataclass
from moorage.core.kit.texts import unusable
from moorage.core.net.calls import OutboundError
from moorage.core.net.client import GuardedClient
from moorage.core.net.targets import OPERATOR_TARGETS, TargetRefused
from moorage.errors import Unauthorized
from moorage.settings import is_loopback

# Only asymmetric algorithms: with HS256 or `none`, knowledge of the public key would be enough to sign.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
KEYS_MAX_AGE_MS = HOUR_MS
MIN_FETCH_INTERVAL_MS = 5 * SECOND_MS  # on average, and after a failed fetch
FETCHES_AT_ONCE = 10  # A rotation right after a fetch must not refuse logins for seconds.
LEEWAY_S = 10  # for clocks that differ
MAX_TIME_S = 2**53  # A larger JSON number is not exact, and may be too large for a float.
MAX_RESPONSE_BYTES = 2**20
FETCH_TIMEOUT_S = 10
MAX_SUBJECT_CHARS = 255  # Limit of OpenID. Truncating a longer subject could merge two users.
_INVALID = "The identity token is not valid"
_UNREACHABLE = "The identity provider cannot be reached; try again"


@dataclass(frozen=True, slots=True)
class Identity:
    """Verified claims of an ID token."""

    issuer: str
    subject: str
    email: str
    first_name: str
    last_name: str
    picture: str | None


@dataclass
class _Issuer:
    url: str
    keys: jwk.KeySet | None = None
    tried_at: deque[int] = field(default_factory=lambda: deque(maxlen=FETCHES_AT_ONCE))  # the last fetches
    has_failed: bool = False  # the last fetch
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class OidcVerifier:
    def __init__(self, issuers: tuple[str, ...], audiences: tuple[str, ...], clock: Clock) -> None:
        self._issuers = {url: _Issuer(url) for url in issuers}
        self._audiences = frozenset(audiences)
        self._clock = clock

    async def verify(self, token: str) -> Identity:
        """Return the identity of an ID token; raises Unauthorized if it is invalid."""
        header, claims = _unverified(token)
        issuer = self._issuers.get(str(claims.get("iss")))
        if issuer is None or header.get("alg") not in ALGORITHMS:
            raise Unauthorized(_INVALID)
        try:
            claims = await self._signed_claims(issuer, token)
            self._check(claims)
        except (errors.JoseError, ValueError, TypeError):
            raise Unauthorized(_INVALID) from None
        return _identity(issuer.url, claims)

    async def _signed_claims(self, issuer: _Issuer, token: str) -> dict[str, Any]:
        keys = await self._keys(issuer)
        try:
            return _decode(token, keys)
        except (errors.JoseError, ValueError):
            newer = await self._keys(issuer, tried=keys)
            if newer is keys:
                raise
            return _decode(token, newer)

    async def _keys(self, issuer: _Issuer, tried: jwk.KeySet | None = None) -> jwk.KeySet:
        """Return the issuer's keys, fetched if they are old or do not match a token (`tried`), and reachable."""
        async with issuer.lock:
            # A request that waited for the lock uses the keys that another one fetched meanwhile.
            is_due = issuer.keys is tried or not self._is_recent(issuer, 1, KEYS_MAX_AGE_MS)
            if is_due and self._may_fetch(issuer):
                issuer.has_failed = True
                try:
                    issuer.keys = await _fetch_keys(issuer)
                    issuer.has_failed = False
                except (OutboundError, TargetRefused, ValueError, KeyError) as error:
                    if issuer.keys is None:
                        raise Unauthorized(_UNREACHABLE) from error
                finally:
                    issuer.tried_at.append(self._clock.now())
            if issuer.keys is None:
                raise Unauthorized(_UNREACHABLE)
            return issuer.keys

    def _may_fetch(self, issuer: _Issuer) -> bool:
        if issuer.has_failed and self._is_recent(issuer, 1, MIN_FETCH_INTERVAL_MS):
            return False
        return not self._is_recent(issuer, FETCHES_AT_ONCE, FETCHES_AT_ONCE * MIN_FETCH_INTERVAL_MS)

    def _is_recent(self, issuer: _Issuer, number: int, period_ms: int) -> bool:
        """Tell whether the last `number` fetches were all within the period."""
        # A negative age means that the clock was set back.
        return len(issuer.tried_at) >= number and 0 <= self._clock.now() - issuer.tried_at[-number] < period_ms

    def _check(self, claims: dict[str, Any]) -> None:
        now = self._clock.now() / 1000
        audience = claims.get("aud")
        audiences = {each for each in (audience if isinstance(audience, list) else [audience]) if isinstance(each, str)}
        if not audiences & self._audiences:
            raise Unauthorized("The identity token is for another audience")
        if len(audiences) > 1 and claims.get("azp") not in self._audiences:
            raise Unauthorized("The identity token is for another audience")
        if not _is_time(claims.get("exp")) or claims["exp"] + LEEWAY_S <= now:
            raise Unauthorized("The identity token has expired")
        for name in ("nbf", "iat"):
            if name in claims and (not _is_time(claims[name]) or claims[name] - LEEWAY_S > now):
                raise Unauthorized("The identity token is not valid yet")
        if claims.get("email_verified") is not True or not isinstance(claims.get("email"), str):
            raise Unauthorized("The identity provider has not verified the mail address")
        if not isinstance(claims.get("sub"), str) or not 1 <= len(claims["sub"]) <= MAX_SUBJECT_CHARS:
            raise Unauthorized(_INVALID)
        if unusable(claims["sub"] + claims["email"]):
            raise Unauthorized(_INVALID)


def _unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode a token without verification, to find its issuer."""
    if len(token) > 16_384:
        raise Unauthorized(_INVALID)
    try:
        parts = jws.extract_compact(token.encode("ascii"))
        header = parts.headers()
        claims = json.loads(parts.payload)
    except (errors.JoseError, ValueError, TypeError, RecursionError, UnicodeError):
        raise Unauthorized(_INVALID) from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise Unauthorized(_INVALID)
    return header, claims


def _decode(token: str, keys: jwk.KeySet) -> dict[str, Any]:
    return dict(jwt.decode(token, keys, algorithms=ALGORITHMS).claims)


async def discover(client: GuardedClient, issuer: str) -> dict[str, Any]:
    """Return the discovery document of an issuer."""
    discovered = await _json(client, issuer.rstrip("/") + "/.well-known/openid-configuration")
    if discovered.get("issuer") != issuer:
        raise ValueError("the discovery document names another issuer")
    return discovered


async def _fetch_keys(issuer: _Issuer) -> jwk.KeySet:
    async with GuardedClient(OPERATOR_TARGETS) as client:
        discovered = await discover(client, issuer.url)
        address = str(discovered["jwks_uri"])
        if urlsplit(address).scheme != "https" and not is_loopback(urlsplit(address).hostname or ""):
            raise ValueError("jwks_uri must use https")
        return _import_keys((await _json(client, address))["keys"])


def _import_keys(listed: Any) -> jwk.KeySet:
    """Import the keys of an issuer, ignoring those of an unknown kind."""
    keys: list[jwk.Key] = []
    for each in listed if isinstance(listed, list) else []:
        try:
            keys.append(jwk.JWKRegistry.import_key(each))
        except (errors.JoseError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise ValueError("the issuer publishes no supported key")
    return jwk.KeySet(keys)


async def _json(client: GuardedClient, url: str) -> dict[str, Any]:
    response = await client.request("GET", url, timeout_s=FETCH_TIMEOUT_S, max_body_bytes=MAX_RESPONSE_BYTES, follow=0)
    document = response.json() if response.status < 300 else None
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _identity(issuer: str, claims: dict[str, Any]) -> Identity:
    def text(name: str) -> str:
        value = claims.get(name)
        return value.strip()[:120] if isinstance(value, str) and not unusable(value) else ""

    first, last = text("given_name"), text("family_name")
    if not first and not last:
        first, _, last = text("name").partition(" ")
    picture = claims.get("picture")
    if not isinstance(picture, str) or not picture.startswith("https://") or len(picture) > 2000 or unusable(picture):
        picture = None
    return Identity(issuer, claims["sub"], claims["email"], first, last, picture)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_TIME_S
