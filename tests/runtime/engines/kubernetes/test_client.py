"""Client of the Kubernetes API and its watches, against an API server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.runtime.engines.kubernetes.api_server import LabCluster

from moorage.runtime.engines.kubernetes.client import KEEPALIVE, Cluster, ClusterError
from moorage.runtime.engines.kubernetes.watching import Watch

pytestmark = pytest.mark.anyio

WAIT_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[LabCluster]:
    made = LabCluster()
    yield made
    made.close()


@pytest.fixture
async def cluster(server: LabCluster) -> AsyncIterator[Cluster]:
    def clear() -> None:
        for item in list(server.store.objects.values()):
            server.store.remove(item)
        server.denied.clear()
        server.failures.clear()

    server.call(clear)
    made = Cluster.connect(str(server.kubeconfig), patience_s=5.0)
    await made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    yield made
    await made.close()


def secret(name: str, value: str = "MQ==", **changed: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "moorage"}
    meta = {"name": name, "namespace": "a", "labels": labels, **changed.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"value": value}, **changed}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


class Follower:
    """A watch that runs, and the changes that it reported."""

    def __init__(self, cluster: Cluster) -> None:
        self.changes: list[tuple[str, bool]] = []
        self.watch = Watch(cluster, "Secret", "app.kubernetes.io/managed-by=moorage", self._note)

    def _note(self, item: dict[str, Any], is_deleted: bool) -> None:
        self.changes.append((item["metadata"]["name"], is_deleted))

    @property
    def names(self) -> list[str]:
        return sorted(name for _, name in self.watch.objects)


@pytest.fixture
async def follower(cluster: Cluster) -> AsyncIterator[Follower]:
    made = Follower(cluster)
    await made.watch.load()
    task = asyncio.create_task(made.watch.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_an_applied_object_is_created_and_then_changed(cluster: Cluster) -> None:
    first = await cluster.apply(secret("one"))
    same = await cluster.apply(secret("one"))
    changed = await cluster.apply(secret("one", "Mg=="))

    versions = [item["metadata"]["resourceVersion"] for item in (first, same, changed)]
    assert versions[0] == versions[1] != versions[2]
    assert first["metadata"]["uid"] == changed["metadata"]["uid"]


async def test_a_field_that_is_no_longer_applied_is_removed(cluster: Cluster) -> None:
    await cluster.apply(secret("one", metadata={"annotations": {"note": "1"}}))

    found = await cluster.apply(secret("one"))

    assert "annotations" not in found["metadata"]


async def test_an_object_that_does_not_exist_is_not_found_and_deleting_it_is_no_error(cluster: Cluster) -> None:
    await cluster.delete("Secret", "never", "a")

    assert await cluster.find("Secret", "never", "a") is None


async def test_creating_twice_is_a_conflict(cluster: Cluster) -> None:
    await cluster.create(secret("one"))

    with pytest.raises(ClusterError) as caught:
        await cluster.create(secret("one"))

    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")


async def test_an_immutable_secret_cannot_be_changed(cluster: Cluster) -> None:
    await cluster.apply(secret("one", immutable=True))

    with pytest.raises(ClusterError, match=r"the cluster refused it .*immutable"):
        await cluster.apply(secret("one", "Mg==", immutable=True))


async def test_a_missing_permission_is_a_sentence(cluster: Cluster, server: LabCluster) -> None:
    server.denied.add(("patch", "secrets"))

    with pytest.raises(ClusterError, match=r"the cluster does not permit it .*cannot patch resource"):
        await cluster.apply(secret("one"))


async def test_a_quota_that_is_used_up_is_a_sentence(cluster: Cluster) -> None:
    meta = {"name": "organization", "namespace": "a"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta}
    await cluster.apply({**quota, "spec": {"hard": {"persistentvolumeclaims": "0"}}})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, "name": "one"}}
    claim["spec"] = {"resources": {"requests": {"storage": "64Mi"}}}

    with pytest.raises(ClusterError, match="the quota of the organization in the cluster is used up"):
        await cluster.apply(claim)


async def test_a_list_has_all_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.runtime.engines.kubernetes.client.PAGE", 2)
    for number in range(5):
        await cluster.apply(secret(f"s{number}"))

    items, version = await cluster.list_all("Secret")

    assert [item["metadata"]["name"] for item in items] == ["s0", "s1", "s2", "s3", "s4"]
    assert {item["kind"] for item in items} == {"Secret"}
    assert int(version) > 0


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_a_request_is_repeated_after_a_passing_failure(cluster: Cluster, server: LabCluster, status: int) -> None:
    server.failures += [status, status]

    found = await cluster.apply(secret("one"))

    assert found["metadata"]["name"] == "one"


async def test_a_request_goes_on_when_the_api_server_is_back(cluster: Cluster, server: LabCluster) -> None:
    server.pause(is_paused=True)
    request = asyncio.create_task(cluster.apply(secret("one")))
    await asyncio.sleep(0.3)
    is_waiting = not request.done()

    server.pause(is_paused=False)

    assert is_waiting
    assert (await request)["metadata"]["name"] == "one"


async def test_an_api_server_that_stays_away_is_named(server: LabCluster, tmp_path: Any) -> None:
    text = server.kubeconfig.read_text().replace(str(server.port), "1")
    (tmp_path / "kubeconfig").write_text(text)
    away = Cluster.connect(str(tmp_path / "kubeconfig"), patience_s=0.1)

    with pytest.raises(ClusterError, match=r"the Kubernetes API at http://127.0.0.1:1/? does not answer"):
        await away.list_all("Pod")

    await away.close()


@pytest.mark.parametrize("text", ["", "clusters: 3", "{]", "current-context: none\nclusters: []\ncontexts: []"])
def test_a_broken_kubeconfig_is_named(tmp_path: Any, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(ClusterError, match="cannot read the kubeconfig"):
        Cluster.connect(str(path))


def test_without_a_kubeconfig_there_has_to_be_a_service_account() -> None:
    with pytest.raises(ClusterError, match="cannot read the service account of this pod"):
        Cluster.connect()


async def test_a_watch_reports_what_is_added_changed_and_deleted(cluster: Cluster, follower: Follower) -> None:
    await cluster.apply(secret("one"))
    await cluster.apply(secret("one", "Mg=="))
    await cluster.delete("Secret", "one", "a")

    await until(lambda: len(follower.changes) == 3)

    assert follower.changes == [("one", False), ("one", False), ("one", True)]
    assert follower.names == []


async def test_a_broken_watch_is_resumed_without_a_list(
    cluster: Cluster, follower: Follower, server: LabCluster
) -> None:
    await cluster.apply(secret("one"))
    await until(lambda: follower.names == ["one"])
    lists = server.requests["list"]

    server.call(server.drop_streams)
    await cluster.apply(secret("two"))
    await until(lambda: follower.names == ["one", "two"])

    assert server.requests["list"] == lists
    assert follower.changes == [("one", False), ("two", False)]


async def test_after_gone_the_objects_are_listed_again_and_deletions_are_found(
    cluster: Cluster, follower: Follower, server: LabCluster
) -> None:
    await cluster.apply(secret("one"))
    await cluster.apply(secret("two"))
    await until(lambda: follower.names == ["one", "two"])
    server.pause(is_paused=True)

    def change() -> None:
        server.store.delete("Secret", "a", "one", {})
        server.store.compact()

    server.call(change)
    server.pause(is_paused=False)
    await until(lambda: follower.names == ["two"])

    assert follower.changes[-1] == ("one", True)


async def test_a_watch_names_the_failure_and_goes_on_when_it_is_over(
    cluster: Cluster, follower: Follower, server: LabCluster
) -> None:
    server.denied.add(("watch", "secrets"))
    server.call(server.drop_streams)
    await until(lambda: "cannot watch resource" in (follower.watch.error or ""))

    server.denied.clear()
    await cluster.apply(secret("one"))
    await until(lambda: follower.names == ["one"])

    assert follower.watch.error is None


async def test_an_idle_watch_reads_only_and_does_not_list_again(follower: Follower, server: LabCluster) -> None:
    await asyncio.sleep(0.2)
    before = dict(server.requests)

    await asyncio.sleep(1.2)

    assert dict(server.requests) == before
    assert follower.watch.error is None


async def test_a_watch_has_keepalive_probes(cluster: Cluster) -> None:
    async with cluster._stream("/api/v1/secrets", {"watch": "true"}, read_timeout_s=5.0) as response:
        connection = response.extensions["network_stream"].get_extra_info("socket")
        probes = [connection.getsockopt(level, option) for level, option, _ in KEEPALIVE]

    assert probes == [1, 5, 3, 3]
