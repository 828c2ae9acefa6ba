"""Machines of replicas and volumes: where they are placed, and which have to move.

A replica of an app without a volume may run on any machine: one on a machine that is gone is replaced elsewhere, and
one on a draining machine is replaced before it is stopped. An app with a volume stays with its data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moorage.accounts.plans import tiers
from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.machines import service as machines
from moorage.core.machines.placement import Placement
from moorage.core.machines.states import MachineStatus
from moorage.core.machines.tables import Machine
from moorage.errors import CannotStart, Elsewhere
from moorage.products.apps import tables
from moorage.products.apps.tables import Replica
from moorage.products.projects.tables import Project
from moorage.runtime.engines.ports import Address

MB_OF_GB = 1024
REMOTE_HOST = "machine-"  # of a replica on another machine: `machine-<id>:<port>`, which a link makes local
_WHY = "a machine runs apps of all organizations"


class Fleet:
    """The machines of a store, as one of them sees them."""

    def __init__(self, rows: dict[int, Machine], mine: int) -> None:
        self._rows = rows
        self.mine = mine

    @property
    def others(self) -> list[str]:
        """Return the names of the other machines that are not lost."""
        return sorted(row.name for row in self._rows.values() if row.id != self.mine and not row.is_gone)

    def is_usable(self, row: Replica) -> bool:
        """Return whether the machine of a replica answers. A pod runs on while its control process is away."""
        if row.machine_id == self.mine or row.host:
            return True
        machine = self._rows.get(row.machine_id)
        return machine is not None and not machine.is_gone

    def is_leaving(self, row: Replica) -> bool:
        """Return whether a replica should move because its machine is drained and another one can take it."""
        machine = self._rows.get(row.machine_id)
        if machine is None or machine.status != MachineStatus.DRAINING:
            return False
        return any(each.status == MachineStatus.ACTIVE for each in self._rows.values())

    def address_of(self, row: Replica) -> str:
        port = row.port or 0
        if row.host:
            return str(Address(port, row.host))  # Each machine reaches it there.
        return str(Address(port) if row.machine_id == self.mine else Address(port, f"{REMOTE_HOST}{row.machine_id}"))


@across_organizations(_WHY)
def read_fleet(tx: Tx) -> Fleet:
    # With SQLite there is one machine, which needs no row here.
    rows = machines.by_id(tx) if tx.dialect == "postgresql" else {}
    return Fleet(rows, tx.env.machine.id)


@across_organizations(_WHY)
def check_is_alone(tx: Tx) -> None:
    """Raise CannotStart if another machine runs apps."""
    if others := read_fleet(tx).others:
        raise CannotStart(
            f"{', '.join(others)} already runs the apps of this cluster, and only one `moorage up` may: stop it and "
            "wait until its lease expires, or use `moorage serve` and `moorage work` here"
        )


def choose(tx: Tx, org_id: int, placement: Placement, project_id: int, tier: str | None, *, has_volume: bool) -> int:
    """Return the machine for a new replica; for an app with a volume, the one that has the volume."""
    memory_mb = memory_of(tier)
    if not has_volume:
        return placement.choose(memory_mb)
    machine_id = tx.find(tables.FIND_VOLUME, project_id=project_id)
    if machine_id is not None:
        return machine_id
    chosen = placement.choose(memory_mb)
    keep_volume(tx, org_id, project_id, chosen)
    return chosen


def check_volume_is_here(tx: Tx, org_id: int, project: Project) -> None:
    """Raise Elsewhere if the volume of an app is on another machine, where its commands have to run."""
    machine_id = tx.find(tables.FIND_VOLUME, project_id=project.id) if project.disk else None
    if machine_id is not None and machine_id != tx.env.machine.id:
        row = machines.by_id(tx).get(machine_id)
        name = row.name if row is not None else "another machine"
        raise Elsewhere(machine_id, f"The volume of this app is on {name}; send the command to the API of that machine")


def explain_absence(tx: Tx, org_id: int, project: Project) -> str | None:
    """Return why an app with a volume cannot run: the machine with its volume does not answer."""
    if not project.disk or not tx.env.settings.uses_postgres:
        return None
    machine_id = tx.find(tables.FIND_VOLUME, project_id=project.id)
    if machine_id is None or machine_id == tx.env.machine.id:
        return None
    return machines.explain_absence(machines.by_id(tx).get(machine_id), "app")


def check_logs_are_here(tx: Tx, org_id: int, project: Project) -> None:
    """Raise Elsewhere if another machine has all replicas of an app, and so its newest log lines."""
    if tx.env.settings.uses_postgres:
        rows = tx.all(tables.OF_PROJECT, org_id=org_id, project_id=project.id)
        others = [row.machine_id for row in rows if row.machine_id != tx.env.machine.id]
        by_id = machines.by_id(tx) if others and len(others) == len(rows) else {}
        alive = [each for each in others if each in by_id and not by_id[each].is_gone]
        if alive:
            raise Elsewhere(
                alive[-1], f"The logs of this app are on {by_id[alive[-1]].name}; ask the API of that machine"
            )


def keep_volume(tx: Tx, org_id: int, project_id: int, machine_id: int) -> None:
    """Record the machine of a project's volumes, unless one is recorded."""
    tx.find(tables.ADD_VOLUME, org_id=org_id, project_id=project_id, machine_id=machine_id, created_at=tx.now)


