"""Functions to schedule, and control processes that can die and restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.builders import make_org, make_token, make_user
from tests.client import Client
from tests.products.functions.edge_stand_in import Fate

from moorage.core.audit.service import THE_PLATFORM
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS, ManualClock
from moorage.core.kit.cron import Cron
from moorage.core.telemetry import Telemetry
from moorage.core.worker.run import Handlers
from moorage.core.worker.scheduler import Scheduler
from moorage.products.functions import tables as functions
from moorage.products.functions.edge_client import EdgeClient
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.records.recorder import Recorder
from moorage.products.schedules import jobs, service
from moorage.products.schedules.runner import ScheduleRunner
from moorage.products.schedules.service import New
from moorage.products.schedules.tables import Run, Schedule
from moorage.runtime.edge import spool
from moorage.runtime.edge.spool import Record


class Control:
    """The schedule parts of a control process."""

    def __init__(self, db: Database, *, most: int = 100) -> None:
        settings, telemetry = db.env.settings, Telemetry(quiet=True)
        self.db = db
        self.edge = EdgeClient(settings.folder("run") / "edge.sock")
        self.recorder = Recorder(
            db, telemetry, settings.folder("spool"), FunctionLogs.of(settings), on_scheduled=jobs.on_scheduled
        )
        self.runner = ScheduleRunner(db, self.edge, telemetry, self.recorder.catch_up, max_in_flight=most, retry_s=0.01)
        handlers = Handlers()
        jobs.register(handlers, self.runner)
        self.scheduler = Scheduler(db, telemetry, handlers.ticks)

    async def tick(self) -> int:
        return await self.scheduler.turn()

    async def tick_and_finish(self) -> None:
        await self.scheduler.turn()
        await self.finish()

    async def recover(self) -> None:
        await self.runner.ensure(self.db, self.db.env.clock.now())

    async def finish(self) -> None:
        """Wait until every run is counted."""
        await self.runner.idle()
        await self.recorder.catch_up()

    async def die(self) -> None:
        """Stop at once, like a killed process."""
        await self.runner.stop()
        self.recorder.close()
        await self.edge.close()


def due(clock: ManualClock) -> None:
    """Advance the clock to the next minute."""
    clock.advance(MINUTE_MS)


def once(first: Fate, then: Fate | None = None) -> Any:
    """Return one fate for the first call of each activation, another for later ones."""
    seen: set[str] = set()

    def fate(call: dict[str, Any]) -> Fate:
        is_first = call["activation"] not in seen
        seen.add(call["activation"])
        return first if is_first else then or Fate()

    return fate


def make_record(kind: int, schedule: Schedule, activation: str, started_ms: int) -> Record:
    at = (schedule.function_id, schedule.org_id, 1, 128, started_ms, 5_000, 0, schedule.id)
    return Record(kind, spool.SCHEDULE, True, False, *at, activation, None, b"")


async def until(is_so: Callable[[], Any]) -> None:
    """Wait until other tasks make a condition true."""
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.005)


async def make_client(asgi: Any, db: Database) -> tuple[Client, int]:
    owner = await make_user(db)
    org = await make_org(db, owner)
    return Client(asgi, token=await make_token(db, owner, org.id)), org.id


async def make_function(db: Database, org_id: int, name: str = "hello", *, timeout_ms: int = 60_000) -> int:
    def unit(tx: Tx) -> int:
        function_id = tx.one(
            functions.ADD,
            org_id=org_id,
            name=name,
            runtime="python:3.11",
            timeout_ms=timeout_ms,
            memory_mb=128,
            description=None,
            network="internet",
            raw_http=False,
            own_options=False,
            current_version=1,
            last_version=1,
            revision=1,
            created_at=tx.now,
            updated_at=tx.now,
        )
        tx.one(
            functions.ADD_VERSION,
            org_id=org_id,
            function_id=function_id,
            version=1,
            digest="0" * 64,
            main="main.py",
            created_at=tx.now,
            updated_at=tx.now,
        )
        return function_id

    return await db.write(unit)


async def make_schedule(
    db: Database,
    org_id: int,
    function: int | str = "hello",
    *,
    name: str = "nightly",
    cron: str = "* * * * *",
    enabled: bool = True,
    params: dict[str, Any] | None = None,
) -> Schedule:
    new = New(name, function, Cron.parse(cron), enabled, params or {})
    return await db.write(lambda tx: service.create(tx, org_id, THE_PLATFORM, new))


async def read_schedule(db: Database, schedule: Schedule) -> Schedule:
    return await db.read(lambda tx: service.get(tx, schedule.org_id, schedule.id))


async def open_runs(db: Database) -> list[Run]:
    return await db.read(lambda tx: service.open_runs(tx, 2**62, 10_000))
