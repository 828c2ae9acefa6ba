"""One-off commands beside an app: in a pod of their own, or in the pod that holds the volume of the app."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable
from dataclasses import replace

from moorage.runtime.engines.kubernetes import manifests, names, observing
from moorage.runtime.engines.kubernetes.client import STDOUT, Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import Manifest, Placement
from moorage.runtime.engines.kubernetes.objects import MANAGED, Objects, owned
from moorage.runtime.engines.ports import AppSpec, CannotStart, CommandEnd, OutputStream

POLL_S = 0.2
DELETE_GRACE_S = 1
KILLED = 137
FAILED = 125  # as of container tools: the command itself did not run

Put = Callable[[OutputStream, bytes], None]


class KubernetesCommands:
    def __init__(self, cluster: Cluster, objects: Objects) -> None:
        self._cluster = cluster
        self._objects = objects

    async def run(self, beside: AppSpec, argv: list[str], put: Put, *, timeout_s: float) -> CommandEnd:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._run(beside, argv, put, timeout_s)
        except TimeoutError:
            return CommandEnd(KILLED, observing.took_longer(math.ceil(timeout_s)))
        except (ClusterError, CannotStart) as error:
            return CommandEnd(FAILED, str(error))

    async def _run(self, beside: AppSpec, argv: list[str], put: Put, timeout_s: float) -> CommandEnd:
        spec = replace(beside, key=f"command-{secrets.token_hex(4)}", token=secrets.token_hex(8), name="")
        place = await self._objects.place(spec)
        # A claim is mounted by one pod at a time, so a command beside a running app with a volume joins its pod.
        pod = await self._pod_with_claim(place.namespace, place.claim) if place.claim else None
        if pod is not None:
            meta = pod["metadata"]

            def on_frame(channel: int, data: bytes) -> None:
                put("stdout" if channel == STDOUT else "stderr", data)

            code = await self._cluster.exec(meta["namespace"], meta["name"], names.CONTAINER, argv, on_frame)
            return CommandEnd(code, None)
        return await self._run_pod(spec, place, argv, put, timeout_s)

    async def _pod_with_claim(self, namespace: str, claim: str) -> Manifest | None:
        """Return the running pod that holds a claim. A process that only serves the API has no watch of pods."""
        pods, _ = await self._cluster.list_all("Pod", MANAGED, namespace)
        return next((pod for pod in pods if observing.runs_with_claim(pod, claim)), None)

    async def _run_pod(
        self, spec: AppSpec, place: Placement, argv: list[str], put: Put, timeout_s: float
    ) -> CommandEnd:
        manifest = manifests.command_pod(spec, place, spec.key, argv, max(1, math.ceil(timeout_s)))
        pod = await self._cluster.create(manifest)
        try:
            await self._cluster.apply(owned(manifests.secret(spec, place), pod))
            return await self._until_ended(place.namespace, spec.key, put)
        finally:
            deleting = self._cluster.delete("Pod", spec.key, place.namespace, grace_s=DELETE_GRACE_S)
            await asyncio.shield(asyncio.ensure_future(deleting))

    async def _until_ended(self, namespace: str, name: str, put: Put) -> CommandEnd:
        while True:
            pod = await self._cluster.find("Pod", name, namespace)
            if pod is None:
                return CommandEnd(KILLED, "its pod was deleted")
            state = observing.container_of(pod).get("state", {})
            trouble = observing.find_trouble({}, pod)
            if trouble is not None and trouble.is_final:
                return CommandEnd(FAILED, f"it cannot be started: {trouble.text}")
            if state.keys() & {"running", "terminated"}:
                break
            await asyncio.sleep(POLL_S)
        async with self._cluster.log(namespace, name, None, timestamps=False) as chunks:
            async for chunk in chunks:
                put("stdout", chunk)
        while "terminated" not in state:
            await asyncio.sleep(POLL_S)
            pod = await self._cluster.find("Pod", name, namespace)
            state = observing.container_of(pod).get("state", {}) if pod else {"terminated": {"exitCode": KILLED}}
        return CommandEnd(int(state["terminated"]["exitCode"]), None)
