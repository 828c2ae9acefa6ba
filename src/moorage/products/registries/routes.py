"""Routes of registries."""

from __future__ import annotations

from moorage.accounts.identity.caller import Caller
from moorage.accounts.identity.roles import Role
from moorage.core.db.tx import Tx
from moorage.core.http.route import Router
from moorage.products.registries import service
from moorage.products.registries.schemas import (
    CreateRegistryInput,
    RegistryDeleted,
    RegistryOut,
    UpdateRegistryInput,
)

router = Router("Registries")


@router.get("/registries", min_role=Role.MEMBER)
def list_registries(tx: Tx, caller: Caller) -> list[RegistryOut]:
    """List the private image registries of the organization, by host."""
    return [RegistryOut.of(each) for each in service.all_of(tx, caller.org_id)]


@router.post("/registries", min_role=Role.ADMIN)
def create_registry(tx: Tx, caller: Caller, body: CreateRegistryInput) -> RegistryOut:
    """Store credentials for a registry.

    Pulls of this organization from that host use them: images of cronjobs and projects, and `FROM` in Dockerfiles. The
    credentials are sent to no other host, besides `tokenHost`.
    """
    registry = service.create(
        tx,
        caller.org_id,
        caller.as_actor,
        host=body.host,
        username=body.username,
        secret=body.secret,
        token_host=body.token_host,
    )
    return RegistryOut.of(registry)


@router.get("/registries/{registry_id}", min_role=Role.MEMBER)
def read_registry(tx: Tx, caller: Caller, registry_id: int) -> RegistryOut:
    """Return a registry, without its secret."""
    return RegistryOut.of(service.get(tx, caller.org_id, registry_id))


@router.patch("/registries/{registry_id}", min_role=Role.ADMIN)
def update_registry(tx: Tx, caller: Caller, registry_id: int, body: UpdateRegistryInput) -> RegistryOut:
    """Change the credentials for a registry. The next pull uses them."""
    registry = service.update(
        tx,
        caller.org_id,
        caller.as_actor,
        registry_id,
        username=body.username,
        secret=body.secret,
        token_host=body.token_host,
    )
    return RegistryOut.of(registry)


@router.delete("/registries/{registry_id}", min_role=Role.ADMIN)
def delete_registry(tx: Tx, caller: Caller, registry_id: int) -> RegistryDeleted:
    """Delete the credentials for a registry. Private images from there cannot be pulled any more."""
    service.delete(tx, caller.org_id, caller.as_actor, registry_id)
    return RegistryDeleted(True)
