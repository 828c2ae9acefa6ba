"""Python client of the Moorage API, blocking and asynchronous.

    from moorage.client import Client

    with Client("https://api.example.com", token="…") as client:
        for project in client.projects.iterate():
            print(project.name, project.project_url)

Methods and models are generated from the OpenAPI document. The package needs `httpx2` and `msgspec` only.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

from moorage.client import models
from moorage.client.api import Groups
from moorage.client.api_async import AsyncGroups
from moorage.client.asynchronous import AsyncTransport
from moorage.client.blocking import BlockingTransport
from moorage.client.errors import (
    ApiError,
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    Internal,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from moorage.client.streams import Event

DEFAULT_URL = "http://localhost:8080"

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadRequest",
    "Client",
    "ClientError",
    "Conflict",
    "Event",
    "Forbidden",
    "Internal",
    "NotFound",
    "QuotaExceeded",
    "RateLimited",
    "Unauthorized",
    "UnexpectedAnswer",
    "Unreachable",
    "models",
]


class Client(Groups):
    """Blocking client. Without arguments it reads MOORAGE_URL, MOORAGE_TOKEN and MOORAGE_ORG.

    `options` are those of `httpx2.Client`, such as `verify` or `transport`.
    """

    def __init__(
        self, url: str | None = None, *, token: str | None = None, organization: str | None = None, **options: Any
    ) -> None:
        self.transport = BlockingTransport(*_target(url, token, organization), **options)
        super().__init__(self.transport)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(AsyncGroups):
    """Client for asyncio; the same methods as `Client`, to be awaited."""

    def __init__(
        self, url: str | None = None, *, token: str | None = None, organization: str | None = None, **options: Any
    ) -> None:
        self.transport = AsyncTransport(*_target(url, token, organization), **options)
        super().__init__(self.transport)

    async def close(self) -> None:
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _target(url: str | None, token: str | None, organization: str | None) -> tuple[str, str | None, str | None]:
    return (
        url or os.environ.get("MOORAGE_URL") or DEFAULT_URL,
        token or os.environ.get("MOORAGE_TOKEN"),
        organization or os.environ.get("MOORAGE_ORG"),
    )
