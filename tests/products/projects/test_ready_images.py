"""Projects from a ready image: the fields, the pull with credentials, and the stored image of a deployment."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from tests.conftest import RunJobs
from tests.products.projects.support import Team
from tests.runtime.images.registry_support import Entry, RegistryServer, fronting, layer, running_registry

from moorage.app import App
from moorage.core.artifacts import tables as artifact_tables
from moorage.core.db.store import Database
from moorage.products.projects import service
from moorage.products.projects.deployments import service as deployments
from moorage.products.projects.deployments.tables import Deployment
from moorage.runtime.images import machine
from moorage.runtime.images.blobs import ImageBlobs

pytestmark = pytest.mark.anyio

OWNER = "deployment:test"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with running_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


def push(registry: RegistryServer, content: bytes = b"one", tag: str = "latest") -> str:
    packed = layer(Entry("bin/run", content, mode=0o755))
    return registry.push("team/app", packed, tag=tag, architecture=machine.architecture(), Cmd=["/bin/run"])


def image_of(registry: RegistryServer, tag: str = "latest") -> str:
    return f"127.0.0.1:{registry.port}/team/app:{tag}"


async def create(team: Team, name: str = "ready", **fields: Any) -> Any:
    return await team.api.post("/v1/projects", json={"slug": "container", "name": name, **fields})


async def latest(team: Team, name: str = "ready") -> Deployment:
    def read(tx: Any) -> Deployment:
        project = service.get(tx, team.org_id, name)
        deployment = deployments.find(tx, team.org_id, project.latest_deployment_id or 0)
        assert deployment is not None
        return deployment

    return await team.db.read(read)


async def test_a_project_is_created_from_an_image(team: Team) -> None:
    made = await create(team, publicImage="ghcr.io/acme/app:1")

    read = await team.read("ready")
    changed = await team.api.patch("/v1/projects/ready", json={"publicImage": "ghcr.io/acme/app:2"})

    assert made.status == 200
    assert (read["publicImage"], read["repositoryName"], read["branch"]) == ("ghcr.io/acme/app:1", None, None)
    assert (read["slug"], read["language"]) == ("container", "docker")
    assert changed.data["publicImage"] == "ghcr.io/acme/app:2"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, {"repositoryName", "language"}),
        ({"language": "nodejs"}, {"repositoryName"}),
        ({"repositoryName": "acme/app"}, {"language"}),
        ({"publicImage": "a", "repositoryName": "acme/app"}, {"repositoryName"}),
        ({"publicImage": "https://ghcr.io/acme/app"}, {"publicImage"}),
        ({"publicImage": "Upper/case"}, {"publicImage"}),
        ({"publicImage": ""}, {"publicImage"}),
        ({"publicImage": None}, {"publicImage"}),
    ],
)
async def test_the_source_of_a_container_project_is_one(team: Team, fields: dict[str, Any], wrong: set[str]) -> None:
    reply = await create(team, **fields)

    assert reply.status == 400
    assert set(reply.error["fields"]) == wrong


async def test_a_project_from_a_repository_takes_no_image(team: Team) -> None:
    await team.create("site", "container")

    reply = await team.api.patch("/v1/projects/site", json={"publicImage": "ghcr.io/acme/app"})

    assert reply.status == 400
    assert set(reply.error["fields"]) == {"publicImage"}
    assert (await team.read())["publicImage"] is None


async def test_a_commit_of_an_image_is_refused(team: Team) -> None:
    await create(team, publicImage="ghcr.io/acme/app:1")

    reply = await team.api.post("/v1/projects/ready/deploy", json={"commitSha": "abc1234"})

    assert reply.status == 409


async def test_a_deployment_stores_the_image_and_another_one_resolves_the_tag_again(
    team: Team, registry: RegistryServer, run_jobs: RunJobs
) -> None:
    one = push(registry, b"one")
    await create(team, publicImage=image_of(registry))
    await run_jobs()
    first = await latest(team)
    two = push(registry, b"two")
    await team.api.post("/v1/projects/ready/redeploy")
    await run_jobs()
    second = await latest(team)

    assert [deployments.image_of(each) for each in (first, second)] == [one, two]


async def test_all_parts_of_the_image_are_stored_for_the_deployment(
    app: App, team: Team, db: Database, registry: RegistryServer
) -> None:
    digest, lines = push(registry, b"stored"), list[str]()

    stored = await app.products.projects.pipeline.images.store(team.org_id, image_of(registry), OWNER, lines.append)

    assert stored == digest
    assert lines[-1] == f"Image {image_of(registry)}: {digest}"
    owned = await db.read(lambda tx: tx.all(artifact_tables.OWNED, org_id=team.org_id, owner=OWNER))
    manifest = await ImageBlobs(db, app.artifacts).manifest(team.org_id, digest)
    parts = {digest, manifest.config.digest, *(part.digest for part in manifest.layers)}
    assert {f"sha256:{each}" for each in owned} == parts
    assert len(parts) == 3


async def test_a_private_image_needs_the_credentials_of_the_organization(
    team: Team, registry: RegistryServer, run_jobs: RunJobs
) -> None:
    digest = push(registry, b"private")
    basic = "Basic " + base64.b64encode(b"ada:sesame").decode()

    async def before(request: web.Request) -> web.StreamResponse | None:
        if request.headers.get("Authorization") == basic:
            return None
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    async with fronting(registry, before) as front:
        await create(team, publicImage=image_of(front.server))
        await run_jobs()
        refused = await latest(team)
        host = f"127.0.0.1:{front.port}"
        await team.api.post("/v1/registries", json={"host": host, "username": "ada", "secret": "sesame"})
        await team.api.post("/v1/projects/ready/deploy", json={})
        await run_jobs()
        stored = await latest(team)

    assert refused.status == "failed"
    assert "a private image needs credentials" in (refused.reason or "")
    assert deployments.image_of(stored) == digest
    log = "\n".join(await team.log(refused.uuid))
    assert "sesame" not in log


@pytest.mark.parametrize("tag", ["gone", "wrong"])
async def test_an_image_that_cannot_be_pulled_fails_the_deployment_and_leaves_nothing(
    team: Team, db: Database, registry: RegistryServer, run_jobs: RunJobs, tag: str
) -> None:
    push(registry, os.urandom(1000), tag="wrong")

    def change(request: web.Request, body: bytes) -> bytes:
        return body[:-1] + b"\1" if "/blobs/" in request.path and len(body) > 800 else body

    async with fronting(registry, change=change) as front:
        await create(team, publicImage=image_of(front.server, tag))
        await run_jobs()

    failed = await latest(team)
    assert failed.status == "failed"
    assert (failed.reason or "").startswith(f"Cannot pull 127.0.0.1:{front.port}/team/app:{tag}: the registry")
    owned = await db.read(
        lambda tx: tx.all(artifact_tables.OWNED, org_id=team.org_id, owner=service.owner_of(failed.id))
    )
    assert owned == []


@pytest.mark.boundary("tenant-to-tenant", "A private image is not readable to an organization without access to it.")
async def test_another_organization_does_not_get_stored_layers_by_their_digest(
    app: App, team: Team, stranger: Team, registry: RegistryServer, run_jobs: RunJobs, db: Database
) -> None:
    digest = push(registry, b"secret")
    await app.products.projects.pipeline.images.store(team.org_id, image_of(registry), OWNER, lambda line: None)

    async def manifests_only(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=404) if "/blobs/" in request.path else None

    async with fronting(registry, manifests_only) as front:
        await create(stranger, "theirs", publicImage=image_of(front.server))
        await run_jobs()

    failed = await latest(stranger, "theirs")
    assert failed.status == "failed"
    artifact = {"digest": digest.removeprefix("sha256:")}
    assert await db.read(lambda tx: tx.find(artifact_tables.FIND_MINE, org_id=team.org_id, **artifact)) is not None
    assert await db.read(lambda tx: tx.find(artifact_tables.FIND_MINE, org_id=stranger.org_id, **artifact)) is None
