"""Present addresses of apps, for a gateway: Kubernetes moves pods also while the control process is away."""

from __future__ import annotations

import asyncio

from moorage.runtime.engines.kubernetes import names, observing
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.kubernetes.objects import selector_of
from moorage.runtime.engines.kubernetes.pods.listening import ListeningProbe
from moorage.runtime.engines.kubernetes.watching import Watch


class PodLocator:
    """Knows at which address the pod of each app listens, from one watch. It reads pods and nothing else.

    While the API server is away, the last known addresses stay.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watch = Watch(cluster, "Pod", f"{selector_of('app')},{names.KEY}", self._on_pod)
        self._probe = ListeningProbe(self._choose)
        self._pods: dict[str, dict[str, Manifest]] = {}  # by key of the workload and uid
        self._hosts: dict[str, str] = {}  # by key: address of the pod that listens
        self._key_at: dict[str, str] = {}  # by address: key of the workload that has it

    def host_of(self, key: str, stored: str) -> str:
        if key in self._hosts:
            return self._hosts[key]
        # Addresses are used again: a former address may belong to the pod of another organization by now.
        return stored if self._key_at.get(stored, key) == key else ""

    async def load(self, within_s: float) -> str | None:
        try:
            async with asyncio.timeout(within_s):
                await self._watch.load()
        except ClusterError as error:
            return str(error)
        except TimeoutError:
            return f"the Kubernetes API did not answer within {within_s:.0f} s"
        return None

    async def run(self) -> None:
        await self._watch.run()

    async def close(self) -> None:
        await self._probe.close()
        await self._cluster.close()

    def _on_pod(self, pod: Manifest, is_deleted: bool) -> None:
        key, uid = pod["metadata"]["labels"][names.KEY], pod["metadata"]["uid"]
        pods = self._pods.setdefault(key, {})
        if is_deleted:
            pods.pop(uid, None)
            self._probe.forget(pod)
            if self._key_at.get(_host(pod)) == key:
                del self._key_at[_host(pod)]
        else:
            pods[uid] = pod
            if _host(pod) and not observing.has_ended(pod):
                self._key_at[_host(pod)] = key
            self._probe.update(pod)
        self._choose(pod)

    def _choose(self, pod: Manifest) -> None:
        """Choose the newest pod that listens. A pod whose program is restarted keeps its address."""
        key = pod["metadata"]["labels"][names.KEY]
        pods = list(self._pods.get(key, {}).values())
        listening = [each for each in pods if self._probe.is_listening(each) and not observing.is_leaving(each)]
        if (chosen := observing.newest(listening)) is not None:
            self._hosts[key] = _host(chosen)
        elif self._hosts.get(key) not in [_host(each) for each in pods if not observing.has_ended(each)]:
            self._hosts.pop(key, None)
        if not pods:
            self._pods.pop(key, None)


def _host(pod: Manifest) -> str:
    return str(pod.get("status", {}).get("podIP", ""))
