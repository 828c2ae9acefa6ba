"""What tests of apps behind the gateway share: one host, what is wanted of it, and how it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from tests.gateway import support
from tests.gateway.support import Reply

from moorage.gateway.wanted import AppRoute, Wanted
from moorage.settings import Settings

HOST = "app.localhost"
REQUEST = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def wanted(*addresses: str, generation: int = 1, is_counted: bool = True, **fields: Any) -> Wanted:
    logged = frozenset({HOST} if is_counted else ())
    return Wanted(apps={HOST: AppRoute(addresses, generation)}, logged=logged, **fields)


async def get(
    settings: Settings, host: str = HOST, path: str = "/", headers: str = "", *, method: str = "GET"
) -> Reply:
    return await support.get(settings, host, path, headers, method=method)


@asynccontextmanager
async def session_of(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{settings.gateway_port}"
    async with aiohttp.ClientSession(base, headers={"Host": HOST}, timeout=aiohttp.ClientTimeout(20)) as session:
        yield session
