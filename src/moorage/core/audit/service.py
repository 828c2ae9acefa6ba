"""Tamper-evident audit log: a chain of sealed rows per organization.

The seal of a row is an HMAC over the row and over the chain's head before it, which is an HMAC of the previous seal.
`verify` walks the chains: a changed, removed or inserted row breaks its chain, and a truncated chain does not reach the
head. The key is a platform secret in the vault, so write access to the database alone is not enough to seal a row or
to reset the head to an older one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.core.audit import tables
from moorage.core.audit.tables import Activity, Head
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.records import dataclass
from moorage.core.vault import service as vault

BEFORE_ALL = -(2**62)  # Numbers start at 1, but a row inserted by an attacker may have any.
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class TokenActor:
    """The API token of a write."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Actor:
    user_id: int | None
    name: str
    address: str | None = None  # address of the client
    token: TokenActor | None = None  # None for a session


THE_PLATFORM = Actor(None, "Moorage")


@dataclass(frozen=True, slots=True)
class AuditTarget:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class BrokenRow:
    org_id: int
    seq: int
    why: str


def record(tx: Tx, org_id: int, actor: Actor, action: str, target: AuditTarget, **details: Any) -> None:
    """Add a row to an organization's feed. Details must not contain secrets."""
    key = _key(tx)
    head = tx.find(tables.TAKE_NEXT, org_id=org_id)
    if head is None:
        tx.find(tables.START, org_id=org_id, seq=0, seal="")
        head = tx.one(tables.TAKE_NEXT, org_id=org_id)
    if actor.address is not None:
        details["address"] = actor.address
    if actor.token is not None:
        details["token"] = {"id": actor.token.id, "name": actor.token.name}
    row: dict[str, Any] = {
        "org_id": org_id,
        "seq": head.seq,
        "at": tx.now,
        "user_id": actor.user_id,
        "actor": actor.name,
        "action": action,
        "target_kind": target.kind,
        "target": target.name,
        "details": _encode(details).decode(),
    }
    seal = _seal(key, head.seal, row)
    tx.one(tables.ADD, **row, seal=seal)
    tx.run(tables.SET_SEAL, org_id=org_id, seal=_head_seal(key, seal))


def latest(tx: Tx, org_id: int, *, before: int | None, most: int) -> list[Activity]:
    return tx.all(tables.LATEST, org_id=org_id, before=before or 2**62, most=most)


def latest_of(
    tx: Tx,
    org_id: int,
    target: AuditTarget,
    *,
    before: int | None,
    most: int,
    since: int = 0,
    until: int | None = None,
) -> list[Activity]:
    """Return the feed of one resource, newest first; `since` and `until` are inclusive times."""
    return tx.all(
        tables.LATEST_OF,
        org_id=org_id,
        target_kind=target.kind,
        target=target.name,
        before=before or 2**62,
        since=since,
        until=2**62 if until is None else until,
        most=most,
    )


def all_of(tx: Tx, org_id: int, target: AuditTarget, action: str) -> list[Activity]:
    """Return all rows of one action on a resource, oldest first."""
    return tx.all(tables.ACTIONS_OF, org_id=org_id, target_kind=target.kind, target=target.name, action=action)


def after(tx: Tx, org_id: int, seq: int, *, most: int = 100) -> list[Activity]:
    """Return the rows after a number, oldest first, to follow the feed."""
    return tx.all(tables.FROM, org_id=org_id, after=seq, most=most)


@across_organizations("an operator verifies the chains of all organizations")
def organizations(tx: Tx) -> list[int]:
    """Return all organizations with a chain, or with rows but no chain."""
    return tx.all(tables.ORGANIZATIONS)


def verify(tx: Tx, org_id: int) -> tuple[int, BrokenRow | None]:
    """Check a chain; return the number of valid rows, and the first invalid one."""
    key = _key(tx)
    head = tx.find(tables.HEAD, org_id=org_id)
    seq, before = 0, ""
    for row in _rows(tx, org_id):
        if row.seq <= seq:
            return seq, BrokenRow(org_id, row.seq, "the row was inserted")
        if row.seq != seq + 1:
            return seq, BrokenRow(org_id, seq + 1, "the row is missing")
        values = {name: getattr(row, name) for name in row.__slots__ if name not in ("id", "seal")}
        if not _same(_seal(key, before, values), row.seal):
            return seq, BrokenRow(org_id, row.seq, "the row was changed")
        seq, before = row.seq, _head_seal(key, row.seal)
    return seq, _check_end(org_id, head, seq, before)


def _check_end(org_id: int, head: Head | None, seq: int, seal: str) -> BrokenRow | None:
    if head is None:
        return BrokenRow(org_id, seq + 1, "the head of the chain is missing") if seq else None
    if head.seq != seq:
        return BrokenRow(org_id, seq + 1, f"the newest rows are missing: the chain should end at {head.seq}")
    if not _same(head.seal, seal):
        return BrokenRow(org_id, seq + 1, "the head of the chain was changed")
    return None


def _rows(tx: Tx, org_id: int) -> Iterator[Activity]:
    seq = BEFORE_ALL
    while rows := tx.all(tables.FROM, org_id=org_id, after=seq, most=1000):
        yield from rows
        seq = rows[-1].seq


def ensure_key(tx: Tx) -> None:
    """Create the sealing key at the first start; raises CannotDecrypt if the master key is not the one of the store."""
    if not vault.check_key(tx, PLATFORM_ORG_ID, "audit", "key"):
        vault.put(tx, PLATFORM_ORG_ID, "audit", "key", secrets.token_hex(32))


_keys: dict[str, bytes] = {}


def _key(tx: Tx) -> bytes:
    """Return the sealing key, cached by its ciphertext to decrypt it once."""
    from moorage.core.vault.tables import FIND

    stored = tx.one(FIND, org_id=PLATFORM_ORG_ID, resource="audit", name="key")
    key = _keys.get(stored.ciphertext)
    if key is None:
        if len(_keys) > 64:
            _keys.clear()
        key = _keys[stored.ciphertext] = bytes.fromhex(tx.env.ring.decrypt(stored.ciphertext, place=stored.place))
    return key


def _seal(key: bytes, before: str, row: dict[str, Any]) -> str:
    return hmac.digest(key, before.encode() + _encode(row), "sha256").hex()


def _same(one: str, other: str) -> bool:
    # As bytes: `compare_digest` raises for text with non-ASCII characters, which a changed seal may have.
    return hmac.compare_digest(one.encode(), other.encode())


def _head_seal(key: bytes, seal: str) -> str:
    return hmac.digest(key, b"head " + seal.encode(), "sha256").hex()
