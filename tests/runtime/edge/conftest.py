"""A pool to call functions in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.runtime.edge.pool_support import Lab, opened


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with opened() as made:
        yield made
