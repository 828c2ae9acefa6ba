"""Wake the job worker for jobs of other processes, with PostgreSQL notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moorage.core.jobs.tables import CHANNEL
from moorage.core.telemetry.logs import get_logger

RECONNECT_DELAY_S = 5.0


async def listen_for_jobs(url: str, wake: Callable[[], None]) -> None:
    """Wake the worker at each notification, until cancelled.

    Reconnects after an error; until then the worker polls.
    """
    import psycopg
    from psycopg import sql

    log = get_logger("listener")
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
            async with connection:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
                wake()
                async for _ in connection.notifies():
                    wake()
        except psycopg.Error as error:
            log.warning("lost the connection for job notifications; reconnecting", why=str(error))
        await asyncio.sleep(RECONNECT_DELAY_S)
