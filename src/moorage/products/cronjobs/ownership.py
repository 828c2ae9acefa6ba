"""Machines of cronjob runs: placement of queued runs, and the end of runs of lost machines."""

from __future__ import annotations

import contextlib
from collections import Counter

from moorage.accounts.plans import tiers
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.clock import MINUTE_MS
from moorage.core.machines import service as machines
from moorage.core.machines.placement import Placement
from moorage.errors import Elsewhere, IllegalMove
from moorage.products.cronjobs import service, tables
from moorage.products.cronjobs.tables import Execution

# A machine that restarts records the real end of its runs; one that is away for longer has probably lost them.
LOST_AFTER_MS = 5 * MINUTE_MS
MAX_PLACED = 500  # runs in one transaction
_WHY = "a machine runs cronjobs of all organizations"


@across_organizations(_WHY)
def needs_care(tx: Tx) -> bool:
    """Return whether `take_care` has anything to do."""
    if tx.dialect == "sqlite" or not tx.env.machine.id:
        return False
    return bool(tx.all(tables.MISPLACED, most=1) or _lost(tx))


@across_organizations(_WHY)
def take_care(tx: Tx) -> None:
    """Place queued runs of absent machines elsewhere, and end the runs of machines that are gone for long."""
    machines.lock_placement(tx)
    machines.hold(tx)
    by_id = machines.by_id(tx)
    placement = Placement(tx)
    for run in tx.all(tables.MISPLACED, most=MAX_PLACED):
        cronjob = tx.find(tables.FIND_BY_ID, org_id=run.org_id, id=run.cronjob_id)
        target = placement.choose(service.memory_of(cronjob) if cronjob is not None else 0)
        if target != run.machine_id:
            tx.run(tables.PLACE, org_id=run.org_id, id=run.id, machine_id=target, now=tx.now)
    for run in _lost(tx):
        row = by_id.get(run.machine_id)
        end(tx, run.org_id, run, f"the machine {row.name if row else 'of this run'} does not answer any more")


def get_here(tx: Tx, org_id: int, uuid: str) -> Execution:
    """Return a run whose log is on this machine; raises NotFound, and Elsewhere for a run of another machine."""
    run = service.get_execution_by_uuid(tx, org_id, uuid)
    if run.machine_id not in (tx.env.machine.id, machines.UNOWNED) and tx.env.settings.uses_postgres:
        row = machines.by_id(tx).get(run.machine_id)
        if row is not None:
            raise Elsewhere(row.id, f"The log of this run is on {row.name}; ask the API of that machine")
    return run


def end(tx: Tx, org_id: int, run: Execution, why: str) -> None:
    with contextlib.suppress(IllegalMove):
        service.finish(tx, org_id, run, exit_code=None, error=why, ended_at=tx.now)


@across_organizations(_WHY)
def _lost(tx: Tx) -> list[Execution]:
    return tx.all(tables.LOST, before=tx.now - LOST_AFTER_MS)


@across_organizations(_WHY)
def committed_memory(tx: Tx) -> Counter[int]:
    """Return the memory in MB of open runs by machine."""
    memory: Counter[int] = Counter()
    for machine_id, key, count in tx.all(tables.COUNT_BY_TIER):
        tier = tiers.find_tier(key)
        memory[machine_id] += int(tier.memory * service.MB_OF_GB) * count if tier is not None else 0
    return memory


@across_organizations(_WHY)
def count_by_machine(tx: Tx) -> Counter[int]:
    return Counter(run.machine_id for run in tx.all(tables.RUNNING))


@across_organizations(_WHY)
def forget_machine(tx: Tx, machine_id: int) -> None:
    """End the open runs of a machine that is removed."""
    for run in tx.all(tables.RUNNING):
        if run.machine_id == machine_id:
            end(tx, run.org_id, run, "its machine was removed")
