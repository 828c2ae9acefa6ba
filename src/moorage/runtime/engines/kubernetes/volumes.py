"""Volumes as claims. A discarded claim keeps its files under a label until it is purged."""

from __future__ import annotations

import secrets
from asyncio import Lock
from collections.abc import Awaitable, Callable
from typing import Protocol
from weakref import WeakValueDictionary

from moorage.runtime.engines.kubernetes import manifests, names
from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.kubernetes.objects import MANAGED, Objects
from moorage.runtime.engines.kubernetes.options import Options


class MachineVolumes(Protocol):
    """Volumes that apps had before their platform moved from one machine into the cluster."""

    async def has_files(self, volume: str) -> bool: ...

    async def discard(self, owner: str) -> None: ...

    async def purge(self, owner: str) -> None: ...


class KubernetesVolumes:
    def __init__(
        self,
        cluster: Cluster,
        objects: Objects,
        options: Options,
        used_by: Callable[[Manifest], Awaitable[int]],
        machine: MachineVolumes | None = None,
    ) -> None:
        self._cluster = cluster
        self._objects = objects
        self._options = options
        self._used_by = used_by  # measures a claim
        self._machine = machine
        self._locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    async def ensure(self, volume: str, *, uid: int, size_mb: int, org_id: int = 0) -> None:
        """Create a claim unless it exists; a claim grows if its storage class can, and never shrinks."""
        async with self._locks.setdefault(volume, Lock()):
            namespace = await self._objects.ensure_organization(org_id)
            claims = await self._objects.find_claims(volume, namespace)
            if claims and size_mb <= manifests.megabytes(claims[0]["spec"]["resources"]["requests"]["storage"]):
                return
            name = claims[0]["metadata"]["name"] if claims else f"volume-{volume}-{secrets.token_hex(4)}"
            fill = claims[0]["metadata"]["labels"].get(names.FILL, "") if claims else await self._begin_fill(volume)
            claim = manifests.claim(volume, name, namespace, size_mb, self._options.storage_class, fill=fill)
            await self._cluster.apply(claim)

    async def _begin_fill(self, volume: str) -> str:
        has_files = self._machine is not None and await self._machine.has_files(volume)
        return names.UNFILLED if has_files else ""

    async def used_bytes(self, volume: str) -> int:
        claims = await self._objects.find_claims(volume)
        return await self._used_by(claims[0]) if claims else 0

    async def names(self) -> list[str]:
        items, _ = await self._cluster.list_all("PersistentVolumeClaim", f"{MANAGED},{names.VOLUME},!{names.TRASH}")
        return sorted(item["metadata"]["labels"][names.VOLUME] for item in items)

    async def discard(self, owner: str) -> None:
        if self._machine is not None:  # A new claim of this name begins empty.
            await self._machine.discard(owner)
        for claim in await self._claims_of(owner, f"!{names.TRASH}"):
            meta = claim["metadata"]
            change = {"metadata": {"labels": {names.TRASH: "true"}}}
            await self._cluster.patch("PersistentVolumeClaim", meta["namespace"], meta["name"], change)

    async def purge(self, owner: str) -> None:
        if self._machine is not None:
            await self._machine.purge(owner)
        for claim in await self._claims_of(owner, names.TRASH):
            meta = claim["metadata"]
            await self._cluster.delete("PersistentVolumeClaim", meta["name"], meta["namespace"])

    async def _claims_of(self, owner: str, selector: str) -> list[Manifest]:
        items, _ = await self._cluster.list_all("PersistentVolumeClaim", f"{MANAGED},{names.VOLUME},{selector}")
        return [item for item in items if _is_of(owner, item["metadata"]["labels"][names.VOLUME])]


def _is_of(owner: str, volume: str) -> bool:
    return volume == owner or volume.startswith(f"{owner}-")
