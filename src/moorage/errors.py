"""The errors a user can meet.

MoorageError              carries a code; http/ maps each code to its status, once
├── BadRequest            bad_request      the request is malformed or invalid; may name fields
├── Unauthorized          unauthorized     no credential, or one that does not hold
├── Forbidden             forbidden        role too low, suspended, waiting for approval
├── NotFound              not_found        missing, or not the caller's
├── Conflict              conflict         against existing state
│   └── IllegalMove                        a state machine has no such move from where the row is
├── QuotaExceeded         quota_exceeded   plan limit, paid feature, card wall
│   └── DiskFull                           the machine has no room for what should be stored
├── RateLimited           rate_limited     too many requests
└── Internal              internal         ours; the message never says more than that

CannotStart               the platform or a command cannot start; the message says what to do
EngineError               an engine could not do what it was asked; never shown as it is
RetryLater                a job wants another try
LostLease                 a late job: another worker holds its lease now
"""

from __future__ import annotations

from collections.abc import Mapping


class MoorageError(Exception):
    code = "internal"
    is_lasting = True  # whether the same request gets it again; others are not kept for an idempotency key

    def __init__(self, message: str, *, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fields = dict(fields) if fields else None


class BadRequest(MoorageError):
    code = "bad_request"


class Unauthorized(MoorageError):
    code = "unauthorized"


class Forbidden(MoorageError):
    code = "forbidden"


class NotFound(MoorageError):
    code = "not_found"


class Conflict(MoorageError):
    code = "conflict"


class IllegalMove(Conflict):
    def __init__(self, machine: str, at: str | None, to: str) -> None:
        super().__init__(f"cannot move {machine} to {to!r}: it is {at!r}" if at else f"cannot move {machine} to {to!r}")


class QuotaExceeded(MoorageError):
    code = "quota_exceeded"


class DiskFull(QuotaExceeded):
    is_lasting = False

    def __init__(self) -> None:
        super().__init__("The platform's disk is almost full; nothing can be stored until there is room again")


class RateLimited(MoorageError):
    code = "rate_limited"
    is_lasting = False


class Internal(MoorageError):
    code = "internal"
    is_lasting = False


def bad_field(field: str, message: str) -> BadRequest:
    """Return the error for one bad field, named as the client sent it."""
    return BadRequest("The request is not valid", fields={field: message})


class CannotStart(Exception):
    """The platform, or a command, cannot start. The message names the reason and what to do about it."""


class EngineError(Exception):
    """An engine failed; jobs turn it into a status reason that is safe to show."""


class RetryLater(Exception):
    """Raised by a job that wants another try."""

    def __init__(self, *, after_s: float, why: str) -> None:
        super().__init__(why)
        self.after_s = after_s
        self.why = why


class LostLease(Exception):
    """The job's lease went to another worker: whatever this one still does must not be written."""
