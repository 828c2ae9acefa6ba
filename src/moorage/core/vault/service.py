"""Secrets at rest: put, read, list, remove, and rotate to a new key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.vault import tables
from moorage.core.vault.tables import Secret
from moorage.errors import bad_field

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


def replace_all(
    tx: Tx, org_id: int, resource: str, wanted: Sequence[tuple[str, str | None]]
) -> tuple[list[str], list[str]]:
    """Make these the secrets of a resource; one without a value keeps the stored value.

    Return the names that were set, and those that were removed. Raises BadRequest for a new one without a value.
    """
    stored = set(names(tx, org_id, resource))
    for index, (name, value) in enumerate(wanted):
        if value is None and name not in stored:
            raise bad_field(f"secrets[{index}].value", "is required: there is no secret of that name yet")
    removed = sorted(stored - {name for name, _ in wanted})
    given = {name: value for name, value in wanted if value is not None}
    changed = sorted(
        name for name, value in given.items() if name not in stored or _differs(tx, org_id, resource, name, value)
    )
    for name in removed:
        remove(tx, org_id, resource, name)
    for name in changed:
        put(tx, org_id, resource, name, given[name])
    return changed, removed


def _differs(tx: Tx, org_id: int, resource: str, name: str, value: str) -> bool:
    try:
        return find(tx, org_id, resource, name) != value
    except CannotDecrypt:  # A new value replaces one that cannot be decrypted any more.
        return True


@across_organizations("the function gateway serves the functions of every organization")
def all_below(tx: Tx, prefix: str) -> Iterator[Secret]:
    """Yield every stored secret, still encrypted, whose resource starts with a prefix."""
    after = 0
    while page := tx.all(tables.NEXT_BELOW, pattern=f"{prefix}%", after=after, most=BATCH):
        yield from page
        after = page[-1].id


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
