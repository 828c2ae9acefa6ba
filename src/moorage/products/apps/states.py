"""The states of a replica of an app."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class ReplicaStatus(StrEnum):
    STARTING = "starting"  # is started, or started again, and has not passed its health check yet
    READY = "ready"  # gets requests, once its deployment is the live one
    DRAINING = "draining"  # gets no new requests; those under way may finish, then it is stopped
    FAILED = "failed"  # did not become healthy; its deployment fails with it


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
