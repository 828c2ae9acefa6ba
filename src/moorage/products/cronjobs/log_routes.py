"""The routes of what runs of cronjobs print: read back, and followed."""

from __future__ import annotations

import asyncio
from functools import partial

from moorage.accounts.identity.caller import Caller
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Uuid
from moorage.products.cronjobs import logs, service
from moorage.products.cronjobs.schemas import ExecutionLogs

AT_ONCE = 2  # A log may have ten megabytes; many of them together would slow down everybody.


def make_router(db: Database) -> Router:
    router = Router("Cronjobs")
    reading = asyncio.Semaphore(AT_ONCE)
    folder = db.env.settings.folder("logs")

    @router.get("/cronjobs/executions/{uuid}/logs", paid=True)
    async def read_execution_logs(caller: Caller, uuid: Uuid) -> ExecutionLogs:
        """Return what a run has printed: as one text, and as lines.

        `stream` is `stdout`, `stderr`, or `system` for what the platform says about the run. The newest 10 MB are kept.
        """
        found = await db.read(partial(service.get_execution_by_uuid, org_id=caller.org_id, uuid=uuid))
        async with reading:
            return await asyncio.to_thread(logs.read, folder, found)

    @router.get("/cronjobs/executions/{uuid}/logs/stream", paid=True, events=True)
    async def follow_execution(caller: Caller, uuid: Uuid, request: Request) -> Stream:
        """Follow a run, as server-sent events: `log` for each line, `status`, and `done` at the end.

        All lines come, from the first. A client that was cut off sends `Last-Event-ID`, as browsers do, and gets those
        it has not seen.
        """
        found = await db.read(partial(service.get_execution_by_uuid, org_id=caller.org_id, uuid=uuid))
        return sse.stream(logs.follow(db, folder, found, request.header(b"last-event-id")))

    return router
