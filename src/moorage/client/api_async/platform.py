"""Routes of the group Platform. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any

from moorage.client import models
from moorage.client.asynchronous import AsyncTransport
from moorage.client.exchange import Call


class AsyncPlatform:
    """Methods of the group Platform."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def health(self) -> models.Health:
        """Answer while the process lives. It touches nothing else."""
        return await self._transport.call(Call("GET", "/health"), models.Health, has_envelope=False)

    async def read_openapi(self) -> Any:
        """Return this document."""
        result: Any = await self._transport.call(Call("GET", "/v1/openapi.json"), Any, has_envelope=False)
        return result
