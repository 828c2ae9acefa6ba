"""States of cronjobs, their builds and their runs."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class CronjobStatus(StrEnum):
    PENDING = "pending"  # created; no build has been requested
    DEPLOYING = "deploying"  # the first build is queued or running
    RUNNING = "running"  # ready: runs start on schedule
    UPDATING = "updating"  # a new build is queued or running; runs use the previous one
    PAUSED = "paused"  # no run starts on schedule
    FAILED = "failed"  # the last build failed; runs use the previous one, if any
    DELETING = "deleting"  # runs are being stopped, then the cronjob is removed
    DELETED = "deleted"  # removed


class BuildStatus(StrEnum):
    QUEUED = "queued"  # waits for a worker
    RUNNING = "running"  # a worker fetches and builds the source
    SUCCEEDED = "succeeded"  # runs can use it
    FAILED = "failed"  # the log has the reason


class ExecutionStatus(StrEnum):
    QUEUED = "queued"  # waits for a free slot
    RUNNING = "running"  # the process runs
    SUCCEEDED = "succeeded"  # ended with exit code 0
    FAILED = "failed"  # ended otherwise or did not start; `errorMessage` has the reason


C, B, E = CronjobStatus, BuildStatus, ExecutionStatus
CRONJOB = Machine(
    "cronjob",
    {
        C.PENDING: {C.DEPLOYING, C.RUNNING, C.PAUSED, C.FAILED, C.DELETING},
        C.DEPLOYING: {C.RUNNING, C.PAUSED, C.FAILED, C.UPDATING, C.DELETING},
        C.RUNNING: {C.UPDATING, C.PAUSED, C.DELETING},
        C.UPDATING: {C.RUNNING, C.PAUSED, C.FAILED, C.DELETING},
        C.PAUSED: {C.RUNNING, C.FAILED, C.UPDATING, C.DELETING},
        C.FAILED: {C.RUNNING, C.UPDATING, C.PAUSED, C.DELETING},
        C.DELETING: {C.DELETED},
        C.DELETED: set(),
    },
)
BUILD = Machine(
    "cronjob_build",
    {B.QUEUED: {B.RUNNING, B.FAILED}, B.RUNNING: {B.SUCCEEDED, B.FAILED}, B.SUCCEEDED: set(), B.FAILED: set()},
)
EXECUTION = Machine(
    "cronjob_execution",
    {E.QUEUED: {E.RUNNING, E.FAILED}, E.RUNNING: {E.SUCCEEDED, E.FAILED}, E.SUCCEEDED: set(), E.FAILED: set()},
)
