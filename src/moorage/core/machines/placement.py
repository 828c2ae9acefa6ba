"""Placement: the machine with the most free memory, and of equal ones the one with the least load.

Memory is counted as promised, by the tiers of placed resources, and not as measured: many placements in one moment
would otherwise choose the same machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.hooks import Hook
from moorage.core.machines import service
from moorage.core.machines.states import MachineStatus
from moorage.core.machines.tables import Machine

STEP_MB = 256  # Machines whose free memory differs by less are equal.

# Returns the memory in MB that the resources of a product may use, by machine.
COMMITTED: Hook[[Tx], Mapping[int, int]] = Hook("machine.committed")


class Placement:
    """Chooses machines in one transaction; each placement counts for the next choice."""

    @across_organizations("machines run resources of all organizations")
    def __init__(self, tx: Tx) -> None:
        rows = service.by_id(tx).values()
        active = [row for row in rows if row.status == MachineStatus.ACTIVE]
        draining = [row for row in rows if row.status == MachineStatus.DRAINING]
        self._rows = active or draining or list(rows)  # A machine that is gone may come back.
        self._own = tx.env.machine.id
        self._committed: Counter[int] = Counter()
        if len(self._rows) > 1:
            for committed in tx.env.hooks.call(COMMITTED, tx):
                self._committed.update(committed)

    def choose(self, memory_mb: int) -> int:
        """Return the id of the machine for a resource."""
        if not self._rows:
            return self._own
        chosen = min(self._rows, key=self._rank).id
        self._committed[chosen] += memory_mb
        return chosen

    def _rank(self, row: Machine) -> tuple[int, int, int]:
        return -((row.memory_mb - self._committed[row.id]) // STEP_MB), row.load_milli, row.id


@across_organizations("machines run resources of all organizations")
def choose(tx: Tx, memory_mb: int) -> int:
    """Return the machine for one resource."""
    return Placement(tx).choose(memory_mb)
