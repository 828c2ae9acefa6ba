"""Reasons why a StatefulSet or Job has no pod: its status does not have them, so they come from events."""

from __future__ import annotations

import time

from moorage.runtime.engines.kubernetes.client import Cluster, ClusterError
from moorage.runtime.engines.kubernetes.manifests import Manifest

LOOK_INTERVAL_S = 2.0  # Events are listed only while a pod is missing.


class Refusals:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looked_at: dict[str, float] = {}  # by uid of the owner
        self._messages: dict[str, str] = {}

    def of(self, owner: Manifest) -> str:
        """Return the last known reason; "" if there is none."""
        return self._messages.get(owner["metadata"]["uid"], "")

    async def look(self, owner: Manifest) -> None:
        """Read the events of a StatefulSet or Job without a pod, at most every few seconds."""
        meta, now = owner["metadata"], time.monotonic()
        if now - self._looked_at.get(meta["uid"], float("-inf")) < LOOK_INTERVAL_S:
            return
        self._looked_at[meta["uid"]] = now
        fields = f"involvedObject.kind={owner['kind']},involvedObject.name={meta['name']},reason=FailedCreate"
        try:
            events, _ = await self._cluster.list_all("Event", "", meta["namespace"], fields)
        except ClusterError:
            return  # Without the permission, a start ends after its time limit.
        own = [event for event in events if event["involvedObject"].get("uid") == meta["uid"]]
        if own:
            newest = max(own, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
            self._messages[meta["uid"]] = str(newest.get("message", ""))
