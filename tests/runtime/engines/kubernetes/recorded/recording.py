"""The calls of the engine in a fixed story, and what an API server answered, shortened and without accidents.

`KUBECONFIG_TEST=… python -m tests.runtime.engines.kubernetes.recorded.recording` records a real one again. A test
compares the API server of the tests with the record, so that it cannot drift from the truth.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.runtime.engines.kubernetes import real_cluster
from tests.runtime.engines.kubernetes.recorded import story

from moorage.runtime.engines.kubernetes.client import Cluster

RECORD = Path(__file__).with_name("answers.json")
# Fields of objects that the engine reads or writes, by the name of the field that has them.
KEPT: Mapping[str, set[str]] = {
    name: set(fields.split())
    for name, fields in {
        "metadata": "name namespace labels annotations ownerReferences uid resourceVersion creationTimestamp "
        "deletionTimestamp deletionGracePeriodSeconds continue",
        "ownerReferences": "kind name uid",
        "spec": "nodeName containers activeDeadlineSeconds volumes resources hard accessModes replicas template "
        "restartPolicy terminationGracePeriodSeconds",
        "containers": "name image resources command",
        "template": "metadata spec",
        "status": "phase reason message podIP conditions containerStatuses",
        "conditions": "type status reason message",
        "containerStatuses": "name restartCount state lastState",
        "running": "startedAt",
        "waiting": "reason message",
        "terminated": "exitCode reason message finishedAt",
        "volumes": "name persistentVolumeClaim",
    }.items()
}
TOP = ("kind", "apiVersion", "metadata", "spec", "status", "message", "reason", "code", "items", "type", "object")
CONDITIONS = ("PodScheduled", "ReplicaFailure")  # that the engine reads
OWN_LABELS = ("moorage.dev/", "app.kubernetes.io/", "pod-security.kubernetes.io/")
PLACES = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b(?:127|10)\.\d+\.\d+\.\d+(:\d+)?"), "<address>"),
    (re.compile(r"\b(s\d+)-[0-9a-f]{8,10}(-[a-z0-9]{5})?\b"), r"\1-<random>"),
    (re.compile(r"\b(c\d+)-[a-z0-9]{5}\b"), r"\1-<random>"),
)


class Recorder(httpx2.AsyncBaseTransport):
    """Notes each request of a client, and the answer."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.exchanges: list[dict[str, Any]] = []
        self.is_on = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if (
            not self.is_on
            or response.status_code == 101
            or request.url.params.get("watch")
            or "log" in request.url.path
        ):
            return response
        data = await response.aread()
        self.exchanges.append(
            {
                "request": f"{request.method} {tidy(request.url.path)}",
                "status": response.status_code,
                "answer": shortened(json.loads(data)),
            }
        )
        return httpx2.Response(response.status_code, headers={"content-type": "application/json"}, content=data)

    def note(self, what: str, answer: Any) -> None:
        """Add what a stream sent."""
        if self.is_on:
            self.exchanges.append({"request": what, "answer": tidy(answer)})

    async def aclose(self) -> None:
        await self._inner.aclose()


@contextmanager
def recorded(client: Cluster) -> Iterator[Recorder]:
    """Record the calls of a client within the block."""
    recorder = Recorder(client._http._transport)
    client._http._transport = recorder
    recorder.is_on = True
    try:
        yield recorder
    finally:
        recorder.is_on = False


def tidy(value: Any) -> Any:
    """Replace what differs from one run to the next."""
    if isinstance(value, str):
        for pattern, name in PLACES:
            value = pattern.sub(name, value)
        return value
    if isinstance(value, dict):
        return {name: tidy(each) for name, each in value.items()}
    return [tidy(each) for each in value] if isinstance(value, list) else value


def shortened(answer: dict[str, Any]) -> Any:
    """Return what the engine reads of an answer."""
    return tidy(_kept({name: value for name, value in answer.items() if name in TOP}))


def _kept(value: Any, field: str = "") -> Any:
    if isinstance(value, list):
        if field == "conditions":
            value = [each for each in value if each["type"] in CONDITIONS]
        return [_kept(each, field) for each in value]
    if not isinstance(value, dict):
        return value
    if field == "labels":
        return {name: each for name, each in sorted(value.items()) if name.startswith(OWN_LABELS)}
    if field == "annotations":
        return {name: each for name, each in sorted(value.items()) if name.startswith("moorage.dev/")}
    names = KEPT.get(field)
    found = {name: each for name, each in sorted(value.items()) if names is None or name in names}
    changing = {"resourceVersion": "<version>", "uid": "<uid>", "nodeName": "<node>"}
    kept = {name: changing.get(name) or _kept(each, name) for name, each in found.items()}
    return {name: each for name, each in kept.items() if each not in ({}, [], "")}


async def main() -> None:
    cluster, image = real_cluster.shared(story.SOURCE)
    cluster.clear("Namespace")
    client = Cluster.connect(str(cluster.kubeconfig), patience_s=10.0)
    looking = Cluster.connect(str(cluster.kubeconfig), patience_s=10.0)
    try:
        with recorded(client) as recorder:
            await story.tell(client, looking, recorder.note, image)
    finally:
        await client.close()
        await looking.close()
    RECORD.write_text(json.dumps(recorder.exchanges, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
