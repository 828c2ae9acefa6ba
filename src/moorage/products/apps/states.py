"""States of an app's replica."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class ReplicaStatus(StrEnum):
    STARTING = "starting"  # starts or restarts, and has not passed its health check yet
    READY = "ready"  # is healthy; gets requests once its deployment is live
    DRAINING = "draining"  # gets no new requests; is stopped after the open ones have finished
    FAILED = "failed"  # did not become healthy, so its deployment fails


R = ReplicaStatus
REPLICA = Machine(
    "replica",
    {
        R.STARTING: {R.READY, R.DRAINING, R.FAILED},
        R.READY: {R.STARTING, R.DRAINING},
        R.DRAINING: set(),
        R.FAILED: {R.DRAINING},
    },
)
