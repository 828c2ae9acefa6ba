"""Routes that read and follow the logs of cronjob runs."""

from __future__ import annotations

import asyncio
from functools import partial

from moorage.accounts.identity.caller import Caller
from moorage.core.db.store import Database
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.request import Request
from moorage.core.http.route import Router, Uuid
from moorage.products.cronjobs import logs, ownership
from moorage.products.cronjobs.schemas import ExecutionLogs
from moorage.runtime.engines.ports import Logs

MAX_CONCURRENT_READS = 2  # A log may have 10 MB; many concurrent reads would slow down all requests.


def make_router(db: Database, engine_logs: Logs) -> Router:
    router = Router("Cronjobs")
    reading = asyncio.Semaphore(MAX_CONCURRENT_READS)

    @router.get("/cronjobs/executions/{uuid}/logs", paid=True)
    async def read_execution_logs(caller: Caller, uuid: Uuid) -> ExecutionLogs:
        """Return the log of a run, as one text and as lines.

        `stream` is `stdout`, `stderr`, or `system` for messages of the platform. The newest 10 MB are kept.
        """
        execution = await db.read(partial(ownership.get_here, org_id=caller.org_id, uuid=uuid))
        async with reading:
            return await logs.read(engine_logs, execution)

    @router.get("/cronjobs/executions/{uuid}/logs/stream", paid=True, events=True)
    async def follow_execution(caller: Caller, uuid: Uuid, request: Request) -> Stream:
        """Follow a run as server-sent events.

        The events are `log` for each line, `status` for each change, and `done` at the end. The stream starts with the
        first line. A client that reconnects sends `Last-Event-ID`, as browsers do, and gets only the lines after it.
        """
        execution = await db.read(partial(ownership.get_here, org_id=caller.org_id, uuid=uuid))
        return sse.stream(logs.follow(db, engine_logs, execution, request.header(b"last-event-id")))

    return router
