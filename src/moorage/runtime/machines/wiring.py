"""Wiring of machines: membership, links, and ports of databases on other machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.kit.records import dataclass
from moorage.core.machines import service
from moorage.core.product import Duties, Loop, Product
from moorage.core.reconciler.rounds import Rounds
from moorage.core.telemetry import Telemetry
from moorage.runtime.machines.links import API, LOOPBACK, Links, Target
from moorage.runtime.machines.membership import Membership

PORTS_INTERVAL_S = 5.0
ADDRESS_TIMEOUT_S = 15.0
ADDRESS_POLL_INTERVAL_S = 0.5

# Returns machine and port of servers on other machines that are reached at the same port of this one.
SAME_PORTS: Hook[[Tx], list[Target]] = Hook("machine.same_ports")


@dataclass(frozen=True)
class Machines(Product):
    db: Database
    telemetry: Telemetry
    links: Links
    membership: Membership

    @classmethod
    def make(cls, db: Database, telemetry: Telemetry) -> Machines:
        links = Links(db.env, telemetry)
        return cls(db, telemetry, links, Membership(db, links, telemetry))

    async def join(self, duties: Duties) -> None:
        """Register this machine, before any other part starts. A process that runs no apps is no machine."""
        if duties.runs_apps:
            await self.membership.join()

    async def reach(self, machine_id: int) -> str:
        """Return `host:port` on this machine at which the API of another machine is reached."""
        give_up_at = time.monotonic() + ADDRESS_TIMEOUT_S
        # A process that runs no apps has no heartbeat that reads the addresses, which change when a pod is replaced.
        has_heartbeat = bool(self.db.env.machine.id)
        while not has_heartbeat or machine_id not in self.links.peers:
            rows = await self.db.read(service.by_id)
            self.links.peers = {row.id: row.address for row in rows.values() if row.address and not row.is_gone}
            row = rows.get(machine_id)
            if row is None or row.is_gone or time.monotonic() > give_up_at:
                break
            if machine_id in self.links.peers:
                break
            await asyncio.sleep(ADDRESS_POLL_INTERVAL_S)  # It has just learned of another one, and has no address yet.
        return f"{LOOPBACK}:{self.links.local_port(machine_id, API)}"

    def loops(self, duties: Duties) -> Sequence[Loop]:
        # With SQLite there are no others, and nothing to renew.
        if not duties.runs_apps or not self.db.env.settings.uses_postgres:
            return []
        ports = Rounds(self.telemetry, "links", PORTS_INTERVAL_S)
        return [self.membership.run(), ports.run(self._keep_ports)]

    async def _keep_ports(self) -> None:
        if self.db.env.machine.has_others:
            self.links.keep(await self.db.read(_same_ports))

    async def close(self) -> None:
        await self.links.close()
        self.membership.close()


@across_organizations("a machine runs resources of all organizations")
def _same_ports(tx: Tx) -> list[Target]:
    return [target for targets in tx.env.hooks.call(SAME_PORTS, tx) for target in targets]
