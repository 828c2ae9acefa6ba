"""States of deployments and of previews."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class DeploymentStatus(StrEnum):
    QUEUED = "queued"  # waits for a worker; a newer deployment of the same project supersedes it
    RUNNING = "running"  # its source is fetched, built or published
    SUCCEEDED = "succeeded"  # went live
    FAILED = "failed"  # the live release did not change; `reason` has the cause


S = DeploymentStatus
DEPLOYMENT = Machine(
    "deployment",
    {
        S.QUEUED: {S.RUNNING, S.FAILED},
        S.RUNNING: {S.SUCCEEDED, S.FAILED},
        S.SUCCEEDED: set(),
        S.FAILED: set(),
    },
)


class PreviewStatus(StrEnum):
    WAITING = "waiting"  # code of a fork waits until a member approves the commit
    ACTIVE = "active"  # every push to the pull request is deployed
    CLOSED = "closed"  # the pull request is closed; reopening it makes the preview active again


P = PreviewStatus
PREVIEW = Machine(
    "preview",
    {
        P.WAITING: {P.ACTIVE, P.CLOSED},
        P.ACTIVE: {P.CLOSED},
        P.CLOSED: {P.ACTIVE, P.WAITING},
    },
)
