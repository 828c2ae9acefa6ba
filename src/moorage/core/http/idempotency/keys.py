"""Idempotency keys: a write that is sent twice takes effect once.

A key belongs to an organization, a caller and a route (method and path). The first request claims it; its answer is
stored in the same transaction as its effect, so that a crash leaves both or neither: see `http.idempotency.once`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from moorage.core.db.tx import Tx
from moorage.core.http.answer import JSON, STATUS, Answer
from moorage.core.http.idempotency import tables
from moorage.core.kit.clock import DAY_MS, MINUTE_MS
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.records import dataclass
from moorage.errors import Conflict, MoorageError, bad_field

MAX_KEY = 255
MAX_ROUTE = 255  # characters; an index row of PostgreSQL is at most 2,704 bytes
KEPT_MS = DAY_MS
MAX_ANSWER_BYTES = 256 * 1024
LEASE_MS = MINUTE_MS  # of a claim that is stored before its effect, since its last renewal


@dataclass(frozen=True, slots=True)
class Claim:
    org_id: int
    actor: str
    route: str
    key: str
    fingerprint: str

    @property
    def place(self) -> tuple[int, str, str, str]:
        return (self.org_id, self.actor, self.route, self.key)


def check_key(key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise bad_field("Idempotency-Key", f"should be 1 to {MAX_KEY} printable ASCII characters")
    return key


def route_of(method: str, path: str) -> str:
    """Return method and path, shortened by a hash of both where they are too long for the index."""
    route = f"{method} {path}"
    if len(route) <= MAX_ROUTE:
        return route
    return f"{route[:200]}#{fingerprint(route.encode())}"


def fingerprint(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def is_kept(status: int) -> bool:
    """Check whether an answer is stored; 429 and 5xx may succeed when repeated."""
    return status < 500 and status != 429


def is_kept_error(error: MoorageError) -> bool:
    return error.is_lasting and is_kept(STATUS[error.code])


def in_progress() -> Conflict:
    return Conflict("The first request with this Idempotency-Key is still at work")


def begin(tx: Tx, claim: Claim) -> int | Answer:
    """Claim a key; return the claim's id or the stored answer. Raises Conflict."""
    where = _where(claim)
    tx.run(tables.FORGET_EXPIRED, now=tx.now, trusted_now=tx.trusted_now, **where)
    claim_id = tx.find(
        tables.CLAIM, fingerprint=claim.fingerprint, created_at=tx.now, expires_at=tx.now + LEASE_MS, **where
    )
    return claim_id if claim_id is not None else _read(tx, claim, tx.one(tables.FIND, **where))


def find(tx: Tx, claim: Claim) -> Answer | None:
    """Return the stored answer, or None if the key is free; raises Conflict."""
    stored = tx.find(tables.FIND, **_where(claim))
    if stored is None or stored.expires_at <= (tx.now if stored.status is None else tx.trusted_now):
        return None
    return _read(tx, claim, stored)


def _where(claim: Claim) -> dict[str, Any]:
    return {"org_id": claim.org_id, "actor": claim.actor, "route": claim.route, "key": claim.key}


def _read(tx: Tx, claim: Claim, stored: tables.StoredAnswer) -> Answer:
    if stored.fingerprint != claim.fingerprint:
        raise Conflict("This Idempotency-Key was used with another body")
    if stored.status is None:
        raise in_progress()
    if stored.answer is None:
        raise Conflict("This Idempotency-Key was used; its answer showed a secret or was too long, and was not kept")
    return Answer(stored.status, _decrypt(tx, stored).encode(), [JSON, (b"idempotency-replayed", b"true")])


def _decrypt(tx: Tx, stored: tables.StoredAnswer) -> str:
    """Decrypt a stored answer; refusals and those of old versions are plain."""
    assert stored.answer is not None
    if stored.answer[:1] in ("{", "["):
        return stored.answer
    try:
        return tx.env.ring.decrypt(stored.answer, place=_place(stored.id))
    except CannotDecrypt:  # The operator removed the key from the ring within the last day.
        raise Conflict("This Idempotency-Key was used; its answer can no longer be read") from None


def _place(claim_id: int) -> str:
    return f"idempotency:{claim_id}"


def trace_of(answer: Answer) -> str | None:
    """Return the trace id in the body of a failure, or None for a success."""
    if answer.status < 400:
        return None
    trace: str | None = msgspec.json.decode(answer.body)["error"].get("traceId")
    return trace


def finish(tx: Tx, claim_id: int, answer: Answer, *, secret: bool) -> None:
    """Store an answer for repeated requests.

    Refusals contain no secrets and are stored as they are. Other answers are encrypted, because some show secrets to
    members, such as header values of monitors. Answers of routes with `secret` and long answers are not stored: only
    the key is, so that a repeated request has no second effect.
    """
    if not is_kept(answer.status):
        forget(tx, claim_id)
        return
    text = None
    if answer.status >= 400:
        text = answer.body.decode() if len(answer.body) <= MAX_ANSWER_BYTES else None
    elif not secret and len(answer.body) <= MAX_ANSWER_BYTES:
        text = tx.env.ring.encrypt(answer.body.decode(), place=_place(claim_id))
    tx.run(tables.SAVE, id=claim_id, status=answer.status, answer=text, expires_at=tx.now + KEPT_MS)


def forget(tx: Tx, claim_id: int) -> None:
    tx.run(tables.FORGET, id=claim_id)


def renew(tx: Tx, claim_id: int) -> None:
    """Extend the lease of a claim while its request runs."""
    tx.run(tables.RENEW, id=claim_id, expires_at=tx.now + LEASE_MS)


def release(tx: Tx) -> None:
    """Delete claims of unfinished requests of the previous process."""
    tx.run(tables.RELEASE)


def sweep(tx: Tx) -> None:
    tx.run(tables.FORGET_ALL_EXPIRED, now=tx.trusted_now)
