"""Membership of machines: joining, heartbeats, expiry and removal.

A machine holds a lease of 20 s, which its heartbeat renews. Another machine that finds the lease expired marks the
machine as gone; from then on its stateless resources may run elsewhere. Writes about owned resources call `hold`, so a
process that lost the lease, or a second process with the same identity, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx, move
from moorage.core.hooks import Hook
from moorage.core.kit.records import dataclass
from moorage.core.machines import tables
from moorage.core.machines.states import MACHINE, MachineStatus
from moorage.core.machines.tables import Machine
from moorage.errors import Conflict, LostLease, NotFound

LEASE_MS = 20_000
UNOWNED = 0  # machine id of resources that no machine has claimed since an upgrade
_WHY = "a machine runs resources of all organizations"

# Describes resources that exist on one machine only, such as "3 databases"; a machine with any cannot be removed.
STATEFUL: Hook[[Tx, int], list[str]] = Hook("machine.stateful")
# Gives up the data of a machine that is lost for good, so that its owners can restore or replace it.
LOST: Hook[[Tx, int], None] = Hook("machine.lost")
# Returns the number of stateless resources of a machine, which move when it is drained.
MOVABLE: Hook[[Tx, int], int] = Hook("machine.movable")
# Returns the number of resources of a kind by machine; the name of the function is the kind.
COUNT: Hook[[Tx], Mapping[int, int]] = Hook("machine.count")
# Deletes the rows of stateless resources of a machine that is removed.
REMOVED: Hook[[Tx, int], None] = Hook("machine.removed")


@dataclass(frozen=True, slots=True)
class NewMachine:
    """A machine as its process describes it at its start."""

    key: str
    name: str
    address: str | None
    labels: str
    cpu_count: int
    memory_mb: int
    boot: str


@dataclass(frozen=True, slots=True)
class Seat:
    """Row and fence of a machine after `join`."""

    id: int
    epoch: int


@across_organizations(_WHY)
def join(tx: Tx, new: NewMachine) -> Seat | None:
    """Register this machine, or take its row over. None while a process on another host has the same identity."""
    row = _find_row(tx, new)
    if row is None:
        return _add(tx, new)
    age_ms = next(age for each, age in tx.all(tables.ALL_WITH_AGE, now=tx.now) if each.id == row.id)
    if tx.dialect == "postgresql" and row.boot != new.boot and not row.is_gone and age_ms < LEASE_MS:
        return None
    if row.is_gone:
        move(tx, MACHINE, row, to=MachineStatus.ACTIVE)
    described = {name: getattr(new, name) for name in ("address", "labels", "cpu_count", "memory_mb", "boot")}
    epoch = tx.one(tables.JOIN, id=row.id, now=tx.now, **described)
    return Seat(row.id, epoch)


@across_organizations(_WHY)
def _find_row(tx: Tx, new: NewMachine) -> Machine | None:
    row = tx.find(tables.FIND_BY_KEY, key=new.key)
    if row is None and tx.dialect == "sqlite":
        # The store is in the data folder, also after a restore to another one, so there is one machine.
        row = next(iter(tx.all(tables.ALL)), None)
        if row is not None:
            tx.run(tables.SET_KEY, id=row.id, new=new.key, now=tx.now)
    return row


@across_organizations(_WHY)
def _add(tx: Tx, new: NewMachine) -> Seat:
    taken = set(tx.all(tables.NAMES))
    names = (new.name, *(f"{new.name}-{number}" for number in range(2, len(taken) + 3)))
    machine_id = tx.one(
        tables.ADD,
        key=new.key,
        name=next(name for name in names if name not in taken),
        status=MachineStatus.ACTIVE,
        address=new.address,
        labels=new.labels,
        cpu_count=new.cpu_count,
        memory_mb=new.memory_mb,
        load_milli=0,
        facts="",
        boot=new.boot,
        epoch=0,
        heartbeat_at=0,
        gone_at=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    described = {name: getattr(new, name) for name in ("address", "labels", "cpu_count", "memory_mb", "boot")}
    return Seat(machine_id, tx.one(tables.JOIN, id=machine_id, now=tx.now, **described))


@across_organizations(_WHY)
def beat(tx: Tx, *, load_milli: int, facts: str, address: str | None) -> list[tuple[Machine, int]] | None:
    """Renew the lease; return all machines with the ms since their heartbeat. None if the lease was lost."""
    mine = tx.env.machine
    measured = {"load_milli": load_milli, "facts": facts, "address": address}
    if not tx.run(tables.BEAT, id=mine.id, epoch=mine.epoch, now=tx.now, **measured):
        return None
    return tx.all(tables.ALL_WITH_AGE, now=tx.now)


@across_organizations(_WHY)
def with_ages(tx: Tx) -> list[tuple[Machine, int]]:
    """Return all machines with the ms since their heartbeat."""
    return tx.all(tables.ALL_WITH_AGE, now=tx.now)


@across_organizations(_WHY)
def expire(tx: Tx, machine_id: int) -> bool:
    """Mark a machine as gone if its lease is still expired; return whether this call did."""
    if tx.find(tables.LOCK, id=machine_id) is None:
        return False
    row, age_ms = next(each for each in tx.all(tables.ALL_WITH_AGE, now=tx.now) if each[0].id == machine_id)
    if row.is_gone or age_ms < LEASE_MS:
        return False
    move(tx, MACHINE, row, to=MachineStatus.GONE, gone_at=tx.now)
    return True


@across_organizations(_WHY)
def hold(tx: Tx) -> None:
    """Raise LostLease unless this process holds the lease of its machine; it cannot be lost before the commit."""
    mine = tx.env.machine
    is_shared = mine.id != UNOWNED and tx.dialect == "postgresql"
    if is_shared and tx.find(tables.HOLD, id=mine.id, epoch=mine.epoch) is None:
        raise LostLease("this machine lost its lease; its resources may run elsewhere")


@across_organizations(_WHY)
def lock_placement(tx: Tx) -> None:
    """Let one transaction at a time decide where resources run. SQLite has a single writer anyway."""
    if tx.dialect == "postgresql":
        tx.run(tables.LOCK_PLACEMENT)


@across_organizations(_WHY)
def by_id(tx: Tx) -> dict[int, Machine]:
    return {row.id: row for row in tx.all(tables.ALL)}


@across_organizations(_WHY)
def get(tx: Tx, name: str) -> Machine:
    row = tx.find(tables.FIND_BY_NAME, name=name)
    if row is None:
        raise NotFound("There is no such machine")
    return row


@across_organizations(_WHY)
def set_draining(tx: Tx, row: Machine, *, draining: bool) -> Machine:
    """Start or end the drain of a machine: it keeps its replicas and gets no new ones. Safe to repeat."""
    if row.is_gone:
        raise Conflict(f"The machine {row.name} does not answer, and its apps have moved; moorage machines remove it")
    to = MachineStatus.DRAINING if draining else MachineStatus.ACTIVE
    if row.status != to:
        move(tx, MACHINE, row, to=to)
    return get(tx, row.name)


@across_organizations(_WHY)
def remove(tx: Tx, row: Machine, *, is_lost: bool = False) -> None:
    """Delete a machine that is gone. Raises Conflict if it still runs, or has data and is not lost for good."""
    locked = tx.find(tables.LOCK, id=row.id)
    if locked is None:
        return
    if not locked.is_gone:
        raise Conflict(f"The machine {row.name} still runs; stop its platform first, and wait {LEASE_MS // 1000} s")
    if is_lost:
        tx.env.hooks.call(LOST, tx, row.id)
    elif held := stateful_of(tx, row.id):
        raise Conflict(
            f"The machine {row.name} has data that exists nowhere else: {', '.join(held)}. Start it again, or remove "
            "it as lost: its databases then fail, and its apps start with empty volumes"
        )
    tx.env.hooks.call(REMOVED, tx, row.id)
    tx.run(tables.DELETE, id=row.id)


@across_organizations(_WHY)
def stateful_of(tx: Tx, machine_id: int) -> list[str]:
    """Describe the resources whose data is on a machine and nowhere else."""
    return [text for texts in tx.env.hooks.call(STATEFUL, tx, machine_id) for text in texts]


def explain_absence(row: Machine | None, what: str) -> str | None:
    """Return why a resource with data on one machine is not available; None if that machine answers."""
    if row is None:
        return f"no machine of this platform has the data of this {what}; start the machine that has it"
    if row.is_gone:
        return f"the machine {row.name} does not answer, and the data of this {what} is on it"
    return None
