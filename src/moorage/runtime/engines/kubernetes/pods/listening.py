"""Finds out when a pod begins to listen, by connecting to its address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from moorage.runtime.engines.kubernetes import names, observing
from moorage.runtime.engines.kubernetes.manifests import Manifest

FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0
CONNECT_TIMEOUT_S = 5.0


class ListeningProbe:
    """Connects to each running pod until it accepts, once for each start of its program."""

    def __init__(self, on_change: Callable[[Manifest], None]) -> None:
        self._on_change = on_change
        self._listening: dict[str, int] = {}  # uid of a pod -> number of restarts when it was seen listening
        self._tasks: dict[str, tuple[int, asyncio.Task[None]]] = {}  # uid -> number of restarts, task

    def is_listening(self, pod: Manifest) -> bool:
        return self._listening.get(pod["metadata"]["uid"]) == _instance(pod)

    def update(self, pod: Manifest) -> None:
        """Begin to connect to a pod whose program runs, and stop for one that does not."""
        uid, instance = pod["metadata"]["uid"], _instance(pod)
        is_running = "running" in observing.container_of(pod).get("state", {})
        port = int(pod["metadata"].get("annotations", {}).get(names.PORT, "0"))
        running = self._tasks.get(uid)
        if running is not None and (not is_running or running[0] != instance):
            self._cancel(uid)
        if is_running and port and not self.is_listening(pod) and uid not in self._tasks:
            task = asyncio.create_task(self._connect(pod, uid, instance, port))
            self._tasks[uid] = instance, task

    def forget(self, pod: Manifest) -> None:
        self._listening.pop(pod["metadata"]["uid"], None)
        self._cancel(pod["metadata"]["uid"])

    async def close(self) -> None:
        for uid in list(self._tasks):
            self._cancel(uid)

    def _cancel(self, uid: str) -> None:
        if (running := self._tasks.pop(uid, None)) is not None:
            running[1].cancel()

    async def _connect(self, pod: Manifest, uid: str, instance: int, port: int) -> None:
        pause_s = FIRST_PAUSE_S
        while not await _accepts(pod["status"].get("podIP", ""), port):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LAST_PAUSE_S)
        self._listening[uid] = instance
        self._tasks.pop(uid, None)
        self._on_change(pod)


async def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
    return False


def _instance(pod: Manifest) -> int:
    return int(observing.container_of(pod).get("restartCount", 0))
