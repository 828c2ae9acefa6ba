"""A registry with the base images of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.images.building.image_builds import serving_base
from tests.runtime.images.registry_support import RegistryServer


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_base() as running:
        yield running
