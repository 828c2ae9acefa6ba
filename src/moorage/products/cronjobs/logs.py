"""Logs of cronjob runs: read as a whole, or followed during the run.

Shims write the log files, so no lines are lost while the control process is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import to_wire
from moorage.core.kit.events import Event
from moorage.products.cronjobs import tables
from moorage.products.cronjobs.launching import log_of
from moorage.products.cronjobs.schemas import ExecutionLogs
from moorage.products.cronjobs.states import EXECUTION
from moorage.products.cronjobs.tables import Execution
from moorage.products.projects.deployments.schemas import LogLine, StatusNow
from moorage.runtime.engines import ports
from moorage.runtime.engines.ports import Logs

FOLLOW_POLL_INTERVAL_S = 0.2
MAX_LINES = 10**7  # more than fit into the 10 MB that are kept


async def read(logs: Logs, execution: Execution) -> ExecutionLogs:
    """Return the whole log of a run."""
    return await asyncio.to_thread(_to_logs, await logs.read(log_of(execution), limit=MAX_LINES))


def _to_logs(lines: list[ports.LogLine]) -> ExecutionLogs:
    return ExecutionLogs("".join(f"{line.message}\n" for line in lines), [_to_output(line) for line in lines])


async def follow(db: Database, logs: Logs, execution: Execution, after: str | None) -> AsyncIterator[Event]:
    """Yield the lines after the id `after`, changes of status, and `done` at the end."""
    status, reader = "", await logs.open(log_of(execution), after=after)
    while True:
        # The status is read before the lines: once the row is terminal, the log is complete.
        row = await db.read(partial(_find, org_id=execution.org_id, execution_id=execution.id))
        while lines := await reader.news():
            for line in lines:
                yield Event("log", _to_output(line), id=line.id)
        now = row.status if row is not None else "failed"
        if now != status:
            status = now
            yield Event("status", StatusNow(status))
        if row is None or row.status in EXECUTION.terminal:
            yield Event("done", StatusNow(status))
            return
        await asyncio.sleep(FOLLOW_POLL_INTERVAL_S)


def _find(tx: Tx, org_id: int, execution_id: int) -> Execution | None:
    return tx.find(tables.FIND_EXECUTION, org_id=org_id, id=execution_id)


def _to_output(line: ports.LogLine) -> LogLine:
    return LogLine(line.message, to_wire(line.at), line.stream)
