"""State machines of databases and their backups."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class DatabaseStatus(StrEnum):
    PENDING = "pending"  # requested
    QUEUED = "queued"  # waits for a worker
    DEPLOYING = "deploying"  # its server is created and started
    RUNNING = "running"  # accepts connections; its server is restarted whenever it exits
    UPDATING = "updating"  # changes its tier, password or backup method, or is being restored
    STOPPED = "stopped"  # by the operator, or by the platform because its tier is not paid for
    FAILED = "failed"  # cannot run, see `statusReason`; its data is unchanged
    DELETING = "deleting"  # its server is stopped and its data moved to the trash


class BackupStatus(StrEnum):
    RUNNING = "running"  # is being created, stored and checked
    COMPLETED = "completed"  # stored, read back and checked
    FAILED = "failed"  # cannot be restored, see `reason`


D, B = DatabaseStatus, BackupStatus
CHANGING = frozenset((D.PENDING, D.QUEUED, D.DEPLOYING, D.UPDATING))  # until a job has ended
DATABASE = Machine(
    "database",
    {
        D.PENDING: {D.QUEUED, D.FAILED, D.DELETING},
        D.QUEUED: {D.DEPLOYING, D.FAILED, D.DELETING},
        D.DEPLOYING: {D.RUNNING, D.FAILED, D.DELETING},
        D.RUNNING: {D.UPDATING, D.STOPPED, D.FAILED, D.DELETING},
        D.UPDATING: {D.RUNNING, D.FAILED, D.DELETING},
        D.STOPPED: {D.RUNNING, D.FAILED, D.DELETING},
        D.FAILED: {D.RUNNING, D.DELETING},
        D.DELETING: {D.STOPPED},  # when the operator takes it out of the trash
    },
)
BACKUP = Machine("database_backup", {B.RUNNING: {B.COMPLETED, B.FAILED}, B.COMPLETED: set(), B.FAILED: set()})
