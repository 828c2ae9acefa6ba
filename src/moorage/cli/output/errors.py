"""Errors of the client as text: message, fields, trace id and the next step."""

from __future__ import annotations

from moorage.cli.output.terminal import note, plain
from moorage.client.errors import (
    ApiError,
    ClientError,
    Forbidden,
    Internal,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)

NEXT_STEPS: dict[type[ClientError], str] = {
    Unreachable: "start a platform with `moorage up`, or choose another one with `moorage login URL` or MOORAGE_URL",
    Unauthorized: "sign in with `moorage login`; the token may have expired or was revoked",
    Forbidden: "`moorage whoami` shows your role; an admin or owner can change it",
    QuotaExceeded: "`moorage status` shows usage and limits",
    RateLimited: "wait a minute and try again",
    Internal: "try again; the operator finds the trace id in the platform's log",
    UnexpectedAnswer: "`moorage whoami` shows both versions; install the release of the platform",
}


def show(error: ClientError) -> None:
    """Print an error on standard error."""
    note(f"moorage: {plain(error)}", "red")
    if isinstance(error, ApiError):
        for name, message in error.fields.items():
            note(f"  {plain(name)}: {plain(message)}")
        if error.trace_id:
            note(f"  trace id: {plain(error.trace_id)}", "dim")
    if isinstance(error, NotFound):
        from moorage.cli.session import names

        for line in names.suggestions():
            note(f"  {plain(line)}")
    if step := _next_step(error):
        note(f"  next: {step}")


def _next_step(error: ClientError) -> str:
    if isinstance(error, ApiError) and "x-organization-id" in error.fields:
        return "choose one of `moorage orgs list` with --org ID, MOORAGE_ORG, or `moorage context use NAME --org ID`"
    return NEXT_STEPS.get(type(error), "")
