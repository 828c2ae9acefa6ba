"""One engine for all tests of a file, as each user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.engines.engine_support import Engine, engine_of
from tests.runtime.workers.invoker_support import MODE_PARAMS


@pytest.fixture(scope="module", params=MODE_PARAMS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with engine_of(request.param) as made:
        yield made
