"""Cronjobs that are built from a Dockerfile: the build ends with an image, which goes with its cronjob."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import RunJobs
from tests.products.cronjobs.support import Team, make_repository
from tests.runtime.images.building.image_builds import named, serving_base
from tests.runtime.images.registry_support import RegistryServer

from moorage.core.artifacts import service as artifacts
from moorage.core.db.store import Database
from moorage.errors import NotFound
from moorage.products.cronjobs import building, removal, tables
from moorage.runtime.builds.ports import Plan
from moorage.runtime.images.building import tables as layer_tables

pytestmark = [pytest.mark.anyio, pytest.mark.group("image builds")]

DOCKERFILE = """
FROM BASE AS job
ARG WORD=none
RUN --mount=type=secret,id=TOKEN,required echo "$WORD" > /word && cat /run/secrets/TOKEN
CMD ["cat", "/word"]
FROM job
RUN exit 1
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with serving_base() as running:
        yield running


async def test_a_cronjob_is_built_from_its_dockerfile_and_its_layers_go_with_it(
    team: Team, registry: RegistryServer, run_jobs: RunJobs, db: Database, tmp_path: Path
) -> None:
    repo = await make_repository(db, team.org_id, tmp_path / "checkout")
    repo.commit(Job_Dockerfile=named(DOCKERFILE, registry))
    fields: dict[str, Any] = {
        "language": "docker", "dockerfilePath": "Job.Dockerfile", "dockerBuildArgs": {"WORD": "ahoy"},
        "dockerBuildTarget": "job", "secrets": [{"name": "TOKEN", "value": "a-token-of-the-harbor"}],
    }  # fmt: skip
    uuid = (await team.create(**fields)).data["deploymentUuid"]

    await run_jobs()

    build = (await team.get(f"/nightly/builds/{uuid}/logs")).data
    assert build["status"] == "succeeded", build["logs"]
    assert "a-token-of-the-harbor" not in build["logs"]
    shown = await team.read()
    assert (shown["dockerBuildArgs"], shown["dockerBuildTarget"]) == ({"WORD": "ahoy"}, "job")
    cronjob = await team.row()
    [stored] = await db.read(lambda tx: tx.all(tables.BUILDS_OF, org_id=team.org_id, cronjob_id=cronjob.id))
    assert stored.plan is not None
    assert msgspec.json.decode(stored.plan, type=Plan).image == f"sha256:{stored.digest}"
    cache = building.cache_of(cronjob)
    rows = await db.read(lambda tx: tx.all(layer_tables.ALL, org_id=team.org_id, cache=cache))
    assert len(rows) == 2  # the layer of the base image, and that of RUN

    await team.delete()
    await removal.remove(db, team.app.products.cronjobs.programs, team.app.products.cronjobs.logs, cronjob)

    for digest in (stored.digest or "", *(row.digest for row in rows)):
        with pytest.raises(NotFound):
            await db.read(lambda tx, digest=digest: artifacts.get(tx, team.org_id, digest))  # type: ignore[misc]


async def test_a_bad_argument_name_is_refused(team: Team) -> None:
    refused = await team.create(language="docker", dockerBuildArgs={"1x": "y"})

    assert (refused.status, list(refused.error["fields"])) == (400, ["dockerBuildArgs"])
