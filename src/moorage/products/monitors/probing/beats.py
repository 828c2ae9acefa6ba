"""Results of checks: the prober creates them, recording and alerts use them."""

from __future__ import annotations

from typing import Literal

from moorage.core.kit.records import dataclass

# The phase in which a check failed.
Phase = Literal["dns", "connect", "tls", "read", "status", "keyword"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Fields of a server certificate that monitors show."""

    subject: str
    issuer: str
    valid_to: int  # ms
    fingerprint: str  # SHA-256, in hex


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a check after all of its attempts."""

    is_up: bool
    message: str
    response_ms: int | None = None  # of the last attempt; None without a response
    code: int | None = None
    phase: Phase | None = None  # None where it is up
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """One check of one monitor, for one slot of its grid."""

    org_id: int
    monitor_id: int
    slot: int  # due time
    at: int  # start time
    outcome: Outcome
    lag_ms: int
    missed: int = 0  # preceding slots without a check

    @property
    def status(self) -> str:
        return "UP" if self.outcome.is_up else "DOWN"
