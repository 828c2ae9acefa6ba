"""The states of a cronjob, of what it is built into, and of its runs."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class CronjobStatus(StrEnum):
    PENDING = "pending"  # was asked for
    DEPLOYING = "deploying"  # is being built for the first time
    RUNNING = "running"  # is ready: its runs begin when they are due
    UPDATING = "updating"  # is being built anew; what was built before is run meanwhile
    PAUSED = "paused"  # nothing begins by the clock
    FAILED = "failed"  # the last build failed; what was built before, if anything, goes on being run
    DELETING = "deleting"  # its runs are stopped, then it is gone
    DELETED = "deleted"  # is gone


class BuildStatus(StrEnum):
    QUEUED = "queued"  # waits for its turn
    RUNNING = "running"  # is fetched and built
    SUCCEEDED = "succeeded"  # can be run
    FAILED = "failed"  # its log says why


class ExecutionStatus(StrEnum):
    QUEUED = "queued"  # is due, and waits for its turn
    RUNNING = "running"  # its program runs
    SUCCEEDED = "succeeded"  # it ended with exit code 0
    FAILED = "failed"  # it ended otherwise, or never began; `errorMessage` says why


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
