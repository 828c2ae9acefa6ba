"""A real cluster of the tests, named by the variable KUBECONFIG_TEST: an administrator's kubeconfig.

It runs on this machine: its nodes reach the loopback registry of the tests, and the tests the addresses of pods.
The engine gets a service account with exactly the permissions of the chart, and its connections pass through a relay
that a test can close.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import yaml
from lightkube.config import client_adapter, kubeconfig
from tests.deploy.rendering import role_of
from tests.e2e.images_support import serving_python
from tests.runtime.images.registry_support import Entry, layer

from moorage.runtime.engines.kubernetes.client import Cluster, path_of
from moorage.runtime.images import machine
from moorage.runtime.images.manifests import OCI_MANIFEST

VARIABLE = "KUBECONFIG_TEST"
NAMESPACE = "moorage-tests"
MANAGED = "app.kubernetes.io/managed-by=moorage"
WAIT_S = 180.0
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WRITES = {"POST", "PATCH", "DELETE", "PUT"}

Manifest = dict[str, Any]


def is_given() -> bool:
    return VARIABLE in os.environ


class Relay:
    """Forwards connections to the API server, unless it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._target_port = host, port
        self._is_paused = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        assert self._is_ready.wait(30)

    def pause(self, *, is_paused: bool) -> None:
        def change() -> None:
            self._is_paused = is_paused
            if is_paused:
                self._drop()

        self._loop.call_soon_threadsafe(change)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._drop)
        self._loop.call_soon_threadsafe(self._server.close)

    def _drop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._forward, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._is_ready.set()
        self._loop.run_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._is_paused:
            writer.close()
            return
        ends = [writer]
        try:
            other_reader, other_writer = await asyncio.open_connection(self._host, self._target_port)
            ends.append(other_writer)
            await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError  # One side is closed, so the other one ends too.


