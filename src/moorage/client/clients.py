"""The two clients: connection, credential and all groups of routes."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

from moorage.client.api import Groups
from moorage.client.api_async import AsyncGroups
from moorage.client.blocking import BlockingTransport
from moorage.client.defaults import DEFAULT_URL


class Client(Groups):
    """Blocking client. Without arguments it reads MOORAGE_URL, MOORAGE_TOKEN and MOORAGE_ORG.

    An empty token or organization sends none, whatever the environment has.

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
        from moorage.client.asynchronous import AsyncTransport

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
        os.environ.get("MOORAGE_TOKEN") if token is None else token,
        os.environ.get("MOORAGE_ORG") if organization is None else organization,
    )
