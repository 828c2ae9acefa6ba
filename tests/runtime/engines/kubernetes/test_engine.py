"""The Kubernetes engine where a cluster gets in its way, and where it differs from one machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.deploy.rendering import permissions
from tests.runtime.engines.contract.conftest import LOG, KubernetesSite, Lab
from tests.runtime.engines.kubernetes.api_server import LabCluster

from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.manifests import PodFiles
from moorage.runtime.engines.kubernetes.pods.locating import PodLocator
from moorage.runtime.engines.ports import CannotStart, CommandEnd, Egress

pytestmark = pytest.mark.anyio

FILES = PodFiles(org_id=0, image=KubernetesSite.IMAGE)
NAMESPACE = "moorage-org-0"


@pytest.fixture
def site() -> Iterator[KubernetesSite]:
    made = KubernetesSite()
    yield made
    made.close()


@pytest.fixture
def cluster(site: KubernetesSite) -> LabCluster:
    return site.cluster


@pytest.fixture
async def lab(site: KubernetesSite) -> AsyncIterator[Lab]:
    made = Lab(site)
    yield made
    for key in list(made.engine.workloads.states()):
        await made.engine.workloads.stop(key, 0.0)
    await made.engine.workloads.close()


def kinds(cluster: LabCluster, *, key: str = "r1") -> list[str]:
    """Return the kinds of the objects of a workload."""

    def find() -> list[str]:
        items = cluster.store.objects.values()
        return sorted(
            item["kind"] for item in items if item["metadata"].get("labels", {}).get("moorage.dev/key") == key
        )

    return cluster.call(find)


async def fails(lab: Lab, **changed: Any) -> str:
    """Start an app that cannot run; return the sentence."""
    with pytest.raises(CannotStart) as caught:
        await lab.engine.workloads.start(lab.app(**changed))
    return str(caught.value)


# Bad input.


async def test_an_image_that_is_there_in_time_is_started(lab: Lab, cluster: LabCluster) -> None:
    files = replace(FILES, image="registry.example/late:1")
    start = asyncio.create_task(lab.start(lab.app(files=files)))
    await lab.wait_for(lambda: "Pod" in kinds(cluster))

    cluster.kubelet.images["registry.example/late:1"] = cluster.kubelet.images[KubernetesSite.IMAGE]

    assert (await start).is_listening


async def test_a_volume_that_does_not_exist_is_named(lab: Lab) -> None:
    assert "its volume 99 does not exist" in await fails(lab, volume="99")


async def test_a_program_that_is_no_image_is_refused(lab: Lab) -> None:
    assert "the Kubernetes engine runs images only" in await fails(lab, files=None)


# Objects in the cluster.


async def test_a_namespace_separates_each_organization(lab: Lab, cluster: LabCluster) -> None:
    await lab.start(lab.app("r1", files=replace(FILES, org_id=3)))
    await lab.start(lab.app("r2", files=replace(FILES, org_id=4)))

    def find() -> dict[str, list[str]]:
        spaces = [item["metadata"]["name"] for item in cluster.store.all("Namespace")]
        return {
            name: [item["metadata"]["name"] for item in cluster.store.all("NetworkPolicy", name)] for name in spaces
        }

    policies = ["allow-platform", "allow-public", "deny-all"]
    assert cluster.call(find) == {"moorage-org-3": policies, "moorage-org-4": policies}


async def test_all_objects_of_a_workload_go_with_it(lab: Lab, cluster: LabCluster) -> None:
    other = await lab.start(lab.app("r2", name="database-1"))
    await lab.start(lab.app(egress=[Egress("database-1", other.address)]))
    there = kinds(cluster)

    await lab.engine.workloads.stop("r1", 5.0)

    assert there == ["Deployment", "NetworkPolicy", "Pod", "ReplicaSet", "Secret"]
    await lab.wait_for(lambda: kinds(cluster) == [])
    assert "NetworkPolicy" in kinds(cluster, key="r2")


async def test_a_secret_without_its_workload_is_deleted_by_the_next_process(lab: Lab, cluster: LabCluster) -> None:
    cluster.denied.add(("patch", "deployments"))
    await fails(lab)
    left = kinds(cluster)

    await lab.restart({})

    assert (left, kinds(cluster)) == (["Secret"], [])


async def test_another_workload_of_the_same_key_is_not_replaced(lab: Lab) -> None:
    await lab.start(lab.app())
    await lab.engine.workloads.close()
    lab.engine = lab.site.connect()

    with pytest.raises(CannotStart, match="another r1 runs already"):
        await lab.engine.workloads.start(lab.app(token="another"))

    await lab.engine.workloads.adopt({"r1": "token-r1"})


async def test_a_start_that_the_platform_did_not_finish_is_taken_over(lab: Lab) -> None:
    before = await lab.start(lab.app())
    await lab.engine.workloads.close()
    lab.engine = lab.site.connect()

    after = await lab.start(lab.app())

    assert (after.pid, after.address) == (before.pid, before.address)


async def test_a_limit_resizes_the_pod_in_place(lab: Lab, cluster: LabCluster) -> None:
    await lab.start(lab.app(cpu=2.0, memory_mb=1024))  # 2000m and 1024Mi, which the API server writes as 2 and 1Gi

    def cpu() -> str:
        (pod,) = cluster.call(lambda: cluster.store.all("Pod"))
        return str(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])

    await lab.engine.workloads.limit("r1", 0.25)
    limited = cpu()
    await lab.engine.workloads.limit("r1", None)

    assert (limited, cpu()) == ("250m", "2")
    assert await lab.get("r1", "hello") == "hello"


async def test_a_claim_of_whole_gigabytes_grows_and_does_not_shrink(lab: Lab, cluster: LabCluster) -> None:
    sizes = []
    for size_mb in (1024, 512, 1024, 1536):
        await lab.engine.volumes.ensure("17", uid=0, size_mb=size_mb)
        (claim,) = cluster.objects("PersistentVolumeClaim")
        sizes.append(claim["spec"]["resources"]["requests"]["storage"])

    assert sizes == ["1Gi", "1Gi", "1Gi", "1536Mi"]


# Logs and commands.


async def test_a_log_has_each_line_once_after_breaks_and_restarts(lab: Lab, cluster: LabCluster) -> None:
    await lab.start(lab.app())
    for number in range(3):
        for part in "abc":
            await lab.get("r1", "print", f"{number}{part}")
        await lab.printed(f"{number}c")
        if number == 0:
            cluster.call(cluster.drop_streams)
        else:
            await lab.restart()
    await lab.get("r1", "print", "end")
    await lab.printed("end")

    lines = await lab.lines(LOG, "stdout")

    assert lines == ["up", *(f"{number}{part}" for number in range(3) for part in "abc"), "end"]


async def test_both_outputs_are_one_stream(lab: Lab) -> None:
    await lab.start(lab.once("c1", "exit", "0"))
    await lab.until("c1", lambda found: found.phase == "stopped")

    assert set(await lab.lines(LOG, "stdout")) == {"out", "err", "port="}


async def test_an_adopted_app_masks_its_secrets(lab: Lab) -> None:
    await lab.start(lab.app(hidden=["hunter2-hunter2"]))
    await lab.restart()

    await lab.get("r1", "print", "the key is hunter2-hunter2")

    await lab.printed("the key is ****")
    assert "hunter2" not in " ".join(await lab.lines())


async def run(lab: Lab, script: str, **changed: Any) -> tuple[CommandEnd, str, str]:
    output = {"stdout": b"", "stderr": b""}

    def put(stream: str, data: bytes) -> None:
        output[stream] += data

    end = await lab.engine.commands.run(lab.app(**changed), ["/bin/sh", "-c", script], put, timeout_s=30.0)
    return end, output["stdout"].decode(), output["stderr"].decode()


async def test_a_command_in_its_own_pod_has_one_stream_and_leaves_nothing(lab: Lab, cluster: LabCluster) -> None:
    end, out, err = await run(lab, "echo out; echo err >&2; exit 3")

    assert (end, sorted(out.split()), err) == (CommandEnd(3, None), ["err", "out"], "")
    await lab.wait_for(lambda: cluster.call(lambda: cluster.store.all("Pod") + cluster.store.all("Secret")) == [])


async def test_a_command_beside_a_running_app_with_a_volume_has_two_streams(lab: Lab) -> None:
    await lab.engine.volumes.ensure("17", uid=0, size_mb=64)
    await lab.start(lab.app(volume="17"))

    end, out, err = await run(lab, "echo out; echo err >&2; exit 3", volume="17")

    assert (end, out, err) == (CommandEnd(3, None), "out\n", "err\n")


async def test_a_command_whose_image_is_missing_says_so(lab: Lab) -> None:
    end = await lab.engine.commands.run(lab.app(), ["missing"], lambda _, __: None, timeout_s=30.0)

    assert end.code != 0
    assert "executable file not found" in (end.why or "")


# Addresses for gateways.


async def test_a_gateway_needs_no_permission_but_to_read_pods(lab: Lab, cluster: LabCluster) -> None:
    state = await lab.start(lab.app())
    writes = cluster.writes
    cluster.allowed = permissions("gateway")
    locator = PodLocator(Cluster.connect(str(cluster.kubeconfig), patience_s=1.0))
    try:
        refusal = await locator.load(5.0)
        await lab.wait_for(lambda: locator.host_of("r1", "192.0.2.7") == state.host)
    finally:
        await locator.close()
        cluster.allowed = None

    assert refusal is None
    assert cluster.writes == writes


async def test_a_gateway_that_may_not_read_pods_says_so(lab: Lab, cluster: LabCluster) -> None:
    cluster.deny(("list", "pods"))
    locator = PodLocator(Cluster.connect(str(cluster.kubeconfig), patience_s=1.0))
    try:
        refusal = await locator.load(5.0)
    finally:
        await locator.close()
        cluster.deny()

    assert "the cluster does not permit it" in (refusal or "")
