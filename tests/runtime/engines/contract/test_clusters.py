"""Contract of an engine whose workloads are pods, where the cluster gets in its way: the same on each cluster."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.runtime.engines.contract.conftest import KubernetesSite, Lab, RealClusterSite

from moorage.runtime.engines.kubernetes import objects
from moorage.runtime.engines.kubernetes.manifests import Manifest, PodFiles
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec

pytestmark = pytest.mark.anyio

OTHER_SITES = ("memory", "local")
OF_R1 = "moorage.dev/key=r1"


def site_of(lab: Lab) -> KubernetesSite | RealClusterSite:
    assert isinstance(lab.site, KubernetesSite | RealClusterSite)
    return lab.site


async def fails(lab: Lab, **changed: Any) -> str:
    """Start an app that cannot run; return the sentence."""
    with pytest.raises(CannotStart) as caught:
        await lab.engine.workloads.start(lab.app(**changed))
    return str(caught.value)


async def cleared(lab: Lab) -> None:
    """Wait until nothing of the app is left."""
    cluster = site_of(lab).cluster
    kinds = ("Deployment", "Pod", "Secret")
    await lab.wait_for(lambda: not any(cluster.objects(kind, OF_R1) for kind in kinds))


async def test_a_missing_permission_is_named(lab: Lab) -> None:
    cluster = site_of(lab).cluster
    cluster.deny(("patch", "deployments"))
    try:
        sentence = await fails(lab)
    finally:
        cluster.deny()

    assert "it cannot be started: the cluster does not permit it" in sentence
    assert 'cannot patch resource "deployments"' in sentence
    assert lab.find("r1") is None


async def test_a_quota_that_is_used_up_is_named_and_nothing_is_left(lab: Lab) -> None:
    site = site_of(lab)
    await lab.start(lab.app("r2"))
    site.cluster.limit_pods(site.namespace, 1)

    sentence = await fails(lab)

    assert "the quota of the organization in the cluster is used up" in sentence
    assert "limited: pods=1" in sentence
    await cleared(lab)
    assert await lab.get("r2", "hello") == "hello"


async def test_a_run_that_the_quota_refuses_says_so_and_goes_on_by_itself(lab: Lab) -> None:
    site = site_of(lab)
    await lab.start(lab.app("r2"))
    site.cluster.limit_pods(site.namespace, 1)

    start = asyncio.create_task(lab.start(lab.once("c1", "exit", "0")))

    async def is_said() -> bool:
        waiting = "waiting for the cluster: the quota of the organization in the cluster is used up"
        return any(line.startswith(waiting) for line in await lab.lines(stream="system"))

    await lab.wait_for(is_said)
    is_waiting = not start.done()
    site.cluster.limit_pods(site.namespace, 2)
    await start
    state = await lab.until("c1", lambda found: found.phase == "stopped")

    assert is_waiting
    assert (state.exit_code, state.reason) == (0, None)


async def test_a_run_that_the_quota_goes_on_refusing_fails_with_the_sentence(lab: Lab) -> None:
    site = site_of(lab)
    site.run_patience_s = 4.0
    await lab.restart()
    await lab.start(lab.app("r2"))
    site.cluster.limit_pods(site.namespace, 1)

    with pytest.raises(CannotStart) as caught:
        await lab.engine.workloads.start(lab.once("c1", "exit", "0"))

    assert "it cannot be started: the quota of the organization in the cluster is used up" in str(caught.value)
    assert "limited: pods=1" in str(caught.value)
    assert lab.find("c1") is None


async def test_an_image_that_cannot_be_pulled_is_named(lab: Lab) -> None:
    image = "127.0.0.1:9/missing:1"

    sentence = await fails(lab, files=PodFiles(org_id=0, image=image))

    assert f"the image {image} cannot be pulled" in sentence
    await cleared(lab)


async def test_a_pod_without_room_is_named(lab: Lab) -> None:
    sentence = await fails(lab, memory_mb=100_000)

    reason = r"no node of the cluster has room for it \(0/\d+ nodes are available: \d+ Insufficient memory\."
    assert re.search(reason, sentence)


async def test_a_volume_that_cannot_be_bound_is_named(lab: Lab) -> None:
    site_of(lab).storage_class = "missing"
    await lab.restart()
    await lab.engine.volumes.ensure("17", uid=0, size_mb=64)

    sentence = await fails(lab, volume="17")

    assert "its volume cannot be used yet" in sentence
    assert "unbound immediate PersistentVolumeClaims" in sentence


async def test_apps_run_on_and_a_start_goes_on_when_the_api_server_is_back(lab: Lab) -> None:
    cluster = site_of(lab).cluster
    await lab.start(lab.app())
    cluster.pause(is_paused=True)
    try:
        start = asyncio.create_task(lab.start(lab.app("r2")))
        await asyncio.sleep(1.0)
        while_away = await lab.get("r1", "hello")
    finally:
        cluster.pause(is_paused=False)

    assert while_away == "hello"
    assert (await start).is_listening
    assert lab.find("r1") is not None


async def test_an_app_whose_pod_finds_no_room_again_says_so_and_returns_by_itself(lab: Lab) -> None:
    site = site_of(lab)
    await lab.start(lab.app())
    site.cluster.set_room(has_room=False)
    try:
        (pod,) = site.cluster.objects("Pod", OF_R1)
        site.cluster.delete("Pod", site.namespace, pod["metadata"]["name"], gracePeriodSeconds=1)
        lost = await lab.until("r1", lambda found: "no node of the cluster has room" in (found.reason or ""))
    finally:
        site.cluster.set_room(has_room=True)
    back = await lab.until("r1", lambda found: found.is_listening)

    assert (lost.is_listening, lost.phase) == (False, "starting")
    assert await lab.get("r1", "hello") == "hello"
    assert back.reason is None


async def stop_during_start(lab: Lab, spec: ReplicaSpec) -> list[str]:
    """Start a workload while no node has room, and continue with another engine; return what it says never started."""
    site = site_of(lab)
    await lab.start(lab.app())  # The namespace has its service account from now on.
    site.cluster.set_room(has_room=False)
    try:
        start = asyncio.create_task(lab.start(spec))
        await lab.wait_for(lambda: any(site.cluster.objects("Pod", f"moorage.dev/key={spec.key}")))
        start.cancel()
        await asyncio.wait({start})
        await lab.engine.workloads.close()
        lab.engine = site.connect()
        return await lab.engine.workloads.adopt({"r1": "token-r1", spec.key: spec.token})
    finally:
        site.cluster.set_room(has_room=True)


async def test_a_run_whose_control_process_ends_during_its_start_is_adopted_by_the_next_one(lab: Lab) -> None:
    never_started = await stop_during_start(lab, lab.once())
    state = await lab.until("c1", lambda found: found.phase == "stopped")

    assert (never_started, state.exit_code) == ([], 0)
    assert (await lab.lines()).count("out") == 1


async def test_a_secret_that_its_workload_does_not_own_yet_is_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    add_owner = objects.owned

    def end(item: Manifest, owner: Manifest) -> Manifest:
        if owner["kind"] == "Job":
            raise asyncio.CancelledError  # The process ends before the second change of the Secret.
        return add_owner(item, owner)

    with monkeypatch.context() as ending:
        ending.setattr(objects, "owned", end)
        never_started = await stop_during_start(lab, lab.once())
    state = await lab.until("c1", lambda found: found.phase == "stopped")

    assert (never_started, state.exit_code) == ([], 0)


async def test_a_server_whose_control_process_ends_during_its_start_is_adopted_by_the_next_one(
    lab: Lab, free_port: int
) -> None:
    never_started = await stop_during_start(lab, lab.server("d1", free_port))
    state = await lab.until("d1", lambda found: found.is_listening)

    assert never_started == []
    assert state.port == free_port


async def test_a_pod_that_a_node_drain_deletes_is_followed_by_another(lab: Lab) -> None:
    site = site_of(lab)
    site.drain_s = 1
    await lab.restart()
    before = await lab.start(lab.app())

    (pod,) = site.cluster.objects("Pod", OF_R1)
    site.cluster.delete("Pod", site.namespace, pod["metadata"]["name"])
    after = await lab.until("r1", lambda found: found.is_listening and found.address != before.address)
    await lab.printed("goodbye")

    assert (after.pid, after.restarts) == (before.pid, 0)
    assert await lab.get("r1", "hello") == "hello"


async def test_a_stop_starts_no_further_pod(lab: Lab) -> None:
    cluster, seen = site_of(lab).cluster, set[str]()
    await lab.start(lab.app())

    stop = asyncio.create_task(lab.engine.workloads.stop("r1", 10.0))
    while not stop.done():
        seen |= {pod["metadata"]["uid"] for pod in await asyncio.to_thread(cluster.objects, "Pod", OF_R1)}
        await asyncio.sleep(0.02)
    await stop

    assert len(seen) == 1


async def test_an_idle_engine_and_an_adoption_write_nothing(lab: Lab) -> None:
    writes = site_of(lab).writes
    await lab.start(lab.app())
    await lab.start(lab.once("c1", "sleep"))
    writes.clear()

    await asyncio.sleep(1.5)
    await lab.engine.workloads.look("r1")
    await lab.restart()

    assert writes == []


async def test_a_missing_program_in_the_pod_of_an_app_is_a_sentence(lab: Lab) -> None:
    await lab.engine.volumes.ensure("17", uid=0, size_mb=64)
    await lab.start(lab.app(volume="17"))

    end = await lab.engine.commands.run(lab.app(volume="17"), ["missing"], lambda _, __: None, timeout_s=30.0)

    assert end.code == 125
    assert "executable file not found" in (end.why or "")
