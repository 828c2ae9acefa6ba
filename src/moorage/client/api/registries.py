"""Routes of the group Registries. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class Registries:
    """Methods of the group Registries."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list(self) -> List[models.RegistryOut]:
        """List the private image registries of the organization, by host."""
        return self._transport.call(Call("GET", "/v1/registries"), List[models.RegistryOut])

    def create(
        self,
        *,
        host: str,
        username: str,
        secret: str,
        token_host: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.RegistryOut:
        """Store credentials for a registry.

        Pulls of this organization from that host use them: images of cronjobs and projects, and `FROM` in
        Dockerfiles. The credentials are sent to no other host, besides `tokenHost`.
        """
        return self._transport.call(
            Call(
                "POST",
                "/v1/registries",
                body=models.CreateRegistryInput(host=host, username=username, secret=secret, token_host=token_host),
                key=idempotency_key,
            ),
            models.RegistryOut,
        )

    def read(self, registry_id: int | str) -> models.RegistryOut:
        """Return a registry, without its secret."""
        return self._transport.call(Call("GET", f"/v1/registries/{path_part(registry_id)}"), models.RegistryOut)

    def update(
        self,
        registry_id: int | str,
        *,
        username: str | UnsetType = UNSET,
        secret: str | UnsetType = UNSET,
        token_host: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.RegistryOut:
        """Change the credentials for a registry. The next pull uses them."""
        return self._transport.call(
            Call(
                "PATCH",
                f"/v1/registries/{path_part(registry_id)}",
                body=models.UpdateRegistryInput(username=username, secret=secret, token_host=token_host),
                key=idempotency_key,
            ),
            models.RegistryOut,
        )

    def delete(self, registry_id: int | str, *, idempotency_key: str | None = None) -> models.RegistryDeleted:
        """Delete the credentials for a registry. Private images from there cannot be pulled any more."""
        return self._transport.call(
            Call("DELETE", f"/v1/registries/{path_part(registry_id)}", key=idempotency_key), models.RegistryDeleted
        )
