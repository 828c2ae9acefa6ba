"""A running gateway for tests of what it is told; a module that needs another has a fixture of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.gateway.app_backend import Backend, running_backend
from tests.gateway.support import make_settings, running_caddy

from moorage.core.telemetry import Telemetry
from moorage.gateway.routes import Routes
from moorage.gateway.wanted import Wanted
from moorage.settings import Settings


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A gateway in a folder with all that has a meaning to Caddy, its patterns and its regular expressions."""
    settings = make_settings(tmp_path_factory.mktemp("gw") / "d$1{t}[a]~")
    with running_caddy(settings):
        yield settings


@pytest.fixture
def settings(shared: Settings) -> Iterator[Settings]:
    """A gateway that serves nothing yet."""
    yield shared
    asyncio.run(Routes(shared, Telemetry(quiet=True)).apply(Wanted()))


@pytest.fixture
def gateway(settings: Settings) -> Routes:
    return Routes(settings, Telemetry(quiet=True))


@pytest.fixture
async def app() -> AsyncIterator[Backend]:
    async with running_backend("one") as backend:
        yield backend


@pytest.fixture
async def other() -> AsyncIterator[Backend]:
    async with running_backend("two") as backend:
        yield backend


@pytest.fixture(params=["counted", "uncounted"])
def is_counted(request: pytest.FixtureRequest) -> bool:
    """Apps that are counted have a route of their own; all others are found after it turned out to be no file."""
    found: bool = request.param == "counted"
    return found
