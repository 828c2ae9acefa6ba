"""Membership of this machine: joins the store, renews its lease, and marks machines with an expired one as gone.

A lease is judged by the clock of the database server, and also by the time for which this process has seen the same
heartbeat, so that a clock that is set forward ends no lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from moorage.core.db.store import Database
from moorage.core.machines import service
from moorage.core.machines.service import LEASE_MS
from moorage.core.machines.tables import Machine
from moorage.core.telemetry import Telemetry
from moorage.errors import CannotStart
from moorage.runtime.machines import identity
from moorage.runtime.machines.identity import DataFolderKey
from moorage.runtime.machines.links import Links

HEARTBEAT_INTERVAL_S = 5.0
MIN_PAUSE_S = 0.5
SEEN_UNCHANGED_S = 12.0  # time for which a heartbeat must not have changed before its lease can be expired
JOIN_RETRY_S = 1.0
PORT_FILE = "machine-port"  # in `run`: the port of the last start, which other machines still know

Aged = list[tuple[Machine, int]]  # machines with the ms since their heartbeat


class Membership:
    def __init__(self, db: Database, links: Links, telemetry: Telemetry) -> None:
        self._db = db
        self._links = links
        self._telemetry = telemetry
        self.on_change: list[Callable[[], None]] = []  # called after another machine was marked as gone
        self._key: DataFolderKey | None = None
        self.measure: Callable[[], str] = str  # returns measurements of this machine for operators, as JSON
        self._address: str | None = None
        self._beat_at = float("-inf")
        self._seen: dict[int, tuple[int, float]] = {}  # by machine: its heartbeat, and since when this one is seen

    async def join(self) -> None:
        """Register this machine and get its id; raises CannotStart if it runs elsewhere too."""
        settings = self._db.env.settings
        self._key = self._key or DataFolderKey(settings.data)
        new = identity.describe(settings, self._key.read())
        give_up_at = time.monotonic() + 2 * LEASE_MS / 1000
        while (seat := await self._db.write(partial(service.join, new=new))) is None:
            if time.monotonic() > give_up_at:
                raise CannotStart(
                    f"a machine with the identity of {settings.data} runs on another host. If this folder is a copy, "
                    f"delete {self._key.path} and start again"
                )
            await asyncio.sleep(JOIN_RETRY_S)
        self._db.env.machine.id, self._db.env.machine.epoch = seat.id, seat.epoch
        if settings.uses_postgres:
            await self._look(await self._db.read(service.with_ages))
            self._check_artifacts()

    def _check_artifacts(self) -> None:
        settings, machine = self._db.env.settings, self._db.env.machine
        if machine.has_others and not settings.artifacts_url:
            raise CannotStart(
                "another machine uses this PostgreSQL, and machines have to share their artifacts: set "
                "MOORAGE_ARTIFACTS_URL to the same S3 bucket on each of them"
            )

    async def run(self) -> None:
        """Renew the lease until cancelled."""
        while True:
            pause_s = MIN_PAUSE_S
            try:
                pause_s = await self.round()
            except CannotStart:
                raise
            except Exception as error:  # noqa: BLE001 - an unreachable database must not end the heartbeat
                self._telemetry.crashed(None, error, where="heartbeat")
            await asyncio.sleep(pause_s)

    async def round(self) -> float:
        """Renew the lease if due, and check those of others; return the seconds until the next round."""
        now = time.monotonic()
        if now - self._beat_at >= HEARTBEAT_INTERVAL_S - MIN_PAUSE_S:
            machines = await self._beat()
            self._beat_at = now
        else:
            machines = await self._db.read(service.with_ages)
        await self._look(machines)
        return self._pause_s(machines) if self._beat_at > 0 else MIN_PAUSE_S

    async def _beat(self) -> Aged:
        facts = await asyncio.to_thread(self.measure)
        beat = partial(service.beat, load_milli=identity.load_milli(), facts=facts, address=self._address)
        machines = await self._db.write(beat)
        if machines is not None:
            return machines
        self._telemetry.log.warning("this machine lost its lease; it joins again, without what others run by now")
        await self.join()
        return await self._db.write(beat) or []

    async def _look(self, machines: Aged) -> None:
        mine = self._db.env.machine
        others = [(row, age_ms) for row, age_ms in machines if row.id != mine.id]
        alive = [row for row, age_ms in others if not row.is_gone]
        mine.has_others = bool(alive)
        if self._db.env.settings.machine_address or mine.has_others:
            await self._listen()
        self._links.peers = {row.id: row.address for row in alive if row.address}
        for row, age_ms in others:
            if not row.is_gone and self._is_expired(row, age_ms):
                await self._expire(row)

    async def _listen(self) -> None:
        if self._address is None:
            settings = self._db.env.settings
            host, port = identity.listen_address(settings)
            self._address = await self._links.listen(host, port, settings.folder("run") / PORT_FILE)
            self._beat_at = float("-inf")  # so that the next round, which is soon, publishes it

    def _is_expired(self, row: Machine, age_ms: int) -> bool:
        heartbeat, since = self._seen.get(row.id, (0, 0.0))
        if heartbeat != row.heartbeat_at:
            heartbeat, since = self._seen[row.id] = (row.heartbeat_at, time.monotonic())
        return age_ms >= LEASE_MS and time.monotonic() - since >= SEEN_UNCHANGED_S

    async def _expire(self, row: Machine) -> None:
        if await self._db.write(partial(service.expire, machine_id=row.id)):
            self._telemetry.log.warning("a machine does not answer; its stateless apps move", machine=row.name)
        for call in self.on_change:
            call()

    def _pause_s(self, machines: Aged) -> float:
        """Return the time until the next heartbeat, or until the next lease may expire."""
        left_s = [HEARTBEAT_INTERVAL_S]
        for row, age_ms in machines:
            if row.id != self._db.env.machine.id and not row.is_gone and age_ms > HEARTBEAT_INTERVAL_S * 2000:
                left_s.append((LEASE_MS - age_ms) / 1000)
        return max(MIN_PAUSE_S, min(left_s))

    def close(self) -> None:
        if self._key is not None:
            self._key.close()
            self._key = None
