"""What one check found: made by the prober, written down and judged by others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How far a check came that failed.
Phase = Literal["dns", "connect", "tls", "read", "status", "keyword"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate, as far as people want to know."""

    subject: str
    issuer: str
    valid_to: int  # ms
    fingerprint: str  # SHA-256, in hex


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended, after all of its tries."""

    is_up: bool
    message: str
    response_ms: int | None = None  # of the last try; None where nothing answered
    code: int | None = None
    phase: Phase | None = None  # None where it is up
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """One check of one monitor, for one slot of its grid."""

    org_id: int
    monitor_id: int
    slot: int  # when it was due
    at: int  # when it began
    outcome: Outcome
    lag_ms: int
    missed: int = 0  # slots before this one for which no check was made

    @property
    def status(self) -> str:
        return "UP" if self.outcome.is_up else "DOWN"
