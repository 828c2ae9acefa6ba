"""Fixtures of the artifact tests: `settings`, and so `db`, exist for a folder and for a real S3 server.

A test for only one of them selects it: `@pytest.mark.parametrize("settings", ["folder"], indirect=True)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.artifacts.s3_server import S3Server, running_s3

from moorage.core.artifacts.objects import Objects
from moorage.core.artifacts.store import ArtifactStore
from moorage.core.db.store import Database
from moorage.settings import Settings


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.group("s3"))])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    marker = request.node.get_closest_marker("settings")
    given: dict[str, Any] = {"data": tmp_path / "data", "disk_reserve_mb": 0, **(marker.kwargs if marker else {})}
    if request.param == "folder":
        return Settings(_env_file=None, **given)
    server: S3Server = request.getfixturevalue("s3")
    return server.settings(given.pop("data"), **given)


@pytest.fixture
def objects(settings: Settings) -> Objects:
    """The object storage, for tests that inspect or damage objects directly."""
    return Objects(settings)


@pytest.fixture
def artifacts(db: Database) -> ArtifactStore:
    return ArtifactStore(db)
