"""API server of the tests: HTTP on loopback, with a store, controllers and a kubelet in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

import yaml
from tests.runtime.engines.kubernetes.api_store import ApiError, Event, Manifest, Store, key_of, matches
from tests.runtime.engines.kubernetes.containers import Process
from tests.runtime.engines.kubernetes.controllers import NODE, Controllers
from tests.runtime.engines.kubernetes.kubelet import Kubelet, PodRun
from uvicorn.config import Config
from uvicorn.server import Server  # `uvicorn.Server` is None where the platform's server was imported first.

from moorage.runtime.engines.kubernetes.client import KINDS, STATUS

TOKEN = "token-of-the-platform"
USER = "system:serviceaccount:moorage-tests:moorage"
BOOKMARK_S = 0.5
COLLECT_S = 0.05
PATH = re.compile(r"/(api/v1|apis/[^/]+/v1)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?")
SUMMARY = f"/api/v1/nodes/{NODE}/proxy/stats/summary"
BY_PLURAL = {kind.plural: name for name, kind in KINDS.items()}
T = TypeVar("T")


class LabCluster:
    """A cluster of one node. Tests call it from another thread."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="cluster-"))
        groups = {name: group_of(kind.api) for name, kind in KINDS.items()}
        self.store = Store(plurals={name: ".".join(filter(None, (KINDS[name].plural, groups[name]))) for name in KINDS})
        self.kubelet = Kubelet(self.store, self.home / "volumes")
        self.controllers = Controllers(self.store)
        self.requests: Counter[str] = Counter()  # by verb: `get`, `list`, `watch`, `create`, `patch`, `delete`
        self.denied: set[tuple[str, str]] = set()  # verb and plural
        self.allowed: set[tuple[str, str]] | None = None  # None for all
        self.used: set[tuple[str, str]] = set()
        self.failures: list[int] = []  # statuses of the next responses
        self._changed = asyncio.Event()
        self._has_garbage = asyncio.Event()
        self._is_ready = threading.Event()
        self._is_stopped = asyncio.Event()
        self._is_paused = False
        self._streams: set[asyncio.Task[Any]] = set()
        self._waiters: set[asyncio.Event] = set()  # of watches
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._is_ready.wait(30)
        if self._failure is not None:
            raise self._failure
        self.kubeconfig = self.home / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.port)))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._is_stopped.set)
        self._thread.join(30)
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread of the server."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def objects(self, kind: str, selector: str = "") -> list[Manifest]:
        return self.call(lambda: copy.deepcopy(self.store.all(kind, "", selector)))

    def set_room(self, *, has_room: bool) -> None:
        """Give the node too little memory for new pods, or enough of it."""

        def change() -> None:
            self.controllers.memory_mb = 2**20 if has_room else 1
            self._wake()

        self.call(change)

    def deny(self, *denied: tuple[str, str]) -> None:
        """Take verbs on resources from the account of the engine; none gives it all of them again."""
        self.denied = set(denied)

    def limit_pods(self, namespace: str, number: int) -> None:
        quota = {"spec": {"hard": {"pods": str(number)}}}
        self.call(lambda: self.store.merge("ResourceQuota", namespace, "organization", quota))

    def delete(self, kind: str, namespace: str, name: str, **options: Any) -> None:
        self.call(lambda: self.store.delete(kind, namespace, name, options))

    def pause(self, *, is_paused: bool) -> None:
        """Let each request fail as if the API server were away, or answer again."""

        def change() -> None:
            self._is_paused = is_paused
            if is_paused:
                self.drop_streams()

        self.call(change)

    def drop_streams(self) -> None:
        for task in list(self._streams):
            task.cancel()

    @property
    def writes(self) -> int:
        return sum(self.requests[verb] for verb in ("create", "patch", "delete"))

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._failure = error
            self._is_ready.set()
            raise

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.store.on_change = self._wake
        server = Server(Config(self, host="127.0.0.1", port=0, log_level="critical", ws="wsproto", lifespan="off"))
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(server._serve())
        while not server.started:
            if serving.done():
                raise RuntimeError("the API server of the tests did not start") from serving.exception()
            await asyncio.sleep(0.005)
        self.port = server.servers[0].sockets[0].getsockname()[1]
        # Clusters of tests that run at the same time have different ports, and so different addresses of pods.
        self.kubelet.network = f"127.{self.port >> 8}.{self.port & 255}"
        working = [asyncio.create_task(each) for each in (self._work(), self._collect())]
        self._is_ready.set()
        await self._is_stopped.wait()
        for task in working:
            task.cancel()
        self.drop_streams()
        await self.kubelet.close()
        server.should_exit = server.force_exit = True
        await serving

    def _wake(self) -> None:
        self._changed.set()
        self._has_garbage.set()

    async def _collect(self) -> None:
        """Collect garbage, a moment after the changes that lead to it, as the real collector does."""
        while True:
            await self._has_garbage.wait()
            await asyncio.sleep(COLLECT_S)
            self._has_garbage.clear()
            self.store.collect()

    async def _work(self) -> None:
        """Run the controllers and the kubelet after each change."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(0)
            self._changed.clear()
            self.controllers.step()
            self.kubelet.step()
            for waiter in list(self._waiters):
                waiter.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()}
        if scope["type"] == "websocket":
            await self._exec(scope, receive, send)
            return
        try:
            await self._answer(scope, query, receive, send)
        except ApiError as error:
            await _respond(send, error.code, error.status)

    async def _answer(self, scope: Any, query: dict[str, str], receive: Any, send: Any) -> None:
        body = await _body(receive)
        if self._is_paused:
            raise ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        if self.failures:
            raise ApiError(self.failures.pop(0), "InternalError", "an error on the server")
        if dict(scope["headers"]).get(b"authorization") != f"Bearer {TOKEN}".encode():
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if scope["path"] == SUMMARY:
            self._permit("get", "nodes/proxy", name=NODE)
            await _respond(send, 200, self.kubelet.summary())
            return
        match = PATH.fullmatch(scope["path"])
        if match is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        api, namespace, plural, name, part = match.groups(default="")
        verb = _verb(scope["method"], name, query)
        self._permit(verb, f"{plural}/{part}" if part else plural, api, namespace, name)
        if plural not in BY_PLURAL:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        kind = BY_PLURAL[plural]
        if verb == "watch":
            await self._stream(send, self._watch(kind, namespace, query))
        elif part == "log":
            await self._stream(send, self._log(self._process_of(namespace, name), query))
        else:
            content_type = dict(scope["headers"]).get(b"content-type", b"").decode()
            status, answer = self._change(verb, kind, namespace, name, query, json.loads(body or b"{}"), content_type)
            await _respond(send, status, answer)

    def _permit(self, verb: str, resource: str, api: str = "", namespace: str = "", name: str = "") -> None:
        self.requests[verb] += 1
        self.used.add((verb, resource))
        if (verb, resource) in self.denied or (self.allowed is not None and (verb, resource) not in self.allowed):
            group = group_of(api)
            what = resource.partition("/")[0] + (f".{group}" if group else "") + (f' "{name}"' if name else "")
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            text = f'User "{USER}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
            raise ApiError(403, "Forbidden", f"{what} is forbidden: {text}")

    def _change(
        self, verb: str, kind: str, namespace: str, name: str, query: dict[str, str], body: Manifest, content_type: str
    ) -> tuple[int, Manifest]:
        match verb:
            case "get":
                return 200, self.store.get(kind, namespace, name)
            case "list":
                return 200, self._list(kind, namespace, query)
            case "create":
                return 201, self.store.create(body, is_dry="dryRun" in query)
            case "delete":
                return 200, self.store.delete(kind, namespace, name, body)
        if content_type == "application/apply-patch+yaml":
            if "fieldManager" not in query:
                raise ApiError(422, "Invalid", "PatchOptions is invalid: fieldManager: Required value")
            is_new = key_of(body) not in self.store.objects
            return 201 if is_new else 200, self.store.apply(body)
        return 200, self.store.merge(kind, namespace, name, body)

    def _list(self, kind: str, namespace: str, query: dict[str, str]) -> Manifest:
        items = self.store.all(kind, namespace, query.get("labelSelector", ""))
        items = [item for item in items if _has_fields(item, query.get("fieldSelector", ""))]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(items) + 1
        rest = str(start + limit) if start + limit < len(items) else ""
        bare = [
            {name: value for name, value in item.items() if name not in ("kind", "apiVersion")}
            for item in items[start : start + limit]
        ]
        meta = {"resourceVersion": str(self.store.version), "continue": rest}
        return {"kind": f"{kind}List", "apiVersion": KINDS[kind].api.split("/", 1)[1], "metadata": meta, "items": bare}

    async def _watch(self, kind: str, namespace: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        version = int(query["resourceVersion"])
        if version < self.store.compacted:
            error = ApiError(410, "Expired", f"too old resource version: {version} ({self.store.compacted})")
            yield _line("ERROR", error.status)
            return
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            while True:
                waiter.clear()
                for event in [event for event in self.store.events if event.version > version]:
                    version = event.version
                    if (line := _event_line(event, kind, namespace, query.get("labelSelector", ""))) is not None:
                        yield line
                try:
                    await asyncio.wait_for(waiter.wait(), BOOKMARK_S)
                except TimeoutError:  # The version of the last event: a later one may not be sent yet.
                    yield _line("BOOKMARK", {"kind": kind, "metadata": {"resourceVersion": str(version)}})
        finally:
            self._waiters.discard(waiter)

    def _process_of(self, namespace: str, name: str) -> Process:
        run = self.kubelet.find(namespace, name)
        self.store.get("Pod", namespace, name)
        if run is None or run.process is None:
            text = f'container "main" in pod "{name}" is waiting to start: ContainerCreating'
            raise ApiError(400, "BadRequest", text)
        return run.process

    async def _log(self, process: Process, query: dict[str, str]) -> AsyncIterator[bytes]:
        position, since = 0, query.get("sinceTime", "")
        while True:
            grown, is_over = process.grown, process.done.is_set()
            entries = process.log[position:]
            position += len(entries)
            for entry in entries:
                if entry.line().decode() >= since:
                    yield entry.line() if query.get("timestamps") == "true" else entry.text + b"\n"
            if is_over or query.get("follow") != "true":
                return
            if len(process.log) == position and not process.done.is_set():
                await grown.wait()

    async def _stream(self, send: Any, lines: AsyncIterator[bytes]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
        try:
            await send(head)
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            async for line in lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            if self._is_stopped.is_set():
                raise
            task.uncancel()  # A connection that breaks: uvicorn closes it, because the response is not complete.
        finally:
            self._streams.discard(task)

    async def _exec(self, scope: Any, receive: Any, send: Any) -> None:
        query = parse_qs(scope["query_string"].decode())
        match = PATH.fullmatch(scope["path"])
        assert match is not None
        await receive()
        self._permit("create", "pods/exec", "", match[2], match[4])
        run = self.kubelet.find(match[2], match[4])
        if run is None or run.process is None or run.process.done.is_set():
            await send({"type": "websocket.close", "code": 1008})
            return
        await send({"type": "websocket.accept", "subprotocol": "v5.channel.k8s.io"})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        root, env, _ = self.kubelet._prepare(run)

        def put(stream: str, data: bytes) -> None:
            queue.put_nowait(bytes([1 if stream == "stdout" else 2]) + data)

        if not root.has(query["command"][0]):
            refusal = json.dumps(_cannot_execute(query["command"][0])).encode()
            await send({"type": "websocket.send", "bytes": bytes([STATUS]) + refusal})
            await send({"type": "websocket.close"})
            return
        process = await Process.start(root, env, query["command"], put)
        gone = asyncio.create_task(_until_gone(receive))
        finished = asyncio.create_task(process.done.wait())
        finished.add_done_callback(lambda _: queue.put_nowait(None))
        while not gone.done():
            getting = asyncio.create_task(queue.get())
            await asyncio.wait([getting, gone], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                break
            frame = getting.result()
            if frame is None:
                await send(
                    {"type": "websocket.send", "bytes": bytes([STATUS]) + json.dumps(_exit_status(process)).encode()}
                )
                await send({"type": "websocket.close"})
                break
            await send({"type": "websocket.send", "bytes": frame})
        await process.stop(0.0)
        gone.cancel()


def _exit_status(process: Process) -> Manifest:
    if process.code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(process.code)}]
    text = f"command terminated with non-zero exit code: exit status {process.code}"
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": text, "details": {"causes": causes}}


def _cannot_execute(program: str) -> Manifest:
    why = f'unable to start container process: exec: "{program}": executable file not found in $PATH: unknown'
    text = f"Internal error occurred: error executing command in container: {why}"
    return {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": text, "code": 500}


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass


def group_of(api: str) -> str:
    """Return the API group of a path such as `apis/apps/v1`."""
    return api.split("/")[1] if api.startswith("apis/") else ""


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET":
        return "watch" if query.get("watch") == "true" else "get" if name else "list"
    return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]


def _has_fields(item: Manifest, selector: str) -> bool:
    """Whether fields have values: `a.b=c`, joined by commas."""
    for term in filter(None, selector.split(",")):
        path, _, value = term.partition("=")
        found: Any = item
        for name in path.split("."):
            found = found.get(name, {})
        if found != value:
            return False
    return True


def _event_line(event: Event, kind: str, namespace: str, selector: str) -> bytes | None:
    is_meant = event.kind == kind and namespace in ("", event.item["metadata"].get("namespace", ""))
    return _line(event.type, event.item) if is_meant and matches(event.item, selector) else None


def _line(event: str, item: Manifest) -> bytes:
    return json.dumps({"type": event, "object": item}).encode() + b"\n"


async def _body(receive: Any) -> bytes:
    found = b""
    while True:
        message = await receive()
        found += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return found


async def _respond(send: Any, status: int, body: Manifest) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    with contextlib.suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})


def _kubeconfig(port: int) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


__all__ = ["LabCluster", "PodRun"]
