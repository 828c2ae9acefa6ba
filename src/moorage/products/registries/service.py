"""Store, change and delete credentials of registries, and find them for a pull."""

from __future__ import annotations

from moorage.core.audit import service as audit
from moorage.core.audit.service import Actor, AuditTarget
from moorage.core.db.tx import Tx
from moorage.core.vault import service as vault
from moorage.errors import Conflict, NotFound
from moorage.products.registries import tables
from moorage.products.registries.tables import Registry
from moorage.runtime.images.sign_in import Credentials

MAX_REGISTRIES = 50  # of one organization
SECRET = "secret"  # noqa: S105 - the name in the vault


def all_of(tx: Tx, org_id: int) -> list[Registry]:
    return tx.all(tables.ALL_OF, org_id=org_id)


def get(tx: Tx, org_id: int, registry_id: int) -> Registry:
    registry = tx.find(tables.FIND, org_id=org_id, id=registry_id)
    if registry is None:
        raise NotFound("There is no such registry")
    return registry


def create(tx: Tx, org_id: int, actor: Actor, *, host: str, username: str, secret: str, token_host: str) -> Registry:
    if tx.one(tables.COUNT, org_id=org_id) >= MAX_REGISTRIES:
        raise Conflict(f"An organization has at most {MAX_REGISTRIES} registries")
    registry_id = tx.find(
        tables.ADD,
        org_id=org_id,
        host=host,
        username=username,
        token_host=token_host,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if registry_id is None:
        raise Conflict(f"This organization has credentials for {host} already; change those")
    vault.put(tx, org_id, _resource(registry_id), SECRET, secret)
    registry = get(tx, org_id, registry_id)
    audit.record(tx, org_id, actor, "registry.created", _target(registry), username=username)
    return registry


def update(
    tx: Tx,
    org_id: int,
    actor: Actor,
    registry_id: int,
    *,
    username: str | None,
    secret: str | None,
    token_host: str | None,
) -> Registry:
    """Change credentials; None keeps a value."""
    registry = get(tx, org_id, registry_id)
    username = registry.username if username is None else username
    token_host = registry.token_host if token_host is None else token_host
    tx.run(tables.UPDATE, org_id=org_id, id=registry_id, new_username=username, new_token_host=token_host, now=tx.now)
    if secret is not None:
        vault.put(tx, org_id, _resource(registry_id), SECRET, secret)
    audit.record(
        tx, org_id, actor, "registry.updated", _target(registry), username=username, has_new_secret=secret is not None
    )
    return get(tx, org_id, registry_id)


def delete(tx: Tx, org_id: int, actor: Actor, registry_id: int) -> None:
    registry = get(tx, org_id, registry_id)
    _remove(tx, org_id, registry)
    audit.record(tx, org_id, actor, "registry.deleted", _target(registry))


def delete_all(tx: Tx, org_id: int) -> None:
    """Delete all registries of a deleted organization."""
    for registry in all_of(tx, org_id):
        _remove(tx, org_id, registry)


def find_credentials(tx: Tx, org_id: int, host: str) -> Credentials | None:
    """Return the credentials for a registry, or None; raises CannotDecrypt."""
    registry = tx.find(tables.FIND_BY_HOST, org_id=org_id, host=host)
    secret = None if registry is None else vault.find(tx, org_id, _resource(registry.id), SECRET)
    if registry is None or secret is None:
        return None
    return Credentials(registry.host, registry.username, secret, registry.token_host)


def _remove(tx: Tx, org_id: int, registry: Registry) -> None:
    vault.remove_all(tx, org_id, _resource(registry.id))
    tx.run(tables.DELETE, org_id=org_id, id=registry.id)


def _resource(registry_id: int) -> str:
    """Return the resource name of a registry in the vault."""
    return f"registry:{registry_id}"


def _target(registry: Registry) -> AuditTarget:
    return AuditTarget("registry", registry.host)
