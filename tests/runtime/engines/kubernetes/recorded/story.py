"""A fixed order of calls to a cluster that uses each part of the API that the engine uses, and its refusals."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moorage.runtime.engines.kubernetes import manifests, names, observing, tenancy
from moorage.runtime.engines.kubernetes.client import STDOUT, Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import Manifest, Placement, PodFiles
from moorage.runtime.engines.kubernetes.objects import owned, owner_of
from moorage.runtime.engines.kubernetes.servers.refusals import Refusals
from moorage.runtime.engines.kubernetes.tenancy import NamespaceLimits, NetworkRules
from moorage.runtime.engines.ports import AppSpec, RunSpec, ServerSpec

WAIT_S = 120.0
NAMESPACE = "story-org-7"
PLACE = Placement(namespace=NAMESPACE, drain_s=0)
SOURCE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("begun", flush=True)
if sys.argv[1] == "serve":
    while True:
        time.sleep(1)
sys.exit(int(sys.argv[1]))
"""

Note = Callable[[str, Any], None]


class Story:
    """`client` is recorded; `looking` waits until the cluster is so far, which takes a different number of calls."""

    def __init__(self, client: Cluster, looking: Cluster, note: Note, image: str, workdir: str) -> None:
        self.client, self.looking, self.note = client, looking, note
        self.files = PodFiles(org_id=7, image=image, workdir=workdir)
        self.argv = ["python3", "main.py"]

    def app(self, key: str, **changed: Any) -> AppSpec:
        usual = {"key": key, "token": f"token-{key}", "argv": [*self.argv, "serve"], "env": {"GREETING": "ahoy"}}
        return AppSpec(**{**usual, "log": "apps/3", "files": self.files, "cpu": 0.5, "memory_mb": 64, **changed})

    def run(self, key: str, word: str, **changed: Any) -> RunSpec:
        usual = {"key": key, "token": f"token-{key}", "argv": [*self.argv, word], "env": {}}
        return RunSpec(**{**usual, "log": "cronjobs/3", "files": self.files, "memory_mb": 64, **changed})

    def server(self, key: str, **changed: Any) -> ServerSpec:
        usual = {"key": key, "token": f"token-{key}", "name": "database-5", "argv": [*self.argv, "serve"], "env": {}}
        fixed = {"log": "databases/5", "files": self.files, "memory_mb": 64, "port": 5432, "agent_port": 9443}
        return ServerSpec(**{**usual, **fixed, **changed})

    async def refused(self, manifest: Manifest, *, is_created: bool = False) -> None:
        try:
            await (self.client.create(manifest) if is_created else self.client.apply(manifest))
        except ClusterError as error:
            self.note("the sentence", str(error))

    async def start(self, spec: AppSpec | RunSpec | ServerSpec, place: Placement = PLACE) -> Manifest:
        secret = manifests.secret(spec, place)
        await self.client.apply(secret)
        owner = await self.client.apply(owner_of(spec, place))
        await self.client.apply(owned(secret, owner))
        return owner

    async def pod(self, key: str, is_so: Callable[[Manifest], bool]) -> Manifest:
        """Wait for a pod, and return it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                pods, _ = await self.looking.list_all("Pod", f"{names.KEY}={key}", NAMESPACE)
                if pods and is_so(pods[0]):
                    return pods[0]
                await asyncio.sleep(0.1)

    async def gone(self, kind: str, name: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while [item for item in (await self.looking.list_all(kind, "", NAMESPACE))[0] if _name(item) == name]:
                await asyncio.sleep(0.1)

    async def end(self, kind: str, key: str) -> None:
        await self.client.delete(kind, key, NAMESPACE, propagation="Foreground")
        async with asyncio.timeout(WAIT_S):
            while pods := (await self.looking.list_all("Pod", f"{names.KEY}={key}", NAMESPACE))[0]:
                if all(map(observing.is_leaving, pods)):
                    for pod in pods:
                        await self.looking.delete("Pod", _name(pod), NAMESPACE, grace_s=1)
                await asyncio.sleep(0.1)
        await self.gone(kind, key)


async def tell(client: Cluster, looking: Cluster, note: Note, image: str, workdir: str = "/srv") -> None:
    """Tell the story to a cluster that has nothing of the platform."""
    story = Story(client, looking, note, image, workdir)
    await _organization(story)
    await _app(story)
    await _runs(story)
    await _servers(story)
    await _troubles(story)
    await _watches(story)


async def _organization(story: Story) -> None:
    limits, rules = NamespaceLimits(cpu=4, memory_gb=200), NetworkRules()
    for manifest in tenancy.organization(7, NAMESPACE, "moorage", limits, rules) * 2:
        await story.client.apply(manifest)
    await asyncio.sleep(2.0)  # The account of the namespace and the figures of its quota come a moment later.
    secret = manifests.secret(story.app("s1"), PLACE)
    await story.client.apply(secret)
    await story.refused({**secret, "data": {"GREETING": "bm8="}})
    await story.client.delete("Secret", _name(secret), NAMESPACE)
    await story.client.delete("Secret", _name(secret), NAMESPACE)  # It is gone by now.
    assert await story.client.find("Pod", "missing", NAMESPACE) is None
    wrong = copy.deepcopy(secret)
    wrong["metadata"]["name"] = "Not-Valid"
    await story.refused(wrong)
    try:
        await story.client.get("/api/v1/nodes")
    except ClusterError as error:
        story.note("the sentence", str(error))


async def _app(story: Story) -> None:
    await story.start(story.app("s1"))
    pod = await story.pod("s1", lambda found: "running" in observing.container_of(found).get("state", {}))
    pods, _ = await story.client.list_all("Pod", f"{names.KEY}=s1", NAMESPACE)
    assert len(pods) == 1
    name = _name(pod)
    async with story.client.log(NAMESPACE, name, None) as chunks:
        story.note("the log", (await anext(chunks)).decode())
    for words in (["sh", "-c", "echo out; echo err >&2; exit 3"], ["sh", "-c", "echo $GREETING"], ["missing"]):
        output = {1: b"", 2: b""}
        try:
            code = await story.client.exec(NAMESPACE, name, names.CONTAINER, words, _into(output))
            story.note(f"the command {words}", [code, output[STDOUT].decode(), output[2].decode()])
        except ClusterError as error:
            story.note(f"the command {words}", "executable file not found" in str(error))
    change = {"spec": {"containers": [{"name": names.CONTAINER, "resources": manifests.resources(0.25, 64)}]}}
    await story.client.patch("Pod", NAMESPACE, name, change, "resize")
    await story.client.delete("Pod", name, NAMESPACE, grace_s=2)
    await story.gone("Pod", name)
    await story.end("Deployment", "s1")


async def _runs(story: Story) -> None:
    for key, word, timeout_s in (("c1", "0", 0), ("c2", "3", 0), ("c3", "serve", 3)):
        await story.start(story.run(key, word, timeout_s=timeout_s))
        await story.pod(key, lambda found: observing.has_ended(found) and "terminated" in _state(found))
        await story.client.list_all("Pod", f"{names.KEY}={key}", NAMESPACE)
        await story.end("Job", key)


async def _servers(story: Story) -> None:
    """A database server, its name, and one that the quota refuses: only an event has the reason."""
    claim = await story.client.apply(manifests.claim("database-5", "volume-5", NAMESPACE, 64, "missing"))
    await story.start(story.server("s7"))
    service = owned(manifests.service(story.server("s7"), PLACE), claim)
    for _ in range(2):
        await story.client.apply(service)
    await story.pod("s7", lambda found: "running" in _state(found))
    await story.client.list_all("Pod", f"{names.KEY}=s7", NAMESPACE)
    await story.client.list_all("StatefulSet", f"{names.KEY}=s7", NAMESPACE)
    await story.end("StatefulSet", "s7")
    owner, refusals = await story.start(story.server("s8", cpu=5.0)), Refusals(story.looking)
    async with asyncio.timeout(WAIT_S):
        while not refusals.of(owner):
            await refusals.look(owner)
            await asyncio.sleep(0.1)
    story.note("the event", refusals.of(owner))
    await story.end("StatefulSet", "s8")
    await story.client.delete("PersistentVolumeClaim", "volume-5", NAMESPACE)


async def _troubles(story: Story) -> None:
    """Pods that cannot run, and what the cluster says about them."""
    for pod in (_command(story, "p1", cpu=5.0), _command(story, "p2", memory_mb=300_000), _root_pod(story)):
        await story.refused(pod, is_created=True)
    await story.start(story.app("s2", cpu=5.0))
    await _until_owner(story, "s2")
    await story.client.list_all("Deployment", f"{names.KEY}=s2", NAMESPACE)
    await story.end("Deployment", "s2")
    missing = replace(story.files, image="127.0.0.1:9/missing:1")
    claim = manifests.claim("17", "volume-17", NAMESPACE, 64, "missing")
    await story.client.apply(claim)
    with_claim = Placement(namespace=NAMESPACE, drain_s=0, claim="volume-17")
    cases = (
        ("s3", story.app("s3", memory_mb=150_000), PLACE),
        ("s4", story.app("s4", files=missing), PLACE),
        ("s5", story.app("s5", argv=["missing"]), PLACE),
        ("s6", story.app("s6"), with_claim),
    )
    for key, spec, place in cases:
        await story.start(spec, place)
        pod = await story.pod(key, lambda found: observing.find_trouble({}, found) is not None)
        trouble = observing.find_trouble({}, pod)
        assert trouble is not None
        story.note(f"the trouble of {key}", trouble.text.partition("(")[0] if key != "s5" else trouble.is_final)
        await story.end("Deployment", key)
    await story.client.delete("PersistentVolumeClaim", "volume-17", NAMESPACE)


async def _until_owner(story: Story, key: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            owners, _ = await story.looking.list_all("Deployment", f"{names.KEY}={key}", NAMESPACE)
            if observing.find_trouble(owners[0], None) is not None:
                return
            await asyncio.sleep(0.1)


async def _watches(story: Story) -> None:
    selector = f"{names.KEY}=s9"
    _, version = await story.client.list_all("Deployment", selector)
    watched = asyncio.create_task(_events(story.client, selector, version, 2))
    await story.looking.apply(manifests.deployment(story.app("s9"), PLACE))
    await story.looking.delete("Deployment", "s9", NAMESPACE)
    story.note("the watch", await watched)


async def _events(cluster: Cluster, selector: str, version: str, number: int) -> list[str]:
    """Return the first events of a watch; how often the status changes in between differs."""
    found: list[str] = []
    events = cluster.watch("Deployment", selector, version)
    async with asyncio.timeout(WAIT_S), contextlib.aclosing(events):  # type: ignore[type-var]
        async for event, item in events:
            if event in ("ADDED", "DELETED"):
                found.append(f"{event} {item['kind']} {item['metadata']['labels'][names.KEY]}")
            if len(found) == number:
                break
    return found


def _command(story: Story, name: str, **changed: Any) -> Manifest:
    return manifests.command_pod(story.app(name, **changed), PLACE, name, ["true"], 60)


def _root_pod(story: Story) -> Manifest:
    found = _command(story, "p3")
    found["spec"]["securityContext"] = {}
    return found


def _into(output: dict[int, bytes]) -> Callable[[int, bytes], None]:
    def put(channel: int, data: bytes) -> None:
        output[channel] += data

    return put


def _state(pod: Manifest) -> Manifest:
    found: Manifest = observing.container_of(pod).get("state", {})
    return found


def _name(item: Manifest) -> str:
    return str(item["metadata"]["name"])