def memory_of(key: str | None) -> int:
    tier = tiers.find_tier(key or tiers.DEFAULT_OF_APPS)
    return int(tier.memory * MB_OF_GB) if tier is not None else 0


@across_organizations(_WHY)
def committed_memory(tx: Tx) -> Counter[int]:
    """Return the memory in MB of running replicas by machine."""
    memory: Counter[int] = Counter()
    for machine_id, tier, count in tx.all(tables.COUNT_BY_TIER):
        memory[machine_id] += memory_of(tier) * count
    return memory


@across_organizations(_WHY)
def count(tx: Tx) -> Counter[int]:
    """Return the number of running replicas by machine."""
    replicas: Counter[int] = Counter()
    for machine_id, _, number in tx.all(tables.COUNT_BY_TIER):
        replicas[machine_id] += number
    return replicas


@across_organizations(_WHY)
def count_movable(tx: Tx, machine_id: int) -> int:
    """Return the number of replicas that leave a machine when it is drained."""
    return tx.one(tables.COUNT_MOVABLE, machine_id=machine_id)


@across_organizations(_WHY)
def describe_held(tx: Tx, machine_id: int) -> list[str]:
    """Name the apps whose volume is on a machine."""
    names = tx.all(tables.VOLUMES_OF_MACHINE, machine_id=machine_id)
    return [f"volumes of the apps {', '.join(names)}"] if names else []


@across_organizations(_WHY)
def give_up(tx: Tx, machine_id: int) -> None:
    """Let apps start elsewhere with an empty volume, because the machine of their volume is lost."""
    tx.run(tables.DELETE_VOLUMES_OF_MACHINE, machine_id=machine_id)


@across_organizations(_WHY)
def forget_machine(tx: Tx, machine_id: int) -> None:
    tx.run(tables.DELETE_OF_MACHINE, machine_id=machine_id)


@across_organizations(_WHY)
def claim(tx: Tx, rows: Iterable[Replica], volumes: Iterable[int]) -> None:
    """Become the owner of replicas and volumes from before machines had rows."""
    mine = tx.env.machine.id
    for row in rows:
        tx.run(tables.CLAIM, org_id=row.org_id, id=row.id, machine_id=mine)
    for project_id in volumes:
        org_id = tx.find(tables.ORGANIZATION, project_id=project_id)
        if org_id is not None and tx.find(tables.FIND_VOLUME, project_id=project_id) is None:
            keep_volume(tx, org_id, project_id, mine)
