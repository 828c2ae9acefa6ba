"""Routes of app logs: search and follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

from moorage.accounts.identity.caller import Caller
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http import sse
from moorage.core.http.answer import Stream
from moorage.core.http.request import Request
from moorage.core.http.route import Router
from moorage.core.kit.events import Event
from moorage.products.apps.logs.following import follow, log_of
from moorage.products.apps.logs.schemas import AppLogLine, AppLogLines, AppLogsQuery, AppLogsTailQuery
from moorage.products.apps.machines import placing
from moorage.products.projects import service as projects
from moorage.products.projects.tables import Project
from moorage.runtime.engines.ports import Logs

MAX_CONCURRENT_SEARCHES = 2  # A search may read 100 MB; many at once would slow down other requests.


def make_router(db: Database, logs: Logs) -> Router:
    router = Router("Projects")
    searching = asyncio.Semaphore(MAX_CONCURRENT_SEARCHES)

    @router.get("/projects/{name}/logs")
    async def read_app_logs(caller: Caller, name: str, query: AppLogsQuery) -> AppLogLines:
        """Return the newest log lines of a project's app, oldest first.

        `since` and `until` are times (`2026-01-31T12:00:00Z`), epoch milliseconds, or ages (`15m`, `2h`, `7d`); both
        are inclusive. `search` matches a text in the line, ignoring case. `limit` is 100 by default, at most 1000.
        `stream` is `stdout`, `stderr`, or `system` for messages of the platform about the app. Lines are kept across
        deployments, for 7 days and up to 100 MB.
        """
        since, until = query.span(db.env.clock.now())
        project = await db.read(partial(_find_here, org_id=caller.org_id, name=name))
        async with searching:
            lines = await logs.read(
                log_of(project.id), since=since, until=until, search=query.search, limit=query.limit
            )
        return AppLogLines([AppLogLine.of(line) for line in lines])

    @router.get("/projects/{name}/logs/stream", events=True)
    async def follow_app_logs(caller: Caller, name: str, query: AppLogsTailQuery, request: Request) -> Stream:
        """Follow the output of a project's app as server-sent events, one `log` per line.

        The stream starts with the newest 100 lines, or as many as `tail` says. A client that reconnects with
        `Last-Event-ID`, as browsers do, gets the lines after that event instead.
        """
        project = await db.read(partial(_find_here, org_id=caller.org_id, name=name))
        return sse.stream(_events(logs, project.id, request.header(b"last-event-id"), query.tail))

    return router


def _find_here(tx: Tx, org_id: int, name: str) -> Project:
    """Return the project of an app with logs on this machine; raises Elsewhere."""
    project = projects.get(tx, org_id, name)
    placing.check_logs_are_here(tx, org_id, project)
    return project


async def _events(logs: Logs, project_id: int, after: str | None, tail: int) -> AsyncIterator[Event]:
    async with aclosing(follow(logs, log_of(project_id), after, tail=tail)) as batches:  # type: ignore[type-var]
        async for lines in batches:
            for line in lines:
                yield Event("log", AppLogLine.of(line), id=line.id)
