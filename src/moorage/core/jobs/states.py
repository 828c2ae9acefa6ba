"""The states of a job."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class JobStatus(StrEnum):
    QUEUED = "queued"  # waits for its time and a free worker
    RUNNING = "running"  # a worker holds its lease, or died with it
    DONE = "done"  # completed
    FAILED = "failed"  # raised, or ran out of attempts


S = JobStatus
JOB = Machine(
    "job",
    {
        S.QUEUED: {S.RUNNING},
        S.RUNNING: {S.QUEUED, S.DONE, S.FAILED},
        S.DONE: set(),
        S.FAILED: {S.QUEUED},  # when an operator runs it again
    },
)
