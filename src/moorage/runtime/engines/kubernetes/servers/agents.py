"""Agents of database servers in a cluster: their image, their names, and their claims in the trash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorage.runtime.engines.kubernetes import names
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import PodFiles
from moorage.runtime.engines.kubernetes.objects import MANAGED
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.kubernetes.volumes import KubernetesVolumes
from moorage.runtime.engines.ports import CannotStart, Program

ARGV = ["python3", "-m", "moorage.runtime.database_servers.agent"]


class KubernetesAgents:
    def __init__(self, cluster: Cluster, options: Options, volumes: KubernetesVolumes) -> None:
        self._cluster = cluster
        self._volumes = volumes
        self._options = options

    def program(self, org_id: int) -> Program:
        # The platform chooses the software from its own image, and the same image runs on the same architecture.
        options = self._options
        files = PodFiles(org_id=org_id, image=options.agent_image, architecture=options.agent_architecture)
        return Program(argv=list(ARGV), env={}, files=files)

    def host_name(self, org_id: int, name: str) -> str:
        return f"{name}.{names.namespace_of(self._options.prefix, org_id)}.svc"

    async def ensure_volume(self, org_id: int, volume: str, size_mb: int) -> None:
        with _refusals("its volume cannot be used"):
            await self._volumes.ensure(volume, uid=0, size_mb=size_mb, org_id=org_id)

    async def discard(self, volume: str) -> None:
        with _refusals("its volume cannot be moved to the trash"):
            await self._volumes.discard(volume)

    async def take_back(self, volume: str) -> None:
        with _refusals("its volume cannot be taken out of the trash"):
            selector = f"{MANAGED},{names.VOLUME}={volume},{names.TRASH}"
            for claim in (await self._cluster.list_all("PersistentVolumeClaim", selector))[0]:
                meta = claim["metadata"]
                change = {"metadata": {"labels": {names.TRASH: None}}}
                await self._cluster.patch("PersistentVolumeClaim", meta["namespace"], meta["name"], change)

    async def purge(self, volume: str) -> None:
        with _refusals("its volume cannot be deleted"):
            await self._volumes.purge(volume)


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except ClusterError as error:
        raise CannotStart(f"{what}: {error}") from error
