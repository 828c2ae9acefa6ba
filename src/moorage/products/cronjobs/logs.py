"""What runs of cronjobs print: read back whole, and followed while they go on.

The lines are those of the files that shims write, so they are there whoever was away meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.http.sse import Event
from moorage.core.kit.clock import to_wire
from moorage.products.apps.logs.log_files import AppLogs
from moorage.products.apps.logs.log_files import LogLine as Found
from moorage.products.cronjobs import tables
from moorage.products.cronjobs.launching import folder_of
from moorage.products.cronjobs.schemas import ExecutionLogs
from moorage.products.cronjobs.states import EXECUTION
from moorage.products.cronjobs.tables import Execution
from moorage.products.projects.deployments.logs import LogLine, StatusNow

POLL_S = 0.2
MOST_LINES = 10**7  # more than fit into what is kept


def read(logs: Path, execution: Execution) -> ExecutionLogs:
    """Return all that is kept of what a run printed; for a thread."""
    lines = _files(logs, execution).read(execution.id, limit=MOST_LINES)
    return ExecutionLogs("".join(f"{line.message}\n" for line in lines), [_shown(line) for line in lines])


async def follow(db: Database, logs: Path, execution: Execution, after: str | None) -> AsyncIterator[Event]:
    """Yield the lines of a run after one, its status when that changes, and `done` when it has ended."""
    files, status = _files(logs, execution), ""
    cursor = await asyncio.to_thread(files.start, execution.id, after)
    while True:
        # The status is read before the lines: a run whose row says that it has ended has printed all.
        found = await db.read(partial(_find, org_id=execution.org_id, execution_id=execution.id))
        while lines := await asyncio.to_thread(files.news, execution.id, cursor):
            for line in lines:
                yield Event("log", _shown(line), id=line.id)
        now = found.status if found is not None else "failed"
        if now != status:
            status = now
            yield Event("status", StatusNow(status))
        if found is None or found.status in EXECUTION.terminal:
            yield Event("done", StatusNow(status))
            return
        await asyncio.sleep(POLL_S)


def _find(tx: Tx, org_id: int, execution_id: int) -> Execution | None:
    return tx.find(tables.FIND_EXECUTION, org_id=org_id, id=execution_id)


def _files(logs: Path, execution: Execution) -> AppLogs:
    return AppLogs(folder_of(logs, execution).parent)


def _shown(line: Found) -> LogLine:
    return LogLine(line.message, to_wire(line.at), line.stream)
