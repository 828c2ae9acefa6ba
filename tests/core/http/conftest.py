"""Fixtures of the tests over a socket: the real API on a real port, with short timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.core.http.live_server import POST, LiveServer, Platform, live_platform

from moorage.app import App
from moorage.core.http.server import listen, make_server


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("platform")
    with live_platform(folder, sqlite_template, header_s=1.0, body_timeout_s=1.0) as platform:
        yield platform


@pytest.fixture
def server(platform: Platform) -> Iterator[LiveServer]:
    """The server; checks that it still serves after each test and that no exception went unhandled."""
    yield platform.server
    assert platform.server.is_serving()
    assert platform.server.crashes == []


@pytest.fixture
def post(platform: Platform) -> bytes:
    """The head of a write request with a valid token."""
    return POST + f"Authorization: Bearer {platform.token}\r\n".encode()


@pytest.fixture
async def origin(app: App) -> AsyncIterator[str]:
    """The real server on a free port."""
    sock = listen("127.0.0.1", 0)
    server = make_server(app.asgi)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    server.should_exit = True
    await task
