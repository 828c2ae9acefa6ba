"""Kubelet of the tests: starts pods as real processes, reports their states, stops them, and keeps their logs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.runtime.engines.kubernetes.api_store import Manifest, Store, claims_of, now
from tests.runtime.engines.kubernetes.containers import PLATFORM, PLATFORM_ENV, Process, Root
from tests.runtime.engines.kubernetes.controllers import NODE
from tests.runtime.engines.kubernetes.policy_proxies import PolicyProxies, hidden_address

RETRY_S = 0.1  # between attempts to pull an image or to find a Secret
FIRST_CRASH_S, LAST_CRASH_S = 0.5, 5.0  # The real kubelet waits 10 s to 5 min.
_VARIABLE = re.compile(r"\$(\$|\(([A-Za-z_.-][\w.-]*)\))")


Pull = Callable[[str], Awaitable[Path]]  # raises NotYet


class NotYet(Exception):
    """A container has to wait."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(eq=False)
class PodRun:
    """A pod on this node."""

    pod: Manifest
    address: str
    process: Process | None = None
    restarts: int = 0
    state: Manifest = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Manifest = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""  # of the pod, such as `DeadlineExceeded`
    task: asyncio.Task[None] | None = None

    @property
    def container(self) -> Manifest:
        found: Manifest = self.pod["spec"]["containers"][0]
        return found