class RealCluster:
    """Tests change it as an administrator; the engine uses `kubeconfig`."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="cluster-"))
        chosen = kubeconfig.KubeConfig.from_file(os.environ[VARIABLE]).get()
        assert chosen is not None
        assert chosen.user is not None
        self._http = httpx2.Client(
            base_url=chosen.cluster.server,
            verify=client_adapter.verify_cluster(chosen.cluster, chosen.user, chosen.abs_file, trust_env=False),
            auth=client_adapter.user_auth(chosen.user),
            trust_env=False,
            timeout=30.0,
        )
        where = urlsplit(chosen.cluster.server)
        self._relay = Relay(str(where.hostname), where.port or 443)
        self.kubeconfig = self.home / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(self._account()))
        self.clear()

    def close(self) -> None:
        self.set_room(has_room=True)
        self.clear()
        self._relay.close()
        self._http.close()
        shutil.rmtree(self.home, ignore_errors=True)

    # What a test does to a cluster.

    def objects(self, kind: str, selector: str = MANAGED) -> list[Manifest]:
        found: list[Manifest] = self._send("GET", f"{path_of(kind, '')}?labelSelector={selector}")["items"]
        return found

    def pause(self, *, is_paused: bool) -> None:
        """Let each connection of the engine fail as if the API server were away, or work again."""
        self._relay.pause(is_paused=is_paused)

    def set_room(self, *, has_room: bool) -> None:
        """Close all nodes to new pods, or open them again."""
        for node in self._send("GET", "/api/v1/nodes")["items"]:
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            self._send("PATCH", path, {"spec": {"unschedulable": not has_room}})

    def deny(self, *denied: tuple[str, str]) -> None:
        """Take verbs on resources from the account of the engine; none gives it all of the chart's again."""
        rules = [
            {**rule, "resources": [resource], "verbs": [verb]}
            for rule in self._rules
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if (verb, resource) not in denied
        ]
        change = {"kind": "ClusterRole", "metadata": {"name": NAMESPACE}, "rules": rules}
        self._send("PUT", f"{RBAC}/clusterroles/{NAMESPACE}", {"apiVersion": RBAC.removeprefix("/apis/"), **change})
        time.sleep(1.0)  # The authorizer of the API server hears of it a moment later.

    def limit_pods(self, namespace: str, number: int) -> None:
        """Change the quota of a namespace, and wait until it holds."""
        path = path_of("ResourceQuota", namespace, "organization")
        self._send("PATCH", path, {"spec": {"hard": {"pods": str(number)}}})
        self._until(lambda: self._send("GET", path).get("status", {}).get("hard", {}).get("pods") == str(number))

    def delete(self, kind: str, namespace: str, name: str, **options: Any) -> None:
        self._send("DELETE", path_of(kind, namespace, name), options, {200, 202, 404, 409})

    def clear(self, *kinds: str) -> None:
        """Delete all that the engine made, and wait until nothing of it runs; also for the end of further kinds."""
        for kind in ("Deployment", "StatefulSet", "Job", "Pod", "PersistentVolumeClaim", "Namespace"):
            for item in self.objects(kind):
                meta = item["metadata"]
                options = {"gracePeriodSeconds": 0} if kind == "Pod" else {"propagationPolicy": "Background"}
                self.delete(kind, meta.get("namespace", ""), meta["name"], **options)
        awaited = ("Deployment", "StatefulSet", "Job", "Pod", "PersistentVolumeClaim", *kinds)
        self._until(lambda: not any(self.objects(kind) for kind in awaited))

    def _until(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < until, "the cluster took too long"
            time.sleep(0.2)

    def _account(self) -> Manifest:
        """Make a service account with the permissions of the chart; return its kubeconfig."""
        role = role_of()
        self._rules = role["rules"]
        role = {"apiVersion": role["apiVersion"], "kind": "ClusterRole", "rules": self._rules}
        subject = {"kind": "ServiceAccount", "name": "moorage", "namespace": NAMESPACE}
        binding = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAMESPACE},
            "subjects": [subject],
        }
        made = {201, 409}
        self._send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, made)
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        self._send("POST", accounts, {"metadata": {"name": "moorage"}}, made)
        self._send("DELETE", f"{RBAC}/clusterroles/{NAMESPACE}", {}, {200, 404})
        self._send("POST", f"{RBAC}/clusterroles", {**role, "metadata": {"name": NAMESPACE}})
        self._send("POST", f"{RBAC}/clusterrolebindings", {**binding, "metadata": {"name": NAMESPACE}}, made)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 43200}}
        token = self._send("POST", f"{accounts}/moorage/token", asked)["status"]["token"]
        # The certificate of the API server does not name the address of the relay.
        cluster = {"server": f"https://127.0.0.1:{self._relay.port}", "insecure-skip-tls-verify": True}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }

    def _send(self, method: str, path: str, body: Manifest | None = None, allowed: set[int] | None = None) -> Any:
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        content = json.dumps(body) if body is not None else None
        answer = self._http.request(method, path, content=content, headers={"Content-Type": kind})
        assert answer.is_success or answer.status_code in (allowed or ()), answer.text
        return answer.json()


def count_writes(client: Cluster, writes: list[str]) -> None:
    """Add the method and path of each write of a client to a list."""

    async def note(request: httpx2.Request) -> None:
        if request.method in WRITES:
            writes.append(f"{request.method} {request.url.path}")

    client._http.event_hooks["request"].append(note)


def fresh_prefix() -> str:
    """Return a prefix for the namespaces of one test: the end of a namespace takes some seconds."""
    return f"t{secrets.token_hex(3)}"


@functools.cache
def shared(source: str) -> tuple[RealCluster, str]:
    """Return the cluster of all tests of this process, and an image with a program at /srv/main.py."""
    parts = contextlib.ExitStack()
    atexit.register(parts.close)
    registry = parts.enter_context(serving_python())
    python = registry.call("GET", "/v2/python/manifests/latest", Accept=OCI_MANIFEST).read()
    base = registry.call("GET", f"/v2/python/blobs/{json.loads(python)['layers'][0]['digest']}").read()
    program = layer(Entry("srv/main.py", source.encode()))
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    registry.push("contract", base, program, architecture=machine.architecture(), Env=[path])
    cluster = RealCluster()
    parts.callback(cluster.close)
    return cluster, f"127.0.0.1:{registry.port}/contract:latest"
