"""Verifies the signatures of webhooks on the raw bytes, before the body is parsed.

A `BodySignature` gets the body in chunks. If no body can match (no secret is configured, the header is missing or
invalid, the time is too far off) there is no `BodySignature`, and the body is not read.
"""

from __future__ import annotations

import hmac
from typing import Protocol

from moorage.core.kit.records import dataclass

TOLERANCE_S = 300
# Ten digits reach the year 2286. The limit avoids parsing huge numbers.
MAX_TIME_DIGITS = 12


class Mac(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class BodySignature:
    """Accepted signatures of a body, and the MAC that is computed over it."""

    mac: Mac
    signatures: tuple[bytes, ...]

    def update(self, chunk: bytes) -> None:
        self.mac.update(chunk)

    def is_valid(self) -> bool:
        expected = self.mac.hexdigest().encode()
        return any(hmac.compare_digest(expected, each) for each in self.signatures)


def github(secret: str, header: str | None) -> BodySignature | None:
    scheme, _, signature = (header or "").partition("=")
    if not secret or scheme != "sha256" or not signature:
        return None
    return BodySignature(hmac.new(secret.encode(), digestmod="sha256"), (signature.encode(),))


def stripe(secret: str, header: str | None, now_ms: int) -> BodySignature | None:
    """Parse `Stripe-Signature: t=<seconds>,v1=<hex>`; v1 repeats during key rotation."""
    pairs = [part.strip().partition("=") for part in (header or "").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    signatures = tuple(value.encode() for name, _, value in pairs if name == "v1")
    if not secret or not signatures or len(times) != 1 or not _is_recent(times[0], now_ms):
        return None
    return BodySignature(hmac.new(secret.encode(), times[0].encode() + b".", "sha256"), signatures)


def _is_recent(time: str, now_ms: int) -> bool:
    if not (time.isascii() and time.isdigit() and len(time) <= MAX_TIME_DIGITS):
        return False
    return abs(now_ms // 1000 - int(time)) <= TOLERANCE_S
