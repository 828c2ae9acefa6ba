"""Job handlers as the operator's routes see them."""

from __future__ import annotations

from moorage.core.jobs.queues import FailingJob
from moorage.core.worker.run import Handler, Handlers


class RegisteredHandlers:
    """The job handlers of all products, which are registered after the routes."""

    def __init__(self) -> None:
        self.handlers: Handlers | None = None

    def find(self, job: FailingJob) -> Handler | None:
        return self.handlers.by_kind.get(job.kind) if self.handlers is not None else None

    def has_undo(self, job: FailingJob) -> bool:
        """Tell whether a failure of the job marks its resource as failed."""
        handler = self.find(job)
        return handler is not None and handler.on_failure is not None
