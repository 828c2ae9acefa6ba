"""Routes of the group Platform. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from typing import Any

from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call
from moorage.client.models.platform import Health


class Platform:
    """Methods of the group Platform."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def health(self) -> Health:
        """Answer while the process lives. It touches nothing else."""
        result: Health = self._transport.call(Call("GET", "/health"), Health, has_envelope=False)
        return result

    def read_openapi(self) -> Any:
        """Return this document."""
        result: Any = self._transport.call(Call("GET", "/v1/openapi.json"), Any, has_envelope=False)
        return result
