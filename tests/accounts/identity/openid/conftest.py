"""One OpenID provider for all tests of this folder, and a platform that trusts it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.accounts.identity.openid.provider import AUDIENCE, Provider, running_provider

from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.settings import Settings


@pytest.fixture(scope="session")
def started() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
async def provider(started: Provider) -> Provider:
    await started.tell("reset")
    return started


@pytest.fixture
def clock() -> ManualClock:
    """A clock ahead of the provider's, which is the machine's: tokens that a slow test signs later are valid."""
    return ManualClock(time.time_ns() // 1_000_000 + 2 * MINUTE_MS)


@pytest.fixture
def settings(tmp_path: Path, request: pytest.FixtureRequest, started: Provider) -> Settings:
    marker = request.node.get_closest_marker("settings")
    given: dict[str, Any] = {
        "data": tmp_path / "data",
        "oidc_issuers": (started.issuer,),
        "oidc_audience": ("another-client", AUDIENCE),
        **(marker.kwargs if marker else {}),
    }
    return Settings(_env_file=None, **given)
