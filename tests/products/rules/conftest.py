"""A real Caddy for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.products.rules.caddy_server import RuleServer, running_rule_server


@pytest.fixture(scope="session")
def gateway() -> Iterator[RuleServer]:
    with running_rule_server() as server:
        yield server
