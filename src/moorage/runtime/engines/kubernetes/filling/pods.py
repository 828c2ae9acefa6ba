"""Fills the claim of a volume before the first pod of its app starts, from its folder on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path
from weakref import WeakValueDictionary

from moorage.core.kit.records import dataclass
from moorage.core.net import pod_identity
from moorage.runtime.engines.kubernetes import manifests, names, observing
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.filling import wire
from moorage.runtime.engines.kubernetes.filling.sending import CannotFill, Sent, Transfer
from moorage.runtime.engines.kubernetes.manifests import Manifest, Placement, PodFiles
from moorage.runtime.engines.kubernetes.objects import Objects, owned
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.ports import AppSpec, CannotStart, Logs, ReplicaSpec

AGENT = ["python3", "-m", "moorage.platform.pods.fill"]
MEMORY_MB = 256
CPUS = 1.0
TIMEOUT_S = 7 * 86_400
POLL_S = 0.2
GONE_WITHIN_S = 60.0
DELETE_GRACE_S = 1
MB = 2**20
NO_IMAGE = "MOORAGE_KUBERNETES_BUILD_IMAGE names no image of the platform, which a pod that fills volumes needs"


@dataclass(frozen=True)
class _Order:
    """A claim to fill, the folder with its files, and the app that gets them."""

    spec: ReplicaSpec
    claim: Manifest
    source: Path
    key: str

    @property
    def namespace(self) -> str:
        return str(self.claim["metadata"]["namespace"])


class VolumeFiller:
    def __init__(self, cluster: Cluster, options: Options, logs: Logs, folders: Path) -> None:
        self._cluster = cluster
        self._options = options
        self._logs = logs
        self._folders = folders  # of the volumes of this machine
        self._objects = Objects(cluster, options)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fill(self, spec: ReplicaSpec) -> None:
        """Fill the claim of an app unless that was done; raises CannotStart. Safe to repeat after any interruption."""
        if not spec.volume or not (source := self._folders / spec.volume).is_dir():
            return
        async with self._locks.setdefault(spec.volume, asyncio.Lock()):
            claim = await self._find(spec)
            if claim is None:
                return
            order = _Order(spec, claim, source, names.check_label(f"fill-{spec.volume}"))
            self._note(spec, "copying the files of its volume to the cluster")
            try:
                sent = await self._run(order)
                change = {"metadata": {"labels": {names.FILL: names.FILLED}}}
                meta = claim["metadata"]
                await self._cluster.patch("PersistentVolumeClaim", meta["namespace"], meta["name"], change)
            except (CannotFill, ClusterError) as error:
                why = f"the files of its volume were not copied to the cluster yet, and this is tried again: {error}"
                self._note(spec, why)
                raise CannotStart(why) from error
            self._note(spec, _describe(sent))

    async def _find(self, spec: ReplicaSpec) -> Manifest | None:
        """Return the claim of a volume if it has to be filled."""
        namespace = self._objects.namespace_of(manifests.pod_files(spec).org_id)
        claims = await self._objects.find_claims(spec.volume or "", namespace)
        return next((each for each in claims if is_unfilled(each)), None)

    async def _run(self, order: _Order) -> Sent:
        if not self._options.fill_image:
            raise CannotFill(NO_IMAGE)
        await self._end(order)  # a pod of an earlier process
        identity, token = pod_identity.make(wire.HOST, "Moorage volume"), secrets.token_hex(32)
        await self._start(order, token, identity.chain)
        try:
            host = await self._until_running(order)
            return await Transfer(host, token, identity.authority).run(order.source)
        finally:
            # The claim is mounted by one pod at a time, so the app waits for the end of this one.
            await asyncio.shield(asyncio.ensure_future(self._end(order)))

    async def _start(self, order: _Order, token: str, chain: str) -> None:
        options, files = self._options, manifests.pod_files(order.spec)
        await self._objects.ensure_organization(files.org_id)
        spec = AppSpec(
            key=order.key,
            token=token,
            argv=AGENT,
            env={wire.TOKEN_VARIABLE: token, wire.CERTIFICATE_VARIABLE: chain},
            # The user of the app, who will own the files.
            files=PodFiles(
                org_id=files.org_id,
                image=options.fill_image,
                user=files.user,
                architecture=options.agent_architecture,
            ),
            log=order.spec.log,
            cpu=CPUS,
            memory_mb=MEMORY_MB,
            inside_port=wire.PORT,
        )
        place = Placement(
            namespace=order.namespace,
            claim=order.claim["metadata"]["name"],
            pull_secret=options.pull_secret,
            drain_s=0,
        )
        manifest = manifests.command_pod(spec, place, spec.key, AGENT, TIMEOUT_S)
        pod = await self._cluster.create(manifest)
        await self._cluster.apply(owned(manifests.secret(spec, place), pod))

    async def _until_running(self, order: _Order) -> str:
        """Return the address of the pod; a cause that may pass has some time to pass."""
        loop, options = asyncio.get_running_loop(), self._options
        began, troubled_at = loop.time(), 0.0
        while loop.time() - began < options.start_timeout_s:
            pod = await self._cluster.find("Pod", order.key, order.namespace)
            if pod is None or observing.has_ended(pod):
                raise CannotFill("the pod that copies them ended before it was used")
            if "running" in observing.container_of(pod).get("state", {}):
                return str(pod["status"]["podIP"])
            trouble = observing.find_trouble({}, pod)
            troubled_at = (troubled_at or loop.time()) if trouble else 0.0
            if trouble is not None and (trouble.is_final or loop.time() - troubled_at > options.patience_s):
                raise CannotFill(f"the pod that copies them cannot be started: {trouble.text}")
            await asyncio.sleep(POLL_S)
        raise CannotFill("the pod that copies them did not start in time")

    async def _end(self, order: _Order) -> None:
        """Delete the pod, with its Secret, and wait until it is gone."""
        with contextlib.suppress(TimeoutError, ClusterError):
            async with asyncio.timeout(GONE_WITHIN_S):
                await self._cluster.delete("Pod", order.key, order.namespace, grace_s=DELETE_GRACE_S)
                while True:
                    if await self._cluster.find("Pod", order.key, order.namespace) is None:
                        return
                    await asyncio.sleep(POLL_S)

    def _note(self, spec: ReplicaSpec, text: str) -> None:
        writer = self._logs.writer(spec.log, spec.key, [])
        writer.write("system", text.encode())
        writer.close()


def is_unfilled(claim: Manifest) -> bool:
    return bool(claim["metadata"]["labels"].get(names.FILL) == names.UNFILLED)


def _describe(sent: Sent) -> str:
    text = f"copied the files of its volume to the cluster: {sent.files} files, {sent.copied_bytes / MB:.1f} MB"
    left_out = f"; left out {sent.left_out} sockets, devices or folders that are too deep" if sent.left_out else ""
    return text + left_out
