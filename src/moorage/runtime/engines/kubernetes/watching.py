"""Copy of the objects of one kind, kept current by list and watch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError, backoff_s
from moorage.runtime.engines.kubernetes.manifests import Manifest

ObjectId = tuple[str, str]  # namespace and name

RESUME_PAUSE_S = 0.1  # A server that ends each watch at once is not called in a busy loop.
GONE = 410  # The server no longer has the changes after this resource version.


def id_of(item: Manifest) -> ObjectId:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class Watch:
    """Copies objects by one list and one watch. It reads only: an idle platform writes nothing to the API.

    A watch that ends is resumed from the last resource version, which bookmarks keep recent. After `410 Gone` the
    objects are listed again, and objects that are missing then were deleted.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        selector: str,
        on_change: Callable[[Manifest, bool], None],  # object, and whether it was deleted
    ) -> None:
        self._cluster = cluster
        self._kind, self._selector = kind, selector
        self._on_change = on_change
        self._version = ""
        self.objects: dict[ObjectId, Manifest] = {}
        self.error: str | None = None  # sentence about the last failure; None while the copy is current

    async def load(self) -> None:
        """List the objects for the first time; raises ClusterError if the API refuses it."""
        await self._list()

    async def run(self) -> None:
        """Follow the changes until it is cancelled."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                failures = 0
                await asyncio.sleep(RESUME_PAUSE_S)
            except ClusterError as error:
                if error.code == GONE:
                    self._version = ""
                    continue
                self.error = str(error)
                failures += 1
                await asyncio.sleep(backoff_s(failures))

    async def _list(self) -> None:
        items, version = await self._cluster.list_all(self._kind, self._selector)
        objects = {id_of(item): item for item in items}
        for object_id in [each for each in self.objects if each not in objects]:
            self._on_change(self.objects.pop(object_id), True)
        for object_id, item in objects.items():
            if _version_of(self.objects.get(object_id)) != _version_of(item):
                self._put(item)
        self._version = version
        self.error = None

    async def _follow(self) -> None:
        events = self._cluster.watch(self._kind, self._selector, self._version)
        async with contextlib.aclosing(events):  # type: ignore[type-var]
            async for event, item in events:
                self.error = None
                if event == "DELETED":
                    self.objects.pop(id_of(item), None)
                    self._on_change(item, True)
                elif event != "BOOKMARK":
                    self._put(item)
                self._version = _version_of(item)

    def put_if_newer(self, item: Manifest) -> None:
        """Take over the response to a write, unless the watch has reported a later state already."""
        known = self.objects.get(id_of(item))
        if known is None or int(_version_of(known)) < int(_version_of(item)):
            self._put(item)

    def _put(self, item: Manifest) -> None:
        self.objects[id_of(item)] = item
        self._on_change(item, False)


def _version_of(item: Manifest | None) -> str:
    return str(item["metadata"]["resourceVersion"]) if item else ""
