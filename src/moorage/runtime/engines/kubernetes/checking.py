"""Check of the cluster at the start: it answers, permits what the engine needs, and enforces network policies."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from moorage.runtime.engines.kubernetes import manifests, names, observing, tenancy
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import Manifest, Placement, PodFiles
from moorage.runtime.engines.kubernetes.objects import MANAGED
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.ports import AppSpec

READ_KINDS = ("Namespace", "Deployment", "StatefulSet", "Job", "Pod", "Secret", "PersistentVolumeClaim")
PROBE_PORT = 8080
START_TIMEOUT_S = 180.0  # with the pull of the image
ENFORCED_WITHIN_S = 15.0  # Some networks apply a policy only a moment after a pod has started.
OPEN_WITHIN_S = 30.0
TRY_TIMEOUT_S = 2.0
POLL_S = 0.25
LISTENING = "listening"
LISTEN = f"""
import os, socket
server = socket.create_server((os.environ["HOST"], {PROBE_PORT}))
print("{LISTENING}", flush=True)
while True:
    server.accept()[0].close()
"""


class Enforcement:
    """Starts a pod that all traffic is denied to, tries to connect to it, and then permits the connection.

    The second part shows that the failure of the first one came from the policy.
    """

    def __init__(self, cluster: Cluster, options: Options, image: str) -> None:
        self._cluster, self._options, self._image = cluster, options, image
        self._namespace = names.check_label(f"{options.prefix}-probe")
        self._name = f"probe-{secrets.token_hex(4)}"

    async def check(
        self, *, enforced_within_s: float = ENFORCED_WITHIN_S, open_within_s: float = OPEN_WITHIN_S
    ) -> None:
        """Raise ClusterError unless the network of the cluster enforces policies."""
        try:
            await self._start()
            host = await self._address()
            if not await _becomes(host, is_open=False, within_s=enforced_within_s):
                raise ClusterError(
                    0,
                    "",
                    "its network does not enforce NetworkPolicies: a pod that all traffic is denied to accepted a "
                    "connection. Organizations would reach each other: install a network that enforces them",
                )
            await self._cluster.apply(tenancy.allow_platform(self._namespace, self._options.namespace))
            if not await _becomes(host, is_open=True, within_s=open_within_s):
                raise ClusterError(
                    0,
                    "",
                    f"the platform does not reach a pod at {host}:{PROBE_PORT}, although a policy permits it. Run the "
                    f"platform in the namespace {self._options.namespace}, in pods with the label {names.PART}",
                )
        finally:
            await asyncio.shield(self._clear_up())

    async def _start(self) -> None:
        own = tenancy.organization(
            0, self._namespace, self._options.namespace, self._options.limits, self._options.rules
        )
        for manifest in own:
            if manifest["metadata"]["name"] != "allow-platform":
                await self._cluster.apply(manifest)
        await self._cluster.delete("NetworkPolicy", "allow-platform", self._namespace)  # of an earlier probe
        if self._options.registry_config:
            secret = tenancy.registry_secret(self._namespace, self._options.pull_secret, self._options.registry_config)
            await self._cluster.apply(secret)
        spec = AppSpec(
            key=self._name,
            token=self._name,
            argv=["python3", "-c", LISTEN],
            env={},
            files=PodFiles(org_id=0, image=self._image),
            log="probe",
            memory_mb=128,
            inside_port=PROBE_PORT,
        )
        place = Placement(namespace=self._namespace, pull_secret=self._options.pull_secret, drain_s=0)
        await self._cluster.create(manifests.command_pod(spec, place, self._name, spec.argv, int(START_TIMEOUT_S) * 2))

    async def _address(self) -> str:
        """Return the address of the pod once its program listens: before, each connection would be refused."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                while True:
                    pod = await self._cluster.find("Pod", self._name, self._namespace)
                    if pod is None or observing.has_ended(pod):
                        break
                    if "running" in observing.container_of(pod).get("state", {}) and await self._is_listening():
                        return str(pod["status"]["podIP"])
                    await asyncio.sleep(POLL_S)
        pod = await self._cluster.find("Pod", self._name, self._namespace)
        raise ClusterError(0, "", f"its probe of network policies does not run: {_why(pod)}")

    async def _is_listening(self) -> bool:
        """Read the log of the pod until its program says so, or ends."""
        text = b""
        async with self._cluster.log(self._namespace, self._name, None, timestamps=False) as chunks:
            async for chunk in chunks:
                text += chunk
                if LISTENING.encode() in text:
                    return True
        return False

    async def _clear_up(self) -> None:
        with contextlib.suppress(ClusterError):
            await self._cluster.delete("Pod", self._name, self._namespace, grace_s=1)
            await self._cluster.delete("NetworkPolicy", "allow-platform", self._namespace)


async def check(cluster: Cluster, options: Options, probe_image: str) -> None:
    """Raise ClusterError where the cluster cannot be used; without an image, policies are not probed."""
    for kind in READ_KINDS:
        await cluster.list_all(kind, MANAGED)
    if probe_image:
        await Enforcement(cluster, options, probe_image).check()


async def _becomes(host: str, *, is_open: bool, within_s: float) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while True:
        if await _accepts(host) is is_open:
            return True
        if loop.time() > until:
            return False
        await asyncio.sleep(POLL_S)


async def _accepts(host: str) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(TRY_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, PROBE_PORT)
            writer.close()
            return True
    return False


def _why(pod: Manifest | None) -> str:
    if pod is None:
        return "it was deleted"
    trouble = observing.find_trouble({}, pod)
    return trouble.text if trouble is not None else str(observing.container_of(pod).get("state", {}))
