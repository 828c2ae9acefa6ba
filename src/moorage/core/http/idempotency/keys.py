"""Idempotency keys: the same write sent twice takes effect once.

A key belongs to an organization, a caller and a route (method and path). The first request claims it; its answer is
stored in the same transaction as its effect, so that a crash leaves either both or neither: see `http.once`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.core.db.tx import Tx
from moorage.core.http.answer import JSON, STATUS, Answer
from moorage.core.http.idempotency import tables
from moorage.core.kit.clock import DAY_MS, MINUTE_MS
from moorage.core.kit.crypto import CannotDecrypt
from moorage.errors import Conflict, MoorageError, bad_field

MAX_KEY = 255
KEPT_MS = DAY_MS
# A claim that is stored before its effect counts for so long after it was last renewed.
LEASE_MS = MINUTE_MS


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


def fingerprint(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def is_kept(status: int) -> bool:
    """Tell whether an answer is for good: what comes of load or of our own failure may come out otherwise next time."""
    return status < 500 and status != 429


def is_kept_error(error: MoorageError) -> bool:
    return error.is_lasting and is_kept(STATUS[error.code])


def still_at_work() -> Conflict:
    return Conflict("The first request with this Idempotency-Key is still at work")


def begin(tx: Tx, claim: Claim) -> int | Answer:
    """Claim a key. Return the claim's id, or the first request's answer; raises Conflict where there is none."""
    where = _where(claim)
    tx.run(tables.FORGET_EXPIRED, now=tx.now, trusted_now=tx.trusted_now, **where)
    claimed = tx.find(
        tables.CLAIM, fingerprint=claim.fingerprint, created_at=tx.now, expires_at=tx.now + LEASE_MS, **where
    )
    return claimed if claimed is not None else _read(tx, claim, tx.one(tables.FIND, **where))


def find(tx: Tx, claim: Claim) -> Answer | None:
    """Return the first request's answer, or None where the key is free; raises Conflict where there is none."""
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
        raise still_at_work()
    if stored.answer is None:
        raise Conflict("This Idempotency-Key was used; its answer showed a secret and was not kept")
    return Answer(stored.status, _decrypt(tx, stored).encode(), [JSON, (b"idempotency-replayed", b"true")])


def _decrypt(tx: Tx, stored: tables.StoredAnswer) -> str:
    """Return a stored answer. Refusals, and answers of versions before this one, are not encrypted."""
    assert stored.answer is not None
    if stored.answer[:1] in ("{", "["):
        return stored.answer
    try:
        return tx.env.ring.decrypt(stored.answer, place=_place(stored.id))
    except CannotDecrypt:  # The key was taken out of the ring within the day.
        raise Conflict("This Idempotency-Key was used; its answer can no longer be read") from None


def _place(claim_id: int) -> str:
    return f"idempotency:{claim_id}"


def trace_of(answer: Answer) -> str | None:
    """Return the trace id that a failure names in its body, or None for a success."""
    if answer.status < 400:
        return None
    trace: str | None = msgspec.json.decode(answer.body)["error"].get("traceId")
    return trace


def finish(tx: Tx, claim_id: int, answer: Answer, *, secret: bool) -> None:
    """Keep an answer for a repeated request. A refusal shows no secret, so it is kept all the same.

    Others are encrypted: those of monitors show header values to members, and no secret is stored in clear.
    """
    if not is_kept(answer.status):
        forget(tx, claim_id)
        return
    kept: str | None = answer.body.decode()
    if answer.status < 400:
        kept = None if secret else tx.env.ring.encrypt(answer.body.decode(), place=_place(claim_id))
    tx.run(tables.SAVE, id=claim_id, status=answer.status, answer=kept, expires_at=tx.now + KEPT_MS)


def forget(tx: Tx, claim_id: int) -> None:
    tx.run(tables.FORGET, id=claim_id)


def renew(tx: Tx, claim_id: int) -> None:
    """Extend the lease of a claim whose request is at work."""
    tx.run(tables.RENEW, id=claim_id, expires_at=tx.now + LEASE_MS)


def release(tx: Tx) -> None:
    """Forget the claims of requests at work: they died with the process that owned the store before."""
    tx.run(tables.RELEASE)


def sweep(tx: Tx) -> None:
    tx.run(tables.FORGET_ALL_EXPIRED, now=tx.trusted_now)
