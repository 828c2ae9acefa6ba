"""Machines of the platform as operators see them: their workloads, drain and removal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import msgspec

from moorage.accounts.operator import machine as facts
from moorage.core.audit import service as audit
from moorage.core.audit.service import THE_PLATFORM, Actor, AuditTarget
from moorage.core.db.scope import PLATFORM_ORG_ID, across_organizations
from moorage.core.db.tx import Tx
from moorage.core.kit.decoding import decode
from moorage.core.kit.records import dataclass
from moorage.core.machines import service
from moorage.core.machines.states import MachineStatus
from moorage.core.machines.tables import Machine
from moorage.settings import Settings

MB = 2**20
_WHY = "the operator sees what all organizations run"


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """Row of a machine, with its measurements and the number of resources on it."""

    row: Machine | None  # None for the machine of a process that runs no apps
    facts: facts.Machine
    is_this: bool
    age_ms: int  # since its last heartbeat
    resources: Mapping[str, int] = field(default_factory=dict)
    movable: int = 0  # stateless resources, which move when it is drained
    has_target: bool = False  # whether another machine is active
    stateful: tuple[str, ...] = ()  # resources whose data is on this machine and nowhere else

    @property
    def status(self) -> str:
        return self.row.status if self.row is not None else MachineStatus.ACTIVE.value


def measure(settings: Settings) -> str:
    """Return the measurements of this machine for its row, as JSON."""
    return msgspec.json.encode(facts.look(settings)).decode()


@across_organizations(_WHY)
def list_all(tx: Tx) -> list[SeenMachine]:
    """Return all machines; this one alone where the process belongs to none."""
    counts = {name: count(tx) for name, count in tx.env.hooks.of(service.COUNT).items()}
    seen = [_see(tx, row, age_ms, counts) for row, age_ms in service.with_ages(tx)]
    return seen or [SeenMachine(None, facts.look(tx.env.settings), True, 0)]


@across_organizations(_WHY)
def _see(tx: Tx, row: Machine, age_ms: int, counts: Mapping[str, Mapping[int, int]]) -> SeenMachine:
    is_this = row.id == tx.env.machine.id
    measured = facts.look(tx.env.settings) if is_this else _decode(row)
    resources = {name: by_machine.get(row.id, 0) for name, by_machine in counts.items()}
    age_ms = 0 if is_this and not tx.env.settings.uses_postgres else max(age_ms, 0)
    return SeenMachine(
        row,
        replace(measured, name=row.name),
        is_this,
        age_ms,
        resources,
        movable=sum(tx.env.hooks.call(service.MOVABLE, tx, row.id)),
        has_target=any(other.status == MachineStatus.ACTIVE for other in service.by_id(tx).values() if other != row),
        stateful=tuple(service.stateful_of(tx, row.id)),
    )


def _decode(row: Machine) -> facts.Machine:
    if row.facts:
        return decode(row.facts, facts.Machine)
    return facts.Machine(row.name, row.cpu_count, (0.0, 0.0, 0.0), row.memory_mb * MB, 0, 0, 0, 0, {})


@across_organizations(_WHY)
def get(tx: Tx, name: str) -> SeenMachine:
    row = service.get(tx, name)
    return next(each for each in list_all(tx) if each.row is not None and each.row.id == row.id)


@across_organizations(_WHY)
def set_draining(tx: Tx, name: str, actor: Actor = THE_PLATFORM, *, draining: bool) -> SeenMachine:
    """Move the stateless apps of a machine to others, or let it get new ones again. Safe to repeat."""
    row = service.get(tx, name)
    if service.set_draining(tx, row, draining=draining).status != row.status:
        action = "machine.drained" if draining else "machine.undrained"
        audit.record(tx, PLATFORM_ORG_ID, actor, action, AuditTarget("machine", name))
    return get(tx, name)


@across_organizations(_WHY)
def remove(tx: Tx, name: str, actor: Actor = THE_PLATFORM, *, is_lost: bool = False) -> None:
    """Forget a machine that is gone; raises Conflict if it runs, or has data and is not lost for good."""
    service.remove(tx, service.get(tx, name), is_lost=is_lost)
    audit.record(tx, PLATFORM_ORG_ID, actor, "machine.removed", AuditTarget("machine", name), lost=is_lost)
