"""Routes of the group Registries. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List
from moorage.client.models.registries import CreateRegistryInput, RegistryDeleted, RegistryOut, UpdateRegistryInput


class AsyncRegistries:
    """Methods of the group Registries."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[RegistryOut]:
        """List the private image registries of the organization, by host."""
        result: List[RegistryOut] = await self._transport.call(Call("GET", "/v1/registries"), List[RegistryOut])
        return result

    async def create(
        self,
        *,
        host: str,
        username: str,
        secret: str,
        token_host: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> RegistryOut:
        """Store credentials for a registry.

        Pulls of this organization from that host use them: images of cronjobs and projects, and `FROM` in
        Dockerfiles. The credentials are sent to no other host, besides `tokenHost`.
        """
        result: RegistryOut = await self._transport.call(
            Call(
                "POST",
                "/v1/registries",
                body=CreateRegistryInput(host=host, username=username, secret=secret, token_host=token_host),
                key=idempotency_key,
            ),
            RegistryOut,
        )
        return result

    async def read(self, registry_id: int | str) -> RegistryOut:
        """Return a registry, without its secret."""
        result: RegistryOut = await self._transport.call(
            Call("GET", f"/v1/registries/{path_part(registry_id)}"), RegistryOut
        )
        return result

    async def update(
        self,
        registry_id: int | str,
        *,
        username: str | UnsetType = UNSET,
        secret: str | UnsetType = UNSET,
        token_host: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> RegistryOut:
        """Change the credentials for a registry. The next pull uses them."""
        result: RegistryOut = await self._transport.call(
            Call(
                "PATCH",
                f"/v1/registries/{path_part(registry_id)}",
                body=UpdateRegistryInput(username=username, secret=secret, token_host=token_host),
                key=idempotency_key,
            ),
            RegistryOut,
        )
        return result

    async def delete(self, registry_id: int | str, *, idempotency_key: str | None = None) -> RegistryDeleted:
        """Delete the credentials for a registry. Private images from there cannot be pulled any more."""
        result: RegistryDeleted = await self._transport.call(
            Call("DELETE", f"/v1/registries/{path_part(registry_id)}", key=idempotency_key), RegistryDeleted
        )
        return result
