"""Errors of the API, and of starting and running the platform.

MoorageError              has a code; `core/http` maps each code to a status
├── BadRequest            bad_request      the request is malformed or invalid; may name fields
├── Unauthorized          unauthorized     no credential, or an invalid one
├── Forbidden             forbidden        role too low, suspended, waiting for approval
├── NotFound              not_found        missing, or not the caller's
├── Conflict              conflict         conflicts with existing state
│   ├── IllegalMove                        the state machine has no transition from the current status
│   └── Elsewhere                          another machine has the data; the API relays the request to it
├── QuotaExceeded         quota_exceeded   plan limit, paid feature, card wall
│   └── DiskFull                           the machine has too little disk space
├── RateLimited           rate_limited     too many requests
└── Internal              internal         a failure of the platform; the message has no details

CannotStart               the platform or a command cannot start; the message says what to do
EngineError               an engine failed; users never see this message
RetryLater                a job asks for another attempt
LostLease                 another worker holds the lease of the job
"""

from __future__ import annotations

from collections.abc import Mapping


class MoorageError(Exception):
    code = "internal"
    is_lasting = True  # A repeated request fails the same way; only such errors are stored for an idempotency key.

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
        # Formatted, because the repr of a state has the name of its class.
        super().__init__(f"cannot move {machine} to '{to}'" + (f": it is '{at}'" if at else ""))


class Elsewhere(Conflict):
    is_lasting = False

    def __init__(self, machine_id: int, message: str) -> None:
        super().__init__(message)
        self.machine_id = machine_id


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
    """Return the error of one invalid field, under its name in the request."""
    return BadRequest("The request is not valid", fields={field: message})


class CannotStart(Exception):
    """The platform or a command cannot start; the message names the remedy."""


class EngineError(Exception):
    """An engine failed; jobs convert it to a status reason that is safe to show."""


class RetryLater(Exception):
    """Raised by a job handler to run again after a delay."""

    def __init__(self, *, after_s: float, why: str) -> None:
        super().__init__(why)
        self.after_s = after_s
        self.why = why


class LostLease(Exception):
    """Another worker holds the lease of the job; this attempt must not write any more."""
