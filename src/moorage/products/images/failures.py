"""Errors of the distribution API, in the format of its specification."""

from __future__ import annotations

from moorage.errors import (
    BadRequest,
    Conflict,
    DiskFull,
    Forbidden,
    MoorageError,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
)


class Refused(Exception):
    """A request is refused with a status and a code of the specification; the message is for the user."""

    def __init__(self, status: int, code: str, message: str, detail: object = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.detail = detail


# Statuses and codes; clients print the message of these. The first class that fits decides.
_KINDS: tuple[tuple[type[MoorageError], int, str], ...] = (
    (Unauthorized, 401, "UNAUTHORIZED"),
    (DiskFull, 503, "UNAVAILABLE"),
    (QuotaExceeded, 403, "DENIED"),
    (Forbidden, 403, "DENIED"),
    (Conflict, 403, "DENIED"),
    (NotFound, 404, "NAME_UNKNOWN"),
    (RateLimited, 429, "TOOMANYREQUESTS"),
    (BadRequest, 400, "UNSUPPORTED"),
)


def refusal_of(error: MoorageError) -> Refused:
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return Refused(status, code, error.message)
    return Refused(500, "UNKNOWN", error.message)


def unknown_blob(digest: str) -> Refused:
    return Refused(404, "BLOB_UNKNOWN", "this repository has no such blob", {"digest": digest})


def unknown_manifest(reference: str) -> Refused:
    return Refused(404, "MANIFEST_UNKNOWN", "this repository has no such manifest", {"reference": reference})


def unknown_upload() -> Refused:
    return Refused(404, "BLOB_UPLOAD_UNKNOWN", "this upload does not exist, or has ended")


def bad_digest(message: str) -> Refused:
    return Refused(400, "DIGEST_INVALID", message)
