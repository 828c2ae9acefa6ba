"""Follow the log of an app without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from moorage.runtime.engines.ports import LogLine, Logs

POLL_INTERVAL_S = 0.2  # of the output of a start, which is read for seconds only
MAX_WAIT_S = 5.0  # for new lines; a file system without notifications delays lines by so much
BATCH_PAUSE_S = 0.1  # between two batches of a follower that is behind, to leave CPU to other requests


def log_of(project_id: int) -> str:
    """Return the name of a project's log."""
    return f"apps/{project_id}"


async def follow(logs: Logs, log: str, after: str | None, *, tail: int = 0) -> AsyncIterator[list[LogLine]]:
    """Yield non-empty batches of lines as they are written, without end.

    Starts after the line with the id `after`; without one, with the newest `tail` lines.
    """
    reader = await logs.open(log, after=after, tail=tail)
    while True:
        if lines := await reader.news():
            yield lines
            await asyncio.sleep(BATCH_PAUSE_S)
        else:
            await reader.wait(MAX_WAIT_S)
