"""The check of a cluster at the start of the platform."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.runtime.engines.contract.conftest import KubernetesSite
from tests.runtime.engines.kubernetes.api_server import LabCluster

from moorage.runtime.engines.kubernetes import checking
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.options import Options

pytestmark = pytest.mark.anyio


@pytest.fixture
def lab() -> Iterator[LabCluster]:
    site = KubernetesSite()
    yield site.cluster
    site.close()


@pytest.fixture
async def cluster(lab: LabCluster) -> AsyncIterator[Cluster]:
    client = Cluster.connect(str(lab.kubeconfig), patience_s=1.0)
    yield client
    await client.close()


def probe(cluster: Cluster, image: str = KubernetesSite.IMAGE) -> checking.Enforcement:
    return checking.Enforcement(cluster, Options(), image)


@pytest.mark.boundary("tenant-to-tenant", "Production refuses a cluster whose network does not enforce policies.")
async def test_a_network_that_does_not_enforce_policies_is_refused(lab: LabCluster, cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="does not enforce NetworkPolicies"):
        await probe(cluster).check(enforced_within_s=0.1)


async def test_a_network_that_enforces_policies_is_accepted_each_time(lab: LabCluster, cluster: Cluster) -> None:
    lab.kubelet.enforces_policies = True

    await probe(cluster).check()
    await probe(cluster).check()

    left = lab.call(lambda: [item["metadata"]["name"] for item in lab.store.all("NetworkPolicy")])
    assert "allow-platform" not in left


async def test_a_platform_that_reaches_no_pod_is_refused(lab: LabCluster, cluster: Cluster) -> None:
    lab.kubelet.enforces_policies = True
    lab.kubelet.proxies.close_for_good = True

    with pytest.raises(ClusterError, match=r"does not reach a pod at 127\.\S+:8080"):
        await probe(cluster).check(open_within_s=0.1)


async def test_a_probe_that_cannot_start_is_a_sentence(
    lab: LabCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "START_TIMEOUT_S", 1.0)

    with pytest.raises(ClusterError, match=r"does not run: the image missing:1 cannot be pulled"):
        await probe(cluster, "missing:1").check()


async def test_a_missing_permission_is_a_sentence(lab: LabCluster, cluster: Cluster) -> None:
    lab.denied.add(("list", "jobs"))

    with pytest.raises(ClusterError, match=r"jobs\.batch is forbidden"):
        await checking.check(cluster, Options(), "")
