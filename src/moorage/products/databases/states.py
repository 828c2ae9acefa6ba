"""The states of a database, and of a backup of it."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class DatabaseStatus(StrEnum):
    PENDING = "pending"  # was asked for
    QUEUED = "queued"  # waits for its turn
    DEPLOYING = "deploying"  # its server is made and started
    RUNNING = "running"  # can be connected to; its server is started again whenever it ends
    UPDATING = "updating"  # gets another tier, another password, or an earlier state
    STOPPED = "stopped"  # by the operator, or by the platform because its tier is not paid for
    FAILED = "failed"  # cannot run, and `statusReason` says why; its data is left as it is
    DELETING = "deleting"  # its server is stopped and its data moved to the trash


class BackupStatus(StrEnum):
    RUNNING = "running"  # is being made, and proved
    COMPLETED = "completed"  # was read back from where it is stored, and its contents can be listed
    FAILED = "failed"  # there is nothing to restore; `reason` says why


D, B = DatabaseStatus, BackupStatus
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
        D.DELETING: {D.STOPPED},  # The operator may take it out of the trash again.
    },
)
BACKUP = Machine("database_backup", {B.RUNNING: {B.COMPLETED, B.FAILED}, B.COMPLETED: set(), B.FAILED: set()})
