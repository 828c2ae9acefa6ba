"""Telling a real delivery from a forged one, from the raw bytes and before anything in them is read.

A `Seal` is fed the body as it comes in. Where nothing a body holds could make the signature good (no secret is
configured, the header is missing or makes no sense, the time is too far off) there is no seal, and no need to read on.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Protocol

TOLERANCE_S = 300
# Ten digits reach the year 2286; far more would be an attempt to make us parse a huge number.
MAX_TIME_DIGITS = 12


class Mac(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Seal:
    """A signature that waits for the body it should belong to."""

    mac: Mac
    given: tuple[bytes, ...]

    def update(self, chunk: bytes) -> None:
        self.mac.update(chunk)

    def holds(self) -> bool:
        expected = self.mac.hexdigest().encode()
        return any(hmac.compare_digest(expected, each) for each in self.given)


def github(secret: str, header: str | None) -> Seal | None:
    """Return the seal of `X-Hub-Signature-256: sha256=<hex>`."""
    scheme, _, given = (header or "").partition("=")
    if not secret or scheme != "sha256" or not given:
        return None
    return Seal(hmac.new(secret.encode(), digestmod="sha256"), (given.encode(),))


def stripe(secret: str, header: str | None, now_ms: int) -> Seal | None:
    """Return the seal of `Stripe-Signature: t=<seconds>,v1=<hex>`; while a secret is rotated there are several v1."""
    pairs = [part.strip().partition("=") for part in (header or "").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    given = tuple(value.encode() for name, _, value in pairs if name == "v1")
    if not secret or not given or len(times) != 1 or not _is_recent(times[0], now_ms):
        return None
    return Seal(hmac.new(secret.encode(), times[0].encode() + b".", "sha256"), given)


def _is_recent(time: str, now_ms: int) -> bool:
    if not (time.isascii() and time.isdigit() and len(time) <= MAX_TIME_DIGITS):
        return False
    return abs(now_ms // 1000 - int(time)) <= TOLERANCE_S
