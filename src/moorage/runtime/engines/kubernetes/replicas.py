"""Workloads as pods: starts and stops them, and knows their states from watches."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from moorage.runtime.engines.kubernetes import manifests, names, observing
from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.following import LogFollower, OpenLog
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.kubernetes.metrics import Summaries
from moorage.runtime.engines.kubernetes.objects import Objects
from moorage.runtime.engines.kubernetes.observing import Trouble
from moorage.runtime.engines.kubernetes.options import Options
from moorage.runtime.engines.kubernetes.pods.listening import ListeningProbe
from moorage.runtime.engines.kubernetes.servers.refusals import Refusals
from moorage.runtime.engines.kubernetes.watching import Watch
from moorage.runtime.engines.ports import CannotStart, Logs, ReplicaSpec, ReplicaState, RunSpec, ServerSpec

MARK_S = 10.0  # for the garbage collector to begin with the pods of a deleted workload
STOP_MARGIN_S = 60.0  # beyond the grace period, for the kubelet to report the end
LOG_END_S = 10.0  # for the rest of a log after its pod ended
SAID_AFTER_S = 1.0  # A cause that passes at once is not logged.
STOPPED = "ended: it was stopped"
# Kinds of objects that own the pods of an engine's workloads.
OWNERS = {"app": ("Deployment", "Job"), "run": ("Deployment", "Job"), "server": ("StatefulSet",)}


class KubernetesReplicas:
    """Runs workloads in a cluster. Kubernetes restarts and moves them, also while this process is away."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        logs: Logs,
        open_log: OpenLog,
        fill: Callable[[ReplicaSpec], Awaitable[None]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._logs = logs
        self._fill = fill  # copies the files of a volume before its first pod starts
        self.objects = Objects(cluster, options)
        self.summaries = Summaries(cluster)
        self._follower = LogFollower(cluster, logs, open_log, self._pod_changed)
        self._probe = ListeningProbe(self._pod_changed)
        selector = self.objects.selector
        self._pods = Watch(cluster, "Pod", f"{selector},{names.KIND}!=command", self._on_pod)
        kinds = OWNERS[options.kind] if options.kind in OWNERS else (*OWNERS["app"], *OWNERS["server"])
        self._owners = {kind: Watch(cluster, kind, selector, self._on_owner) for kind in kinds}
        self._refusals = Refusals(cluster)
        self._hidden: dict[str, list[str]] = {}  # of the workloads that this process started or adopted, by key
        self._last: dict[str, ReplicaState] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[Callable[[str], None]] = []
        self._is_watching = False
        self._watch_lock = asyncio.Lock()

    # States of workloads.

    def states(self) -> Mapping[str, ReplicaState]:
        return {key: state for key in self._hidden if (state := self._state(key)) is not None}

    async def look(self, key: str) -> ReplicaState | None:
        state, pod = self._state(key), self.pod_of(key)
        if state is not None and pod is None:
            await self._ask_why(key)
            return self._state(key)
        if state is None or pod is None:
            return state
        figures = await self.summaries.of(pod)
        return replace(state, cpu_us=figures.cpu_us, memory_bytes=figures.memory_bytes, disk_bytes=figures.disk_bytes)

    def pod_of(self, key: str) -> Manifest | None:
        """Return the pod of a workload of this process."""
        return observing.newest(self._pods_of(key)) if key in self._hidden else None

    def pod_with_claim(self, namespace: str, claim: str) -> Manifest | None:
        """Return the running pod that holds a claim."""
        pods = (pod for pod in self._pods.objects.values() if pod["metadata"]["namespace"] == namespace)
        return next((pod for pod in pods if observing.runs_with_claim(pod, claim)), None)

    def listen(self, on_change: Callable[[str], None]) -> None:
        self._listeners.append(on_change)

    def _state(self, key: str) -> ReplicaState | None:
        owner = self._owner_of(key)
        if owner is None:
            return None
        pod = observing.newest(self._pods_of(key))
        return observing.observe(
            owner,
            pod,
            is_listening=pod is not None and self._probe.is_listening(pod),
            is_log_complete=pod is not None and self._follower.is_complete(pod),
            refusal=self._refusals.of(owner),
        )

    def _owner_of(self, key: str) -> Manifest | None:
        for watch in self._owners.values():
            for (_, name), item in watch.objects.items():
                if name == key:
                    return item
        return None

    def _pods_of(self, key: str) -> list[Manifest]:
        return [pod for pod in self._pods.objects.values() if pod["metadata"]["labels"].get(names.KEY) == key]

    # Starting.

    async def start(self, spec: ReplicaSpec) -> ReplicaState:
        """Start a workload and wait until its program runs; a second start of a key changes nothing."""
        async with self._lock(spec.key):
            try:
                return await self._start(spec)
            except ClusterError as error:
                raise CannotStart(f"it cannot be started: {error}") from error

    async def _start(self, spec: ReplicaSpec) -> ReplicaState:
        await self._ensure_watching()
        if spec.key in self._hidden and (state := self._state(spec.key)) is not None:
            return state
        await self._wait_for_name(spec)
        if self._fill is not None:
            await self._fill(spec)
        owner = await self.objects.apply(spec)
        self._take_over(spec.key, spec.hidden)
        self._owners[owner["kind"]].put_if_newer(owner)
        try:
            async with asyncio.timeout(self._options.start_timeout_s):
                return await self._until_running(spec.key)
        except BaseException as error:
            trouble = self._trouble(spec.key) if isinstance(error, TimeoutError) else None
            if not _is_left(spec, error):
                await asyncio.shield(self._end(spec.key, 1.0))
            if isinstance(error, TimeoutError):
                why = trouble.text if trouble else "its pod did not start in time"
                raise CannotStart(f"it cannot be started: {why}") from None
            raise

    async def _wait_for_name(self, spec: ReplicaSpec) -> None:
        """Wait for the end of an earlier workload of this key; raises CannotStart if it stays."""
        owner = self._owner_of(spec.key)
        if owner is not None and not self._is_leaving(spec.key):
            if _token_of(owner) != names.digest_of(spec.token):
                raise CannotStart(f"it cannot be started: another {spec.key} runs already")
            return
        # Pods are deleted after their owner, and would be taken for the new one's.
        await self._until(
            spec.key,
            lambda: self._owner_of(spec.key) is None and not self._pods_of(spec.key),
            manifests.STOP_GRACE_S + STOP_MARGIN_S,
        )

    async def _until_running(self, key: str) -> ReplicaState:
        loop = asyncio.get_running_loop()
        troubled_at, is_said = 0.0, False
        while True:
            changed = self._event(key)
            changed.clear()
            owner = self._owner_of(key)
            if owner is None:
                raise CannotStart("it cannot be started: it was deleted from the cluster")
            if observing.newest(self._pods_of(key)) is None:
                await self._ask_why(key)
            trouble, state = self._trouble(key), self._state(key)
            if trouble is None and state is not None and state.phase != "starting":
                return state
            troubled_at = (troubled_at or loop.time()) if trouble is not None else 0.0
            if trouble is not None:
                lasted_s = loop.time() - troubled_at
                if trouble.is_final or lasted_s >= self._patience_s(owner):
                    raise CannotStart(f"it cannot be started: {trouble.text}")
                if owner["kind"] == "Job" and not is_said and lasted_s >= SAID_AFTER_S:
                    self._note(owner, f"waiting for the cluster: {trouble.text}")
                    is_said = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(1.0, self._options.patience_s))

    def _patience_s(self, owner: Manifest) -> float:
        return self._options.run_patience_s if owner["kind"] == "Job" else self._options.patience_s

    def _trouble(self, key: str) -> Trouble | None:
        owner = self._owner_of(key)
        if owner is None:
            return None
        return observing.find_trouble(owner, observing.newest(self._pods_of(key)), self._refusals.of(owner))

    async def _ask_why(self, key: str) -> None:
        """Find out why a workload has no pod, where only an event has the reason."""
        owner = self._owner_of(key)
        if owner is not None and owner["kind"] in ("StatefulSet", "Job"):
            await self._refusals.look(owner)

    # Stopping.

    async def stop(self, key: str, grace_s: float) -> None:
        async with self._lock(key):
            if key not in self._hidden:
                return
            try:
                await self._stop(key, grace_s)
            except ClusterError as error:
                raise CannotStart(f"it cannot be stopped: {error}") from error

    async def _stop(self, key: str, grace_s: float) -> None:
        owner, state = self._owner_of(key), self._state(key)
        await self._end(key, grace_s)
        if owner is not None and owner["kind"] == "Job" and state is not None and state.phase != "stopped":
            self._note(owner, STOPPED)

    async def _end(self, key: str, grace_s: float) -> None:
        """Delete a workload, wait for its end and for the rest of its log, and forget it."""
        owner, pods = self._owner_of(key), self._pods_of(key)
        if owner is not None:
            seconds = max(1, math.ceil(grace_s)) + (self._options.drain_s if owner["kind"] == "Deployment" else 0)
            await self.objects.delete(owner)
            # A pod that is deleted before its ReplicaSet is would be replaced by another one.
            await self._until(key, lambda: all(map(observing.is_leaving, self._pods_of(key))), MARK_S)
            await self.objects.delete_pods(self._pods_of(key), seconds)
            await self._until(
                key, lambda: self._owner_of(key) is None and not self._pods_of(key), seconds + STOP_MARGIN_S
            )
        for pod in pods:
            await self._follower.finish(pod, LOG_END_S)
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._hidden.pop(key, None)
        self._last.pop(key, None)
        self._changed.pop(key, None)
        for listener in self._listeners:
            listener(key)

    def _note(self, owner: Manifest, text: str) -> None:
        log = owner["metadata"]["annotations"][names.LOG]
        writer = self._logs.writer(log, owner["metadata"]["name"], [])
        writer.write("system", text.encode())
        writer.close()

    async def limit(self, key: str, cpu: float | None) -> None:
        """Resize the running pod in place; a pod that Kubernetes replaces has the limit of its spec again."""
        owner, pod = self._owner_of(key), self.pod_of(key)
        if owner is None or pod is None:
            return
        given = owner["spec"]["template"]["spec"]["containers"][0]["resources"]
        memory_mb = manifests.megabytes(given["limits"]["memory"])
        wanted = given if cpu is None else manifests.resources(cpu, memory_mb)
        change = {"spec": {"containers": [{"name": names.CONTAINER, "resources": wanted}]}}
        meta = pod["metadata"]
        with contextlib.suppress(ClusterError):  # The guard sets its limits again, and the pod may be gone by now.
            await self._cluster.patch("Pod", meta["namespace"], meta["name"], change, "resize")

    # The control process begins and ends.

    async def adopt(self, tokens: Mapping[str, str]) -> list[str]:
        """See ReplicaEngine. The API server keeps the object of a started workload until it is stopped."""
        await self._ensure_watching()
        never_started = [key for key in tokens if self._owner_of(key) is None]
        for owner in [owner for watch in self._owners.values() for owner in watch.objects.values()]:
            key = owner["metadata"]["labels"][names.KEY]
            if "deletionTimestamp" in owner["metadata"] or key in self._hidden:
                continue
            if key in tokens and _token_of(owner) == names.digest_of(tokens[key]):
                self._take_over(key, await self.objects.hidden_values(key, owner["metadata"]["namespace"]))
            else:
                await self.objects.delete(owner)
                # A start of this key right afterwards has to see that the object is being deleted.
                await self._until(key, partial(self._is_leaving, key), MARK_S)
        owners = [owner for watch in self._owners.values() for owner in watch.objects.values()]
        await self.objects.delete_unowned_secrets({owner["metadata"]["labels"][names.KEY] for owner in owners})
        for key, state in self.states().items():
            pod = self.pod_of(key)
            if state.is_once and pod is not None and observing.has_ended(pod):
                await self._until(key, partial(self._follower.is_complete, pod), LOG_END_S)
        return never_started

    def _is_leaving(self, key: str) -> bool:
        owner = self._owner_of(key)
        return owner is None or "deletionTimestamp" in owner["metadata"]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._probe.close()
        await self._follower.close()
        await self._cluster.close()

    async def _ensure_watching(self) -> None:
        async with self._watch_lock:
            if self._is_watching:
                return
            watches = (*self._owners.values(), self._pods)
            for watch in watches:
                await watch.load()
            self._tasks |= {asyncio.create_task(watch.run()) for watch in watches}
            self._is_watching = True

    # Changes.

    def _take_over(self, key: str, hidden: list[str]) -> None:
        """Follow a workload from now on, also pods that were reported before."""
        self._hidden[key] = hidden
        for pod in self._pods_of(key):
            self._on_pod(pod, False)

    def _on_pod(self, pod: Manifest, is_deleted: bool) -> None:
        key = pod["metadata"]["labels"].get(names.KEY, "")
        if key in self._hidden:
            if is_deleted:
                self._follower.gone(pod)
                self._probe.forget(pod)
            else:
                self._follower.follow(pod, self._hidden[key])
                self._probe.update(pod)
        self._notify(key)

    def _on_owner(self, owner: Manifest, is_deleted: bool) -> None:
        self._notify(owner["metadata"]["labels"].get(names.KEY, ""))

    def _pod_changed(self, pod: Manifest) -> None:
        self._notify(pod["metadata"]["labels"].get(names.KEY, ""))

    def _notify(self, key: str) -> None:
        if event := self._changed.get(key):
            event.set()
        if key not in self._hidden:
            return
        state = self._state(key)
        if state is not None and state != self._last.get(key):
            self._last[key] = state
            for listener in self._listeners:
                listener(key)

    def _event(self, key: str) -> asyncio.Event:
        return self._changed.setdefault(key, asyncio.Event())

    async def _until(self, key: str, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a condition about a workload, at most for a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    changed = self._event(key)
                    changed.clear()
                    await changed.wait()

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def _is_left(spec: ReplicaSpec, error: BaseException) -> bool:
    """Return whether the object of a workload stays in the cluster after its start failed.

    The start of a run or server is cancelled only with its control process. Its program may run already, and the next
    process adopts it: a run that is ended here would be lost, or run twice, and a server would start anew.
    """
    if isinstance(error, asyncio.CancelledError):
        return isinstance(spec, RunSpec | ServerSpec)
    # Kubernetes starts a server by itself when the cause is gone.
    return isinstance(spec, ServerSpec) and isinstance(error, CannotStart)


def _token_of(owner: Manifest) -> str:
    return str(owner["metadata"].get("annotations", {}).get(names.TOKEN, ""))
