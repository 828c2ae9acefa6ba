"""Encrypted secrets: store, read, list, remove, and rotate to a new key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.crypto import CannotDecrypt
from moorage.core.kit.envvars import ENV_BYTES, MAX_ENV_ENTRIES, TOO_MANY_BYTES, size_of
from moorage.core.vault import tables
from moorage.core.vault.tables import Secret
from moorage.errors import bad_field

BATCH = 500


def put(tx: Tx, org_id: int, resource: str, name: str, value: str, *, origin: str | None = None) -> None:
    """Store a secret; `origin` is the resource that generated it, None a user."""
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
    """Return the origin of a secret; None for a user's own or a missing one."""
    stored = tx.find(tables.FIND, org_id=org_id, resource=resource, name=name)
    return None if stored is None else stored.origin


def find(tx: Tx, org_id: int, resource: str, name: str) -> str | None:
    """Return the value of a secret, or None; raises CannotDecrypt."""
    stored = tx.find(tables.FIND, org_id=org_id, resource=resource, name=name)
    return None if stored is None else tx.env.ring.decrypt(stored.ciphertext, place=stored.place)


def check_key(tx: Tx, org_id: int, resource: str, name: str) -> bool:
    """Return whether a secret is stored; raises CannotDecrypt if its key is not among the master keys."""
    stored = tx.find(tables.FIND, org_id=org_id, resource=resource, name=name)
    if stored is None:
        return False
    tx.env.ring.check_key(stored.ciphertext)
    return True


def names(tx: Tx, org_id: int, resource: str) -> list[str]:
    return [secret.name for secret in tx.all(tables.LIST, org_id=org_id, resource=resource)]


def values(tx: Tx, org_id: int, resource: str) -> dict[str, str]:
    stored = tx.all(tables.LIST, org_id=org_id, resource=resource)
    return {secret.name: tx.env.ring.decrypt(secret.ciphertext, place=secret.place) for secret in stored}


def replace_all(
    tx: Tx, org_id: int, resource: str, wanted: Sequence[tuple[str, str | None]]
) -> tuple[list[str], list[str]]:
    """Replace the secrets of a resource; without a value, the stored one stays.

    Returns the names of changed and of removed secrets. Raises BadRequest for a new secret without a value, and if the
    secrets exceed their limits with the values that stay.
    """
    stored = _readable_values(tx, org_id, resource)
    for index, (name, value) in enumerate(wanted):
        if value is None and name not in stored:
            raise bad_field(f"secrets[{index}].value", "is required: there is no secret of that name yet")
    _check_limits(stored, {name: stored[name] if value is None else value for name, value in wanted})
    removed = sorted(stored.keys() - {name for name, _ in wanted})
    new_values = {name: value for name, value in wanted if value is not None}
    changed = sorted(name for name, value in new_values.items() if stored.get(name) != value)
    for name in removed:
        remove(tx, org_id, resource, name)
    for name in changed:
        put(tx, org_id, resource, name, new_values[name])
    return changed, removed


def _readable_values(tx: Tx, org_id: int, resource: str) -> dict[str, str | None]:
    """Return the secrets by name; None for a value that cannot be decrypted."""
    readable: dict[str, str | None] = {}
    for secret in tx.all(tables.LIST, org_id=org_id, resource=resource):
        readable[secret.name] = None
        with suppress(CannotDecrypt):
            readable[secret.name] = tx.env.ring.decrypt(secret.ciphertext, place=secret.place)
    return readable


def _check_limits(stored: Mapping[str, str | None], wanted: Mapping[str, str | None]) -> None:
    """Refuse too many or too long secrets; sets of earlier versions may be larger, and must not grow."""
    if len(wanted) > max(MAX_ENV_ENTRIES, len(stored)):
        raise bad_field("secrets", f"should have at most {MAX_ENV_ENTRIES} entries")
    size = _size_of_all(wanted)
    if size > ENV_BYTES and size > _size_of_all(stored):
        raise bad_field("secrets", f"{TOO_MANY_BYTES}, with the stored values of secrets that are sent without one")


def _size_of_all(secrets: Mapping[str, str | None]) -> int:
    return sum(size_of(name, value or "") for name, value in secrets.items())


@across_organizations("the edge serves the functions of every organization")
def all_below(tx: Tx, prefix: str) -> Iterator[Secret]:
    """Yield all secrets, encrypted, of resources that start with a prefix."""
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
    """Re-encrypt a batch; return its last id (0 at the end) and the count."""
    changed = 0
    stored = tx.all(tables.NEXT_AFTER, after=after, most=BATCH)
    for secret in stored:
        if not tx.env.ring.is_current(secret.ciphertext):
            value = tx.env.ring.decrypt(secret.ciphertext, place=secret.place)
            new = tx.env.ring.encrypt(value, place=secret.place)
            changed += tx.run(tables.ROTATE, id=secret.id, old=secret.ciphertext, new=new, now=tx.now)
    return (stored[-1].id if len(stored) == BATCH else 0), changed
