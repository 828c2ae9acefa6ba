"""Builds as Jobs: the same result as on one machine, and sentences where a cluster gets in the way."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest
from tests.e2e.images_support import serving_python
from tests.runtime.builds.pods.conftest import IMAGE, ORG, WAIT_S, Yard
from tests.runtime.shim.image_support import make_root

from moorage.core.db.store import Database
from moorage.runtime.builds.pods.builds import OFF, PASSED_ON, this_machine
from moorage.runtime.builds.pods.running import TAKEN_OVER
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.images.blobs import ImageBlobs
from moorage.settings import Settings

pytestmark = pytest.mark.anyio

SITE: dict[str, Any] = {
    "package.json": {"name": "site", "scripts": {"build": "node build.js"}},
    "build.js": "const fs = require('fs'); fs.mkdirSync('dist'); console.log('building for', process.env.GREETING);"
    " console.error('a warning'); fs.writeFileSync('dist/index.html', `<p>${process.env.GREETING}`)",
}
SLOW: dict[str, Any] = {**SITE, "package.json": {"name": "slow", "scripts": {"build": "echo begun && sleep 600"}}}
# A secret of the platform would be in one of these.
KEYS = ("key", "secret", "password", "database", "token")


async def failure(yard: Yard, files: dict[str, Any] | None = None, **changed: Any) -> str:
    with pytest.raises(BuildFailed) as caught:
        await yard.build(yard.repository(files or SITE), **changed)
    return str(caught.value)


async def begun(yard: Yard) -> asyncio.Task[Any]:
    """Start a build that takes long, and wait for its first line."""
    task = asyncio.create_task(yard.build(yard.repository(SLOW)))
    await yard.until(lambda: "begun\n" in yard.log.text("stdout") or task.done())
    assert not task.done(), task.exception()
    return task


async def test_a_site_is_built_in_a_pod_and_stored(yard: Yard) -> None:
    repository = yard.repository(SITE)

    built = await yard.build(repository, env={"GREETING": "ahoy"})

    assert (built.plan.kind, built.plan.output_dir, built.files) == ("static", "dist", 1)
    assert (yard.releases.folder_of(built.digest) / "index.html").read_text() == "<p>ahoy"
    assert repository.checked == ["index.html"]
    assert "building for ahoy\n" in yard.log.text("stdout")
    assert "a warning\n" in yard.log.text("stderr")
    assert "collected 1 file" in yard.log.system
    await yard.until(lambda: yard.leftovers() == [])


@pytest.mark.deep
async def test_a_build_command_that_fails_is_named_as_on_one_machine(yard: Yard) -> None:
    files = {**SITE, "build.js": "console.error('no such page'); process.exit(3)"}

    assert await failure(yard, files) == "the build command `npm run build` failed: exit code 3"
    await yard.until(lambda: yard.leftovers() == [])


@pytest.mark.deep
async def test_files_that_must_not_be_published_are_refused_here(yard: Yard) -> None:
    repository = yard.repository(SITE)
    repository.refusal = BuildFailed("it has a virus")

    with pytest.raises(BuildFailed, match=r"^it has a virus$"):
        await yard.build(repository)

    assert not list(yard.releases.root.glob("*"))


@pytest.mark.deep
@pytest.mark.boundary("code-to-host", "A build in a pod has none of the platform's keys, and no token of the cluster.")
async def test_the_pod_of_a_build_has_no_secret_of_the_platform(yard: Yard) -> None:
    task = await begun(yard)
    (job,) = yard.jobs()
    (secret,) = yard.cluster.objects("Secret", "moorage.dev/kind=build")
    task.cancel()
    await asyncio.wait({task})

    given = {name for name in secret["data"] if name.startswith("MOORAGE_") and not name.startswith("MOORAGE_BUILD_")}
    own = {"MOORAGE_DATA", "MOORAGE_BUILDS"}
    assert given <= {f"MOORAGE_{name.upper()}" for name in PASSED_ON} | own
    assert not [name for name in PASSED_ON if any(word in name for word in KEYS)]
    assert set(PASSED_ON) <= set(Settings.model_fields)
    assert job["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert b64decode(secret["data"]["moorage-hidden"]) == b"[]"


@pytest.mark.deep
async def test_cancelling_a_build_deletes_its_job_and_ends_its_programs(yard: Yard) -> None:
    task = await begun(yard)

    task.cancel()
    await asyncio.wait({task})

    await yard.until(lambda: yard.leftovers() == [])
    await yard.until(lambda: all(run.process.done.is_set() for run in yard.lab.kubelet.pods.values() if run.process))


@pytest.mark.deep
async def test_a_build_whose_pod_is_lost_starts_again_in_another_one(yard: Yard) -> None:
    task = await begun(yard)
    (pod,) = yard.pods()
    before = pod["metadata"]["uid"]

    yard.cluster.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], gracePeriodSeconds=1)

    await yard.until(lambda: yard.log.text("stdout").count("begun\n") == 2)
    assert [
        pod["metadata"]["uid"]
        for pod in yard.cluster.objects("Pod", "moorage.dev/kind=build")
        if pod["metadata"]["uid"] != before
    ]
    assert "the build was lost: its pod was deleted; it starts again" in yard.log.system
    assert len(yard.jobs()) == 1
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.deep
async def test_a_build_that_is_lost_again_and_again_fails(yard: Yard) -> None:
    yard.builds = replace(yard.builds, attempts=1)
    task = await begun(yard)
    (pod,) = yard.pods()

    yard.cluster.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], gracePeriodSeconds=1)

    with pytest.raises(BuildFailed, match="the build was lost 1 times: its pod was deleted"):
        await task


@pytest.mark.deep
async def test_a_new_process_replaces_the_build_of_an_earlier_one(yard: Yard) -> None:
    """The job of a deployment is claimed again when its lease expires, also if the earlier process lives."""
    before = await begun(yard)
    yard.log.said.clear()

    built = await yard.build(yard.repository(SITE))

    with pytest.raises(BuildFailed) as caught:
        await before
    assert str(caught.value) == TAKEN_OVER
    assert built.files == 1
    assert not [line for line in yard.log.system if "it starts again" in line]
    await yard.until(lambda: yard.leftovers() == [])


@pytest.mark.deep
async def test_a_build_that_waits_for_room_ends_when_another_process_takes_it_over(yard: Yard) -> None:
    yard.builds = replace(yard.builds, options=replace(yard.builds.options, patience_s=WAIT_S))
    yard.cluster.set_room(has_room=False)
    try:
        task = asyncio.create_task(yard.build(yard.repository(SITE)))
        await yard.until(lambda: bool(yard.pods()) or task.done())
        await yard.builds.clear_up()
        with pytest.raises(BuildFailed) as caught:
            await task
    finally:
        yard.cluster.set_room(has_room=True)

    assert str(caught.value) == TAKEN_OVER


@pytest.mark.deep
async def test_the_start_of_a_process_deletes_the_jobs_of_its_predecessor_only(yard: Yard) -> None:
    task = await begun(yard)
    (job,) = yard.jobs()
    assert job["metadata"]["labels"]["moorage.dev/machine"] == this_machine()
    other = {**job["metadata"]["labels"], "moorage.dev/machine": "another"}
    meta = {"name": "build-other", "namespace": job["metadata"]["namespace"], "labels": other}
    spec = {**job["spec"], "template": {**job["spec"]["template"], "metadata": {"labels": other}}}
    yard.lab.call(lambda: yard.lab.store.create({**job, "metadata": meta, "spec": spec}))

    await yard.builds.clear_up()

    await yard.until(lambda: [job["metadata"]["name"] for job in yard.jobs()] == ["build-other"])
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.deep
async def test_a_build_goes_on_while_the_api_server_is_away(yard: Yard) -> None:
    build = "node build.js && sleep 3"
    files = {**SITE, "package.json": {"name": "site", "scripts": {"build": build}}}
    task = asyncio.create_task(yard.build(yard.repository(files)))
    await yard.until(lambda: "building for" in yard.log.text("stdout") or task.done())
    yard.cluster.pause(is_paused=True)
    await asyncio.sleep(4.0)
    yard.cluster.pause(is_paused=False)

    assert (await task).files == 1


async def test_a_missing_permission_is_named(yard: Yard) -> None:
    yard.cluster.deny(("patch", "jobs"))
    try:
        sentence = await failure(yard)
    finally:
        yard.cluster.deny()

    assert "the build cannot be started: the cluster does not permit it" in sentence
    assert 'cannot patch resource "jobs"' in sentence
    await yard.until(lambda: yard.leftovers() == [])


@pytest.mark.deep
async def test_a_quota_that_is_used_up_is_named(yard: Yard) -> None:
    limits = replace(yard.builds.options.limits, pods=0)
    yard.builds = replace(yard.builds, options=replace(yard.builds.options, limits=limits))

    sentence = await failure(yard)

    assert "the build cannot be started: the quota of the organization in the cluster is used up" in sentence
    assert "limited: pods=0" in sentence


async def test_an_image_that_cannot_be_pulled_is_named(yard: Yard) -> None:
    yard.lab.kubelet.images.pop(IMAGE)

    sentence = await failure(yard)

    assert f"the build cannot be started: the image {IMAGE} cannot be pulled" in sentence
    assert [line for line in yard.log.system if line.startswith("waiting for the cluster: the image")]


async def test_a_build_without_room_is_named(yard: Yard) -> None:
    yard.cluster.set_room(has_room=False)
    try:
        sentence = await failure(yard)
    finally:
        yard.cluster.set_room(has_room=True)

    assert "the build cannot be started: no node of the cluster has room for it" in sentence


async def test_a_repository_that_cannot_be_built_starts_no_pod(yard: Yard) -> None:
    assert "baseDir './missing'" in await failure(yard, {"notes.txt": "no site"}, base_dir="./missing")
    assert yard.lab.requests["patch"] == 0


@pytest.mark.deep
async def test_commands_of_a_dockerfile_are_root_of_the_image_in_a_privileged_pod(yard: Yard, db: Database) -> None:
    dockerfile = 'FROM scratch\nCOPY root /\nRUN echo "I am $(id -u)" && touch /made\nCMD ["/bin/sh"]\n'
    repository = yard.repository({"Dockerfile": dockerfile})
    make_root(repository.folder / "root")

    built = await yard.build(repository, wanted="container", language="docker")

    manifest = await ImageBlobs(db, yard.builds.results.artifacts).manifest(ORG, built.plan.image)
    namespaces = [item["metadata"]["name"] for item in yard.cluster.objects("Namespace")]
    assert len(manifest.layers) == 2
    assert "I am 0\n" in yard.log.text("stdout")
    assert f"{yard.builds.image_options.prefix}-org-{ORG}" in namespaces
    await yard.until(lambda: yard.leftovers() == [])


@pytest.mark.deep
async def test_a_dockerfile_is_built_in_a_namespace_of_its_own(yard: Yard, db: Database) -> None:
    with serving_python() as registry:
        dockerfile = f'FROM 127.0.0.1:{registry.port}/python\nRUN echo made by $(id -u) > /made\nCMD ["/bin/sh"]\n'
        built = await yard.build(yard.repository({"Dockerfile": dockerfile}), wanted="container", language="docker")

    manifest = await ImageBlobs(db, yard.builds.results.artifacts).manifest(ORG, built.plan.image)
    assert (built.digest, built.files) == (built.plan.image.removeprefix("sha256:"), 0)
    assert len(manifest.layers) == 2
    namespaces = [item["metadata"]["name"] for item in yard.lab.objects("Namespace")]
    assert namespaces == [f"moorage-build-org-{ORG}"]
    await yard.until(lambda: yard.leftovers() == [])


async def test_dockerfiles_that_are_off_are_refused_with_the_name_of_the_setting(yard: Yard) -> None:
    settings = yard.builds.settings.model_copy(update={"kubernetes_dockerfiles": "off"})
    yard.builds = replace(yard.builds, settings=settings)

    sentence = await failure(yard, {"Dockerfile": "FROM scratch\n"}, wanted="container", language="docker")

    assert sentence == OFF
