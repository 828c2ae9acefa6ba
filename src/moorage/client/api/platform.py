"""Routes of the group Platform. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any

from moorage.client import models
from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call


class Platform:
    """Methods of the group Platform."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def health(self) -> models.Health:
        """Answer while the process lives. It touches nothing else."""
        return self._transport.call(Call("GET", "/health"), models.Health, has_envelope=False)

    def read_openapi(self) -> Any:
        """Return this document."""
        result: Any = self._transport.call(Call("GET", "/v1/openapi.json"), Any, has_envelope=False)
        return result
