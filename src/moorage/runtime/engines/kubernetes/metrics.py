"""Measurements of pods from the summary of their kubelet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from moorage.runtime.engines.kubernetes import observing
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.ports import Usage

FRESH_S = 5.0  # The kubelet itself measures every ten seconds.


class Figures(NamedTuple):
    cpu_us: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0


class Summaries:
    """Reads the summary of a node at most every few seconds, however many pods are asked for."""

    def __init__(self, cluster: Cluster, fresh_s: float = FRESH_S) -> None:
        self._cluster = cluster
        self._fresh_s = fresh_s
        self._read_at: dict[str, float] = {}  # by node
        self._figures: dict[str, Figures] = {}  # by uid of the pod
        self._lock = asyncio.Lock()

    async def of(self, pod: Manifest) -> Figures:
        """Return the figures of a pod; zeros while the kubelet has none."""
        node = pod["spec"].get("nodeName")
        if node:
            async with self._lock:
                await self._read(node)
        return self._figures.get(pod["metadata"]["uid"], Figures())

    def last(self, pod: Manifest) -> Figures:
        return self._figures.get(pod["metadata"]["uid"], Figures())

    async def _read(self, node: str) -> None:
        now = time.monotonic()
        if now - self._read_at.get(node, -self._fresh_s) < self._fresh_s:
            return
        try:
            summary = await self._cluster.get(f"/api/v1/nodes/{node}/proxy/stats/summary")
        except ClusterError:
            return  # The node is away, or its figures are not permitted: the last ones stay.
        self._read_at[node] = now
        for item in summary.get("pods", []):
            volumes = [each.get("usedBytes", 0) for each in item.get("volume", []) if "pvcRef" in each]
            self._figures[item["podRef"]["uid"]] = Figures(
                int(item.get("cpu", {}).get("usageCoreNanoSeconds", 0)) // 1000,
                int(item.get("memory", {}).get("workingSetBytes", 0)),
                sum(volumes),
            )


class KubernetesMetrics:
    def __init__(self, summaries: Summaries, pod_of: Callable[[str], Manifest | None]) -> None:
        self._summaries = summaries
        self._pod_of = pod_of

    async def usage(self, key: str) -> Usage | None:
        pod = self._pod_of(key)
        running = observing.container_of(pod).get("state", {}).get("running") if pod else None
        if pod is None or running is None:
            return None
        figures = await self._summaries.of(pod)
        return Usage(figures.memory_bytes, int(time.time() * 1000) - observing.to_ms(running["startedAt"]))

    def volume_bytes(self, key: str, volume: str) -> int:
        """Return the size at the last look: only the kubelet can measure a volume."""
        pod = self._pod_of(key)
        return self._summaries.last(pod).disk_bytes if pod else 0

    def forget(self, key: str) -> None:
        """Nothing is remembered by key."""
