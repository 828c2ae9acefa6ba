"""Secrets at rest: put, read, list, remove, and rotate to a new key."""

from __future__ import annotations

from moorage.db.scope import across_organizations
from moorage.db.tx import Tx
from moorage.vault import tables

BATCH = 500


def put(tx: Tx, org_id: int, resource: str, name: str, value: str, *, origin: str | None = None) -> None:
    """Store a secret. `origin` names what made it; without one it is a user's own, whatever it was before."""
    ciphertext = tx.env.ring.encrypt(value, place=tables.place(org_id, resource, name))
    stored = tx.find(tables.FIND, org_id=org_id, resource=resource, name=name)
    if stored is not None:
        tx.run(tables.REPLACE, id=stored.id, new=ciphertext, now=tx.now, new_origin=origin)
        return
    tx.one(
        tables.ADD,
        org_id=org_id,
        resource=resource,
        name=name,
        ciphertext=ciphertext,
        updated_at=tx.now,
        origin=origin,
    )


def find_origin(tx: Tx, org_id: int, resource: str, name: str) -> str | None:
    """Return what made a secret; None for a user's own, and where there is no such secret."""
    stored = tx.find(tables.FIND, org_id=org_id, resource=resource, name=name)
    return None if stored is None else stored.origin


def find(tx: Tx, org_id: int, resource: str, name: str) -> str | None:
    """Return a secret's value, or None without one. A damaged one raises: nothing may go on with an empty value."""
    stored = tx.find(tables.FIND, org_id=org_id, resource=resource, name=name)
    return None if stored is None else tx.env.ring.decrypt(stored.ciphertext, place=stored.place)


def names(tx: Tx, org_id: int, resource: str) -> list[str]:
    return [secret.name for secret in tx.all(tables.LIST, org_id=org_id, resource=resource)]


def values(tx: Tx, org_id: int, resource: str) -> dict[str, str]:
    stored = tx.all(tables.LIST, org_id=org_id, resource=resource)
    return {secret.name: tx.env.ring.decrypt(secret.ciphertext, place=secret.place) for secret in stored}


def remove(tx: Tx, org_id: int, resource: str, name: str) -> bool:
    return tx.run(tables.REMOVE, org_id=org_id, resource=resource, name=name) > 0


def remove_all(tx: Tx, org_id: int, resource: str) -> None:
    tx.run(tables.REMOVE_ALL, org_id=org_id, resource=resource)


@across_organizations("rotation re-encrypts every secret of the platform")
def rotate_some(tx: Tx, after: int) -> tuple[int, int]:
    """Re-encrypt the next secrets under the current key. Return the last id seen (0 at the end) and how many."""
    changed = 0
    stored = tx.all(tables.NEXT_AFTER, after=after, most=BATCH)
    for secret in stored:
        if not tx.env.ring.is_current(secret.ciphertext):
            value = tx.env.ring.decrypt(secret.ciphertext, place=secret.place)
            new = tx.env.ring.encrypt(value, place=secret.place)
            changed += tx.run(tables.ROTATE, id=secret.id, old=secret.ciphertext, new=new, now=tx.now)
    return (stored[-1].id if len(stored) == BATCH else 0), changed
