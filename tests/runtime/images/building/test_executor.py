"""Dockerfiles are built in real sandboxes, and the result is an OCI image in the artifact store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.images.building.image_builds import Builds, serving_base
from tests.runtime.images.registry_support import RegistryServer

from moorage.core.db.store import Database

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("image builds")]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_base() as running:
        yield running


@pytest.fixture
async def builds(db: Database, registry: RegistryServer, tmp_path: Path) -> Builds:
    tmp_path.chmod(0o700)
    return Builds(db, registry, tmp_path)


async def test_a_multi_stage_build_has_only_the_files_of_its_last_stage(builds: Builds) -> None:
    result = await builds.build(
        """
        FROM BASE AS build
        WORKDIR /src
        COPY . .
        RUN cat in.txt > out.txt && echo built >> out.txt
        FROM BASE
        COPY --from=build /src/out.txt /app/
        ENV MODE=production PATH=/app:$PATH
        USER app
        EXPOSE 8080
        CMD ["cat", "/app/out.txt"]
        """,
        {"in.txt": "hello\n"},
    )

    assert result.content("app/out.txt") == "hello\nbuilt\n"
    assert "src" not in result.tree
    config = result.config["config"]
    assert config["Env"] == ["PATH=/app:/usr/local/bin:/usr/bin:/bin", "BASE=yes", "MODE=production"]
    assert (config["User"], config["Cmd"], config["ExposedPorts"]) == (
        "app",
        ["cat", "/app/out.txt"],
        {"8080/tcp": {}},
    )
    assert len(result.config["rootfs"]["diff_ids"]) == len(result.image.layers)
    for layer, diff_id in zip(result.layers, result.config["rootfs"]["diff_ids"][1:], strict=True):
        assert f"sha256:{hashlib.sha256(layer).hexdigest()}" == diff_id


async def test_a_changed_source_line_does_not_repeat_the_installation(builds: Builds) -> None:
    dockerfile = """
        FROM BASE
        WORKDIR /app
        COPY package.json ./
        RUN echo installed > node_modules
        COPY . .
        RUN cat main.js > bundle.js
        """
    first = await builds.build(dockerfile, {"package.json": "{}", "main.js": "1"})
    second = await builds.build(dockerfile, {"package.json": "{}", "main.js": "2"})
    third = await builds.build(dockerfile, {"package.json": "{}", "main.js": "2"})

    assert len(first.steps) == 6
    assert [line.partition("] ")[2] for line in second.steps] == [
        f"FROM {builds.base}",
        "COPY . .",
        "RUN cat main.js > bundle.js",
    ]
    assert second.content("app/bundle.js") == "2"
    assert len(third.steps) == 1
    assert third.image.digest == second.image.digest
