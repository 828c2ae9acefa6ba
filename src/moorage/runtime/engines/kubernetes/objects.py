"""Writes of the engine: namespaces, and the objects of one workload."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection

from moorage.runtime.engines.kubernetes import manifests, names, tenancy
from moorage.runtime.engines.kubernetes.client import Cluster
from moorage.runtime.engines.kubernetes.manifests import Manifest, Placement
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.ports import CannotStart, ReplicaSpec, RunSpec, ServerSpec

UNFILLED = (
    "it cannot be started: its volume has no files yet. The process that runs apps copies them from the folder "
    "volumes/{volume} of its data folder, when the app starts"
)
MANAGED = f"{names.MANAGED_BY}={names.MANAGER}"


class Objects:
    """Creates and deletes objects. Each call is safe to repeat, and none happens while the platform is idle."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self._options = options
        self._organizations: set[int] = set()  # whose namespaces this process has applied

    @property
    def selector(self) -> str:
        """Labels of the workloads of this engine."""
        return selector_of(self._options.kind)

    def namespace_of(self, org_id: int) -> str:
        return names.namespace_of(self._options.prefix, org_id)

    async def ensure_organization(self, org_id: int) -> str:
        """Apply the namespace of an organization with its limits and policies; return its name."""
        namespace, options = self.namespace_of(org_id), self._options
        if org_id not in self._organizations:
            for manifest in tenancy.organization(
                org_id,
                namespace,
                options.namespace,
                options.limits,
                options.rules,
                pod_security=options.pod_security,
            ):
                await self._cluster.apply(manifest)
            if options.registry_config:
                secret = tenancy.registry_secret(namespace, options.pull_secret, options.registry_config)
                await self._cluster.apply(secret)
            self._organizations.add(org_id)
        return namespace

    async def place(self, spec: ReplicaSpec) -> Placement:
        """Return where a workload goes; raises CannotStart if its volume does not exist."""
        namespace = await self.ensure_organization(manifests.pod_files(spec).org_id)
        claim = None
        if spec.volume:
            claims = await self.find_claims(spec.volume, namespace)
            if not claims:
                raise CannotStart(f"it cannot be started: its volume {spec.volume} does not exist")
            if claims[0]["metadata"]["labels"].get(names.FILL) == names.UNFILLED:
                raise CannotStart(UNFILLED.format(volume=spec.volume))
            claim = claims[0]["metadata"]["name"]
        options = self._options
        return Placement(namespace=namespace, claim=claim, pull_secret=options.pull_secret, drain_s=options.drain_s)

    async def find_claims(self, volume: str, namespace: str = "") -> list[Manifest]:
        selector = f"{MANAGED},{names.VOLUME}={volume},!{names.TRASH}"
        items, _ = await self._cluster.list_all("PersistentVolumeClaim", selector, namespace)
        return items

    async def apply(self, spec: ReplicaSpec) -> Manifest:
        """Apply the objects of a workload; return its Deployment, StatefulSet or Job, which owns the others."""
        place = await self.place(spec)
        secret = manifests.secret(spec, place)
        await self._cluster.apply(secret)
        owner = await self._cluster.apply(owner_of(spec, place))
        policies = (tenancy.workload_egress(spec, place.namespace), tenancy.workload_ingress(spec, place.namespace))
        for item in (secret, *(policy for policy in policies if policy is not None)):
            await self._cluster.apply(owned(item, owner))
        if isinstance(spec, ServerSpec) and spec.name and spec.volume:
            # The name stays as long as the files: addresses that clients resolved survive a restart with other limits.
            (claim, *_) = await self.find_claims(spec.volume, place.namespace)
            await self._cluster.apply(owned(manifests.service(spec, place), claim))
        return owner

    async def delete(self, owner: Manifest) -> None:
        """Begin to delete a workload: its pods and all else go with the owner."""
        meta = owner["metadata"]
        await self._cluster.delete(owner["kind"], meta["name"], meta["namespace"], propagation="Foreground")

    async def delete_pods(self, pods: list[Manifest], grace_s: int) -> None:
        """Give pods that are being deleted less time to end."""
        for pod in pods:
            meta = pod["metadata"]
            await self._cluster.delete("Pod", meta["name"], meta["namespace"], grace_s=grace_s)

    async def hidden_values(self, key: str, namespace: str) -> list[str]:
        """Return the values that the log of a workload masks."""
        items, _ = await self._cluster.list_all("Secret", f"{MANAGED},{names.KEY}={key}", namespace)
        return [
            value
            for item in items
            if names.HIDDEN in item.get("data", {})
            for value in json.loads(b64decode(item["data"][names.HIDDEN]))
        ]

    async def delete_unowned_secrets(self, keys: Collection[str]) -> None:
        """Delete Secrets whose workload was never created, because the platform ended in between.

        `keys` are those of workloads: the platform may have ended before one of them became the owner of its Secret.
        """
        items, _ = await self._cluster.list_all("Secret", f"{self.selector},{names.KEY}")
        for item in items:
            if not item["metadata"].get("ownerReferences") and item["metadata"]["labels"][names.KEY] not in keys:
                await self._cluster.delete("Secret", item["metadata"]["name"], item["metadata"]["namespace"])


def selector_of(kind: str) -> str:
    """Return the labels of the workloads of one kind, or with "" of all kinds."""
    return f"{MANAGED},{names.KIND}={kind}" if kind else MANAGED


def owner_of(spec: ReplicaSpec, place: Placement) -> Manifest:
    """Return the Deployment, StatefulSet or Job of a workload."""
    if isinstance(spec, RunSpec):
        return manifests.job(spec, place)
    return manifests.stateful_set(spec, place) if isinstance(spec, ServerSpec) else manifests.deployment(spec, place)


def owned(item: Manifest, owner: Manifest) -> Manifest:
    """Return a manifest with an owner, with which Kubernetes deletes it."""
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [manifests.owner_reference(owner)]}}
