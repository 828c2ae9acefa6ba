"""Probers that a test runs step by step, with scripted targets, clocks and databases."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import update
from tests.builders import make_org
from tests.products.monitors.support import ADA, make_monitor

from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database, Unit
from moorage.core.kit.clock import SECOND_MS, ManualClock
from moorage.core.telemetry import Telemetry
from moorage.core.vault.tables import vault_secret
from moorage.products.monitors import service, tables
from moorage.products.monitors.probing import grid
from moorage.products.monitors.probing.beats import Outcome
from moorage.products.monitors.probing.checks import CheckTarget
from moorage.products.monitors.probing.prober import Prober
from moorage.products.monitors.tables import Heartbeat, Monitor, State

T = TypeVar("T")
WAIT_S = 30.0
GOOD = Outcome(is_up=True, message="200 OK", response_ms=12, code=200)
REFUSED = Outcome(is_up=False, message="connect: nobody listens there", phase="connect")
UNKNOWN = Outcome(is_up=False, message="dns: there is no such name", phase="dns")
WRONG = Outcome(is_up=False, message="status: 500 is not among 200-299", response_ms=9, code=500, phase="status")
_s = vault_secret.c
_DAMAGE = Command(
    update(vault_secret)
    .where((_s.org_id == arg("org_id")) & (_s.resource == arg("resource")))
    .values(ciphertext="damaged")
)


class Targets:
    """Scripted targets; a held target answers after its release."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Outcome | Exception] = {}
        self.seen: list[CheckTarget] = []
        self.running: Counter[int] = Counter()
        self.most_at_once = 0
        self.called_off: list[int] = []
        self._gates: dict[int, asyncio.Event] = {}

    async def check(self, target: CheckTarget) -> Outcome:
        monitor_id = target.monitor_id
        self.seen.append(target)
        self.running[monitor_id] += 1
        self.most_at_once = max(self.most_at_once, self.running[monitor_id])
        try:
            if monitor_id in self._gates:
                await self._gates[monitor_id].wait()
        except asyncio.CancelledError:
            self.called_off.append(monitor_id)
            raise
        finally:
            self.running[monitor_id] -= 1
        found = self.outcomes.get(monitor_id, GOOD)
        if isinstance(found, Exception):
            raise found
        return found

    def hold(self, *ids: int) -> None:
        for monitor_id in ids:
            self._gates[monitor_id] = asyncio.Event()

    def let_go(self, *ids: int) -> None:
        for monitor_id in ids or list(self._gates):
            self._gates.pop(monitor_id).set()

    def times(self, monitor_id: int) -> int:
        """Return the number of checks of a monitor."""
        return sum(1 for target in self.seen if target.monitor_id == monitor_id)


class Faulty:
    """A real database with scripted failures of all calls, or of writes by a named function."""

    def __init__(self, db: Database) -> None:
        self.env, self.commits = db.env, db.commits
        self.fails_at: Callable[[Any], bool] = lambda _: False
        self._db = db

    @property
    def dialect(self) -> str:
        return self._db.dialect

    async def write(self, unit: Unit[T]) -> T:
        if self.fails_at(unit):
            raise OSError("the store is away")
        return await self._db.write(unit)

    async def read(self, unit: Unit[T]) -> T:
        return await self._db.read(unit)

    async def peek(self, unit: Unit[T]) -> T:
        return await self._db.peek(unit)

    def close(self) -> None:
        self._db.close()


@dataclass
class Org:
    org_id: int


async def some_org(db: Database) -> Org:
    return Org((await make_org(db)).id)


@dataclass
class Stage:
    """Probers on one database with one shared clock."""

    db: Database
    clock: ManualClock
    targets: Targets = field(default_factory=Targets)
    probers: list[Prober] = field(default_factory=list)
    steady_s: float = 1_000.0
    telemetry: Telemetry = field(default_factory=lambda: Telemetry(quiet=True))

    def prober(self, *, owns_store: bool = False, db: Database | None = None, **options: Any) -> Prober:
        made = Prober(
            db or self.db, self.targets, self.telemetry, owns_store=owns_store, steady=lambda: self.steady_s, **options
        )
        self.probers.append(made)
        return made

    def kill(self, prober: Prober) -> None:
        """Stop a prober as if its process had died."""
        self.probers.remove(prober)

    async def step(self) -> None:
        """Start the due checks of every prober and record the results."""
        for prober in self.probers:
            prober.start_due()
        await settle()
        for prober in self.probers:
            await prober._results.flush()

    async def refresh(self) -> None:
        for prober in self.probers:
            await prober.refresh()
        await self.step()

    async def pass_s(self, seconds: int, *, looks: bool = True) -> None:
        """Advance the time in seconds; probers refresh every three seconds."""
        for second in range(1, seconds + 1):
            self.clock.advance(SECOND_MS)
            self.steady_s += 1
            if looks and second % 3 == 0:
                await self.refresh()
            else:
                await self.step()

    async def beats(self, monitor: Monitor) -> list[Heartbeat]:
        """Return the heartbeats of a monitor, oldest first."""
        found = await self.db.read(
            lambda tx: tx.all(tables.HEARTBEATS, org_id=monitor.org_id, id=monitor.id, most=1_000)
        )
        return found[::-1]

    async def state(self, monitor: Monitor) -> State:
        return await self.db.read(lambda tx: tx.one(tables.FIND_STATE, org_id=monitor.org_id, id=monitor.id))

    def dropped(self, why: str) -> float:
        return self.telemetry.metrics.monitors.dropped.labels(why).numbers[0]


async def damage_secrets(db: Database, monitor: Monitor) -> None:
    await db.write(lambda tx: tx.run(_DAMAGE, org_id=monitor.org_id, resource=monitor.resource))


async def settle() -> None:
    """Run all tasks that are ready."""
    for _ in range(10):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline, "it does not become so"
        await asyncio.sleep(0.01)


async def make(stage: Stage, org: Org, **fields: Any) -> Monitor:
    return await make_monitor(stage.db, org, **{"interval_s": 30, **fields})


async def change(stage: Stage, monitor: Monitor, **changes: Any) -> None:
    await stage.db.write(lambda tx: service.update(tx, monitor.org_id, ADA, monitor.id, changes, {}))


async def pause(stage: Stage, monitor: Monitor) -> None:
    await stage.db.write(lambda tx: service.pause(tx, monitor.org_id, ADA, monitor.id))


async def resume(stage: Stage, monitor: Monitor) -> None:
    await stage.db.write(lambda tx: service.resume(tx, monitor.org_id, ADA, monitor.id))


def slots_within(monitor: Monitor, after: int, until: int) -> list[int]:
    """Return the slots of a monitor's grid in a time range."""
    found = []
    slot = grid.slot_after(after, monitor.id, monitor.interval_s)
    while slot <= until:
        found.append(slot)
        slot += monitor.interval_s * SECOND_MS
    return found
