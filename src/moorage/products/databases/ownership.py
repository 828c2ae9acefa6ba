"""Machines of databases: where their data is, and how databases of other machines are shown and reached."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from moorage.core.db.scope import across_organizations
from moorage.core.db.tx import Tx
from moorage.core.machines import placement
from moorage.core.machines import service as machines
from moorage.products.databases import tables
from moorage.products.databases.states import DatabaseStatus
from moorage.products.databases.tables import Database

MB_OF_GB = 1024
_WHY = "a machine runs databases of all organizations"


def shown(tx: Tx, org_id: int, *databases: Database) -> list[Database]:
    """Return databases as clients see them: those of a machine that does not answer are stopped, with the reason."""
    if not tx.env.settings.uses_postgres:
        return list(databases)
    by_id = machines.by_id(tx)
    absences = {each.id: machines.explain_absence(by_id.get(each.machine_id), "database") for each in databases}
    return [
        replace(each, status=DatabaseStatus.STOPPED.value, status_reason=why)
        if (why := absences[each.id]) is not None
        and by_id
        and each.status == DatabaseStatus.RUNNING
        and each.host is None  # A cluster runs it while its machine is away.
        else each
        for each in databases
    ]


@across_organizations(_WHY)
def committed_memory(tx: Tx) -> Counter[int]:
    """Return the memory in MB of databases by machine."""
    memory: Counter[int] = Counter()
    for database in tx.all(tables.EVERY):
        if database.deleted_at is None:
            memory[database.machine_id] += int(database.tier.memory * MB_OF_GB)
    return memory


@across_organizations(_WHY)
def count_by_machine(tx: Tx) -> Counter[int]:
    return Counter(each.machine_id for each in tx.all(tables.EVERY) if each.deleted_at is None)


@across_organizations(_WHY)
def describe_held(tx: Tx, machine_id: int) -> list[str]:
    """Name the databases whose data is on a machine, including those in the trash."""
    held = tx.all(tables.OF_MACHINE, machine_id=machine_id)
    names = [f"{each.name} (organization {each.org_id})" for each in held]
    return [f"databases {', '.join(names)}"] if names else []


@across_organizations(_WHY)
def give_up(tx: Tx, machine_id: int) -> None:
    """Give the databases of a lost machine to others, which find no data: they fail and can be restored or deleted."""
    target = machine_id
    for database in tx.all(tables.OF_MACHINE, machine_id=machine_id):
        target = placement.choose(tx, int(database.tier.memory * MB_OF_GB))
        of = {"org_id": database.org_id, "machine_id": target}
        tx.run(tables.MOVE, id=database.id, **of)
        tx.run(tables.MOVE_SERVERS, database_id=database.id, **of)
    tx.run(tables.MOVE_JOBS, before=machine_id, machine_id=target)


@across_organizations(_WHY)
def forwarded_ports(tx: Tx) -> list[tuple[int, int]]:
    """Return machine and port of each running database of another machine."""
    elsewhere = tx.all(tables.ELSEWHERE, machine_id=tx.env.machine.id)
    return [(each.machine_id, each.port) for each in elsewhere if each.host is None]
