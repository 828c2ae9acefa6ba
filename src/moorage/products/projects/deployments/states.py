"""The states of a deployment, and of the preview of a pull request."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine


class DeploymentStatus(StrEnum):
    QUEUED = "queued"  # waits for its turn; a newer one of the same project supersedes it
    RUNNING = "running"  # is fetched, built or published
    SUCCEEDED = "succeeded"  # went live
    FAILED = "failed"  # changed nothing that is live; `reason` says why


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
    WAITING = "waiting"  # of a fork, until a member says that its code may be built
    ACTIVE = "active"  # every push to the pull request is deployed
    CLOSED = "closed"  # the pull request is; reopening it makes it active again


P = PreviewStatus
PREVIEW = Machine(
    "preview",
    {
        P.WAITING: {P.ACTIVE, P.CLOSED},
        P.ACTIVE: {P.CLOSED},
        P.CLOSED: {P.ACTIVE, P.WAITING},
    },
)