@dataclass
class Kubelet:
    store: Store
    volumes: Path
    network: str = ""  # first three numbers of the addresses of pods
    images: dict[str, Path] = field(default_factory=dict)  # with files for /app of the root of this machine
    machine_images: dict[str, tuple[Path, ...]] = field(default_factory=dict)  # the root of this machine with folders
    enforces_policies: bool = False  # Connections to pods pass through a proxy that policies open and close.
    pull: Pull | None = None  # returns the whole root of an image in a registry
    roots: dict[str, Path] = field(default_factory=dict)  # of pulled images
    pods: dict[str, PodRun] = field(default_factory=dict)  # by uid
    stopped: dict[str, PodRun] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self.proxies = PolicyProxies(self.store)

    def step(self) -> None:
        """Start new pods, and stop those that are being deleted."""
        current = {pod["metadata"]["uid"]: pod for pod in self.store.all("Pod") if pod["spec"].get("nodeName") == NODE}
        for uid, pod in current.items():
            if uid not in self.pods and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self._count += 1
                run = PodRun(pod, f"{self.network}.{self._count % 254 + 1}")
                self.pods[uid] = run
                run.task = asyncio.create_task(self._run(run))
            if uid in self.pods:
                self.pods[uid].pod = pod
                if "deletionTimestamp" in pod["metadata"]:
                    self.pods[uid].stopping.set()
        for uid, run in list(self.pods.items()):
            if uid not in current:
                run.stopping.set()
        self._write_hosts(list(current.values()))

    def _write_hosts(self, pods: list[Manifest]) -> None:
        """Write the names of Services, which the DNS of a cluster has."""
        lines = ["127.0.0.1 localhost"]
        for service in self.store.all("Service"):
            meta, wanted = service["metadata"], service["spec"]["selector"].items()
            for pod in pods:
                is_meant = pod["metadata"]["namespace"] == meta["namespace"]
                if (
                    is_meant
                    and wanted <= pod["metadata"].get("labels", {}).items()
                    and "podIP" in pod.get("status", {})
                ):
                    lines.append(f"{pod['status']['podIP']} {meta['name']}.{meta['namespace']}.svc {meta['name']}")
        self.hosts.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join([*lines, ""])
        if not self.hosts.exists() or self.hosts.read_text() != text:
            self.hosts.write_text(text)  # Containers see the change, because the file stays the same one.

    @property
    def hosts(self) -> Path:
        return self.volumes.parent / "hosts"

    async def close(self) -> None:
        self.proxies.close()
        for run in list(self.pods.values()):
            if run.task is not None:
                run.task.cancel()
            if run.process is not None and not run.process.done.is_set():
                await run.process.stop(0.0)

    def find(self, namespace: str, name: str) -> PodRun | None:
        """Return the pod of this name that started last."""
        found = [
            run
            for run in self.pods.values()
            if (run.pod["metadata"]["namespace"], run.pod["metadata"]["name"]) == (namespace, name)
        ]
        return found[-1] if found else None

    async def _run(self, run: PodRun) -> None:
        deadline = run.pod["spec"].get("activeDeadlineSeconds")
        timer = asyncio.get_running_loop().call_later(deadline, self._expire, run) if deadline else None
        crash_s = FIRST_CRASH_S
        while not run.stopping.is_set():
            code = await self._once(run)
            if run.pod["spec"]["restartPolicy"] != "Always" or code is None:
                break
            # The real kubelet restarts once at once, and then waits longer and longer.
            if run.restarts:
                run.state = {
                    "waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}
                }
                self._report(run)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(run.stopping.wait(), crash_s)
                crash_s = min(crash_s * 2, LAST_CRASH_S)
            run.restarts += 1
        if timer is not None:
            timer.cancel()
        self._finish(run)

    async def _once(self, run: PodRun) -> int | None:
        """Run the container; return its exit code, None if the pod ends before."""
        while True:
            try:
                await self._pull(run.container["image"])
                root, env, command = self._prepare(run)
                break
            except NotYet as error:
                run.state = {"waiting": {"reason": error.reason, "message": str(error)}}
                self._report(run)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(run.stopping.wait(), RETRY_S)
                    return None
        if not root.has(command[0]):
            text = f'exec: "{command[0]}": executable file not found in $PATH: unknown'
            why = {"reason": "StartError", "message": f"failed to create containerd task: {text}"}
            self._ended(run, 128, **why)
            return 128
        if self.enforces_policies and "ports" in run.container:
            port = run.container["ports"][0]["containerPort"]
            self.proxies.start(run.address, port, run.pod["metadata"]["namespace"])
        run.process = await Process.start(root, env, command)
        run.state = {"running": {"startedAt": now()}}
        self._report(run)
        await self._until_over(run, run.process)
        assert run.process.code is not None
        self._ended(run, run.process.code)
        return run.process.code

    async def _until_over(self, run: PodRun, process: Process) -> None:
        done, stopping = (asyncio.create_task(each.wait()) for each in (process.done, run.stopping))
        await asyncio.wait([done, stopping], return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        stopping.cancel()
        if process.done.is_set():
            return
        sleep_s = run.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        grace_s = await self._grace_s(run)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.done.wait(), min(sleep_s, grace_s))
        stop = asyncio.create_task(process.stop(max(0.0, grace_s - sleep_s)))
        while not stop.done():
            shorter = await self._grace_s(run)
            if shorter < grace_s:  # A later deletion shortened the time.
                stop.cancel()
                stop = asyncio.create_task(process.stop(shorter))
                grace_s = shorter
            await asyncio.wait([stop], timeout=0.05)

    async def _grace_s(self, run: PodRun) -> float:
        meta = run.pod["metadata"]
        return float(meta.get("deletionGracePeriodSeconds", run.pod["spec"]["terminationGracePeriodSeconds"]))

    async def _pull(self, image: str) -> None:
        is_known = image in self.images or image in self.machine_images or image in self.roots
        if self.pull is not None and not is_known:
            self.roots[image] = await self.pull(image)

    def _prepare(self, run: PodRun) -> tuple[Root, dict[str, str], list[str]]:
        container = run.container
        image, is_whole = self.images.get(container["image"]), container["image"] in self.roots
        image = self.roots[container["image"]] if is_whole else image
        shared = self.machine_images.get(container["image"], ())
        if shared:
            image = self.volumes.parent / "empty"
            image.mkdir(exist_ok=True)
        if image is None:
            text = f'failed to resolve reference "{container["image"]}": not found'
            is_first = run.state["waiting"]["reason"] == "ContainerCreating" if "waiting" in run.state else False
            if is_first:
                raise NotYet("ErrImagePull", text)
            raise NotYet("ImagePullBackOff", f'Back-off pulling image "{container["image"]}": ErrImagePull: {text}')
        env = {item["name"]: self._value(run, item) for item in container.get("env", [])}
        if env.get("HOST") == "0.0.0.0":
            env["HOST"] = hidden_address(run.address) if self.enforces_policies else run.address
        if image == PLATFORM:
            env = PLATFORM_ENV | env
        workdir = container.get("workingDir", "/" if image == PLATFORM else "/app")
        if shared:
            env = {"PATH": ":".join([*(f"{folder}/bin" for folder in shared), "/usr/bin", "/bin"]), **env}
        root = Root(
            image,
            self._mounts(run),
            workdir,
            is_whole=is_whole,
            shared=shared,
            # A database server refuses to run as root.
            user=run.pod["spec"]["securityContext"]["runAsUser"] if shared else 0,
            hosts=self.hosts,
        )
        command = expand(container["command"], env)
        user = run.pod["spec"].get("securityContext", {}).get("runAsUser", 0)
        if image == PLATFORM and user:  # Programs of other images need no files of their own user.
            for folder in root.volumes.values():
                os.chown(folder, 0, user)  # A real kubelet lets the group of the pod write, and root own the volume.
                folder.chmod(0o2777)
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", *command]
        return root, env, command

    def _mounts(self, run: PodRun) -> dict[str, Path]:
        """Return the folders of volumes: of claims, and empty ones of the pod."""
        folders = {}
        for volume in run.pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            meta = run.pod["metadata"]
            folder = self.volumes / meta["namespace"] / (claim or f"{meta['name']}-{volume['name']}")
            folder.mkdir(parents=True, exist_ok=True)
            folders[volume["name"]] = folder
        return {each["mountPath"]: folders[each["name"]] for each in run.container.get("volumeMounts", [])}

    def _value(self, run: PodRun, item: Manifest) -> str:
        if "value" in item:
            return str(item["value"])
        source = item["valueFrom"]["secretKeyRef"]
        secret = self.store.objects.get(("Secret", run.pod["metadata"]["namespace"], source["name"]))
        if secret is None:
            raise NotYet("CreateContainerConfigError", f'secret "{source["name"]}" not found')
        return b64decode(secret["data"][source["key"]]).decode()

    def _expire(self, run: PodRun) -> None:
        run.reason = "DeadlineExceeded"
        run.stopping.set()

    def _ended(self, run: PodRun, code: int, reason: str = "", message: str = "") -> None:
        usual = "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason or usual, "finishedAt": now()}
        run.state = {"terminated": ended | ({"message": message} if message else {})}
        run.last = run.state
        self._report(run)

    def _finish(self, run: PodRun) -> None:
        current = self.store.objects.get(("Pod", run.pod["metadata"]["namespace"], run.pod["metadata"]["name"]))
        if current is not None and "deletionTimestamp" in current["metadata"]:
            self.store.remove(current)
            return
        code = run.state.get("terminated", {}).get("exitCode", 1)
        phase = "Succeeded" if code == 0 and not run.reason else "Failed"
        self._report(run, phase)

    def _report(self, run: PodRun, phase: str = "") -> None:
        is_up = "running" in run.state or run.last
        status: dict[str, Any] = {
            "phase": phase or ("Running" if is_up else "Pending"),
            "podIP": run.address,
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [
                {
                    "name": run.container["name"],
                    "image": run.container["image"],
                    "restartCount": run.restarts,
                    "ready": "running" in run.state,
                    "state": run.state,
                    "lastState": run.last if run.restarts else {},
                }
            ],
        }
        if run.reason:
            status |= {"reason": run.reason, "message": "Pod was active on the node longer than the specified deadline"}
        current = self.store.objects.get(("Pod", run.pod["metadata"]["namespace"], run.pod["metadata"]["name"]))
        if current is not None:
            self.store.status(current, status)

    def summary(self) -> Manifest:
        return {"node": {"nodeName": NODE}, "pods": [self._stats(run) for run in self.pods.values() if run.process]}

    def _stats(self, run: PodRun) -> Manifest:
        assert run.process is not None
        meta = run.pod["metadata"]
        namespace = meta["namespace"]
        volumes = [
            {
                "name": "data",
                "pvcRef": {"name": name, "namespace": namespace},
                "usedBytes": _size(self.volumes / namespace / name),
            }
            for name in claims_of(run.pod)
        ]
        started = run.state.get("running", {}).get("startedAt", now())
        memory = run.process.memory_bytes()
        return {
            "podRef": {"name": meta["name"], "namespace": namespace, "uid": meta["uid"]},
            "startTime": started,
            "containers": [{"name": run.container["name"], "startTime": started}],
            "cpu": {"usageCoreNanoSeconds": run.process.cpu_ns()},
            "memory": {"workingSetBytes": memory, "rssBytes": memory},
            "volume": volumes,
        }


def expand(command: list[str], env: dict[str, str]) -> list[str]:
    """Replace `$(NAME)` by a variable and `$$` by `$`, as the kubelet does."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else env.get(match[2], match[0])

    return [_VARIABLE.sub(value, word) for word in command]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
