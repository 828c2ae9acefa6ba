"""Client of the Kubernetes API: objects as dictionaries, server-side apply, watches, logs and commands.

lightkube reads the kubeconfig or the service account, and signs the requests. Its own watch loses deletions after
`410 Gone`, and its log stream cannot continue at a time, so requests are made here.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException
from lightkube.config import client_adapter, kubeconfig
from lightkube.core.exceptions import ConfigError
from yaml import YAMLError

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.kubernetes.manifests import Manifest
from moorage.runtime.engines.kubernetes.names import MANAGER

REQUEST_TIMEOUT_S = 30.0
WATCH_S = 240  # The server ends a watch after this time, so that a broken connection is found.
# An API server whose node was lost closes no connection: a watch of it is found dead within 14 seconds.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
PATIENCE_S = 90.0  # Requests are repeated for this long while the API server is away.
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 10.0
RETRIED = frozenset({429, 500, 502, 503, 504})
APPLY = "application/apply-patch+yaml"
PATCH = "application/strategic-merge-patch+json"  # merges the lists of containers by name
PAGE = 500
STDOUT, STDERR, STATUS = 1, 2, 3  # channels of the exec protocol
EXEC_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]

Propagation = Literal["Background", "Foreground", "Orphan"]


class Kind(NamedTuple):
    """Where the objects of a kind are in the API."""

    api: str
    plural: str
    is_namespaced: bool = True


KINDS = {
    "Namespace": Kind("api/v1", "namespaces", is_namespaced=False),
    "Pod": Kind("api/v1", "pods"),
    "Secret": Kind("api/v1", "secrets"),
    "PersistentVolumeClaim": Kind("api/v1", "persistentvolumeclaims"),
    "Service": Kind("api/v1", "services"),
    "Event": Kind("api/v1", "events"),
    "ResourceQuota": Kind("api/v1", "resourcequotas"),
    "LimitRange": Kind("api/v1", "limitranges"),
    "Deployment": Kind("apis/apps/v1", "deployments"),
    "StatefulSet": Kind("apis/apps/v1", "statefulsets"),
    "Job": Kind("apis/batch/v1", "jobs"),
    "NetworkPolicy": Kind("apis/networking.k8s.io/v1", "networkpolicies"),
}


@dataclass
class ClusterError(Exception):
    """The API refused a request or did not answer; the text is a sentence for the operator."""

    code: int  # HTTP status, 0 if there was no response
    reason: str  # such as `Forbidden`
    message: str

    def __str__(self) -> str:
        if self.code == 0:
            return self.message
        if "exceeded quota" in self.message:
            return f"the quota of the organization in the cluster is used up ({self.message})"
        if self.code in (401, 403):
            return f"the cluster does not permit it ({self.message})"
        return f"the cluster refused it ({self.message})"


class Cluster:
    """The API of one cluster. Requests are repeated while it is away; each of them is safe to repeat."""

    def __init__(self, http: httpx2.AsyncClient, *, patience_s: float = PATIENCE_S) -> None:
        self._http = http
        self._patience_s = patience_s

    @classmethod
    def connect(cls, config: str | None = None, *, patience_s: float = PATIENCE_S) -> Cluster:
        """Use a kubeconfig file, or the service account of this pod; raises ClusterError."""
        try:
            source = kubeconfig.KubeConfig.from_file(config) if config else kubeconfig.KubeConfig.from_service_account()
            chosen = source.get()
            assert chosen is not None
            user = chosen.user
            if user is None:
                raise ConfigError("the context has no user")
            is_plain = chosen.cluster.server.startswith("http://")  # for example kubectl proxy on loopback
            verify = not is_plain and client_adapter.verify_cluster(
                chosen.cluster, user, chosen.abs_file, trust_env=False
            )
            auth = client_adapter.user_auth(user)
        except (ConfigError, YAMLError, AttributeError, KeyError, OSError, ValueError, TypeError) as error:
            where = f"the kubeconfig {config}" if config else "the service account of this pod"
            raise ClusterError(0, "", f"cannot read {where}: {error}") from error
        transport = httpx2.AsyncHTTPTransport(
            verify=verify,
            trust_env=False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=8),  # each followed log holds one
            socket_options=KEEPALIVE,
        )
        http = httpx2.AsyncClient(
            base_url=chosen.cluster.server, transport=transport, auth=auth, trust_env=False, timeout=REQUEST_TIMEOUT_S
        )
        return cls(http, patience_s=patience_s)

    async def close(self) -> None:
        await self._http.aclose()

    async def find(self, kind: str, name: str, namespace: str = "") -> Manifest | None:
        try:
            return await self._send("GET", path_of(kind, namespace, name))
        except ClusterError as error:
            if error.code == 404:
                return None
            raise

    async def apply(self, manifest: Manifest) -> Manifest:
        """Create or change an object by server-side apply; return it as it is afterwards."""
        meta = manifest["metadata"]
        path = path_of(manifest["kind"], meta.get("namespace", ""), meta["name"])
        query = {"fieldManager": MANAGER, "force": "true"}
        return await self._send("PATCH", path, query=query, body=manifest, content_type=APPLY)

    async def create(self, manifest: Manifest, *, is_dry: bool = False) -> Manifest:
        """Create an object; a dry run only reports what the API would refuse."""
        path = path_of(manifest["kind"], manifest["metadata"].get("namespace", ""))
        query = {"fieldManager": MANAGER} | ({"dryRun": "All"} if is_dry else {})
        return await self._send("POST", path, query=query, body=manifest)

    async def patch(self, kind: str, namespace: str, name: str, change: Manifest, subresource: str = "") -> Manifest:
        path = path_of(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._send("PATCH", path, query={"fieldManager": MANAGER}, body=change, content_type=PATCH)

    async def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Begin to delete an object. Deleting what does not exist is no error."""
        body: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self._send("DELETE", path_of(kind, namespace, name), body=body)
        except ClusterError as error:
            if error.code != 404:
                raise

    async def list_all(
        self, kind: str, selector: str = "", namespace: str = "", fields: str = ""
    ) -> tuple[list[Manifest], str]:
        """Return all objects whose labels and fields match, and the resource version to watch from."""
        query = {"limit": str(PAGE)}
        query |= ({"labelSelector": selector} if selector else {}) | ({"fieldSelector": fields} if fields else {})
        items: list[Manifest] = []
        while True:
            page = await self._send("GET", path_of(kind, namespace), query=query)
            # Items of a list have no kind of their own.
            items += [{"kind": kind, "apiVersion": page["apiVersion"], **item} for item in page["items"]]
            query = {**query, "continue": page["metadata"].get("continue", "")}
            if not query["continue"]:
                return items, page["metadata"]["resourceVersion"]

    async def watch(self, kind: str, selector: str, version: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield the changes after a resource version, and bookmarks, until the server ends the watch."""
        seconds = WATCH_S + random.randrange(WATCH_S // 4)  # noqa: S311 - spreads reconnections
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"labelSelector": selector, "timeoutSeconds": str(seconds)}
        async with self._stream(path_of(kind, ""), query, read_timeout_s=seconds + 30.0) as response:
            async for line in response.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error_of(event["object"])
                yield event["type"], event["object"]

    @asynccontextmanager
    async def log(
        self, namespace: str, pod: str, since: str | None, *, timestamps: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Follow the log of a pod's container: chunks of lines that begin with a time."""
        query = {"follow": "true", "timestamps": str(timestamps).lower()} | ({"sinceTime": since} if since else {})
        async with self._stream(f"{path_of('Pod', namespace, pod)}/log", query, read_timeout_s=None) as response:
            yield response.aiter_bytes()

    async def get(self, path: str) -> Manifest:
        return await self._send("GET", path)

    async def exec(
        self, namespace: str, pod: str, container: str, argv: list[str], put: Callable[[int, bytes], None]
    ) -> int:
        """Run a command in a container; `put` gets channel and data. Return its exit code."""
        query = httpx2.QueryParams(
            [("stdout", "true"), ("stderr", "true"), ("container", container), *(("command", word) for word in argv)]
        )
        url = f"{path_of('Pod', namespace, pod)}/exec"
        status: Manifest | None = None
        lost: Exception | None = None
        try:
            async with self._http.websocket(
                url, params=query, subprotocols=EXEC_PROTOCOLS, max_message_size_bytes=1 << 20
            ) as session:
                try:
                    status = await _read_frames(session, put)
                except HTTPXWSException as error:
                    lost = error  # Raised here, it would leave the session inside of an exception group.
        except (httpx2.HTTPError, HTTPXWSException) as error:
            lost = error
        if status is None:
            raise ClusterError(0, "", f"the command lost its connection to the cluster ({lost})") from lost
        return _exit_code(status)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        headers = {"Content-Type": content_type} if body is not None else {}
        content = json.dumps(body).encode() if body is not None else None
        deadline = asyncio.get_running_loop().time() + self._patience_s
        for attempt in range(1_000):
            pause_s = backoff_s(attempt)
            try:
                response = await self._http.request(method, path, params=query, content=content, headers=headers)
                if not response.is_error:
                    manifest: Manifest = response.json()
                    return manifest
                error = _error_of(_status_of(response))
                pause_s = max(pause_s, _retry_after(response))
            except httpx2.HTTPError as problem:
                error = _away(self._http, problem)
            is_late = asyncio.get_running_loop().time() + pause_s > deadline
            if is_late or (error.code and error.code not in RETRIED):
                raise error
            await asyncio.sleep(pause_s)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Mapping[str, str], *, read_timeout_s: float | None
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(REQUEST_TIMEOUT_S, read=read_timeout_s)
        try:
            async with self._http.stream("GET", path, params=query, timeout=timeout) as response:
                if response.is_error:
                    await response.aread()
                    raise _error_of(_status_of(response))
                yield response
        except httpx2.HTTPError as problem:
            raise _away(self._http, problem) from problem


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of all objects of a kind; no namespace means all of them."""
    resource = KINDS[kind]
    parts = [resource.api]
    if resource.is_namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(resource.plural)
    return "/" + "/".join([*parts, name] if name else parts)


def backoff_s(failures: int) -> float:
    """Return the pause after some failures in a row, with jitter."""
    longest: float = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** min(failures, 16))
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - jitter


def _away(http: httpx2.AsyncClient, problem: httpx2.HTTPError) -> ClusterError:
    why = str(problem) or type(problem).__name__
    return ClusterError(0, "", f"the Kubernetes API at {http.base_url} does not answer: {why}")


def _status_of(response: httpx2.Response) -> Manifest:
    try:
        status = response.json()
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return {"code": response.status_code, **status}
    return {"code": response.status_code, "message": f"status {response.status_code}: {response.text[:200]}"}


def _error_of(status: Manifest) -> ClusterError:
    return ClusterError(int(status.get("code", 500)), str(status.get("reason", "")), str(status.get("message", "")))


def _retry_after(response: httpx2.Response) -> float:
    text = str(response.headers.get("Retry-After", ""))
    return min(float(text), LAST_RETRY_S) if text.isdecimal() else 0.0


async def _read_frames(session: AsyncWebSocketSession, put: Callable[[int, bytes], None]) -> Manifest:
    """Pass on the output of a command, and return its last frame: how it ended."""
    while True:
        frame = await session.receive_bytes()
        if frame and frame[0] == STATUS:
            status: Manifest = json.loads(frame[1:])
            return status
        if len(frame) > 1 and frame[0] in (STDOUT, STDERR):
            put(frame[0], frame[1:])


def _exit_code(status: Manifest) -> int:
    """Return the exit code from the last frame of a command."""
    if status.get("status") == "Success":
        return 0
    causes = status.get("details", {}).get("causes", [])
    codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
    if not codes:
        raise _error_of(status)
    return int(codes[0])
