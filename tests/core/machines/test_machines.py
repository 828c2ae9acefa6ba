"""Machines of a store: identity, lease, fence, placement and removal."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from moorage.core.db.query import Command, arg
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.machines import service
from moorage.core.machines.placement import COMMITTED, Placement
from moorage.core.machines.service import NewMachine, Seat
from moorage.core.machines.states import MachineStatus
from moorage.core.machines.tables import Machine, machine
from moorage.errors import Conflict, LostLease

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


def described(key: str, name: str = "harbor", boot: str = "boot 1", memory_mb: int = 8192) -> NewMachine:
    return NewMachine(key, name, None, "{}", 2, memory_mb, boot)


async def join(db: Database, key: str, **fields: Any) -> Seat:
    seat = await db.write(partial(service.join, new=described(key, **fields)))
    assert seat is not None
    return seat


async def rows(db: Database) -> dict[str, Machine]:
    return {row.name: row for row in (await db.read(service.by_id)).values()}


async def be(db: Database, seat: Seat) -> None:
    db.env.machine.id, db.env.machine.epoch = seat.id, seat.epoch


async def silence(db: Database, machine_id: int) -> None:
    """Let the last heartbeat of a machine be older than its lease."""
    column = machine.c.heartbeat_at
    command = Command(
        update(machine).where(machine.c.id == arg("id")).values(heartbeat_at=column - 2 * service.LEASE_MS)
    )
    await db.write(lambda tx: tx.run(command, id=machine_id))


def beat(tx: Tx) -> object:
    return service.beat(tx, load_milli=100, facts="", address="10.0.0.1:8084")


async def test_a_machine_keeps_its_row_across_starts_and_gets_a_new_epoch(db: Database) -> None:
    first = await join(db, "a")

    second = await join(db, "a")

    assert (second.id, second.epoch) == (first.id, first.epoch + 1)
    assert [row.status for row in (await rows(db)).values()] == [MachineStatus.ACTIVE]


async def test_machines_of_one_name_get_numbers(db: Database) -> None:
    if db.dialect == "sqlite":
        assert (await join(db, "a")).id == (await join(db, "b")).id  # the store has one machine
        return
    for key in ("a", "b", "c"):
        await join(db, key)

    assert sorted(await rows(db)) == ["harbor", "harbor-2", "harbor-3"]


async def test_a_copy_of_a_data_folder_does_not_join_while_the_original_runs(db: Database) -> None:
    seat = await join(db, "a")

    copied = await db.write(partial(service.join, new=described("a", boot="boot 2")))

    if db.dialect == "sqlite":
        assert copied is not None
        return
    assert copied is None
    await silence(db, seat.id)
    taken_over = await db.write(partial(service.join, new=described("a", boot="boot 2")))
    assert taken_over is not None
    await be(db, seat)
    assert await db.write(beat) is None


async def test_a_machine_with_an_expired_lease_writes_nothing_until_it_joins_again(db: Database) -> None:
    if db.dialect == "sqlite":
        return
    seat = await join(db, "a")
    await be(db, seat)
    assert await db.write(beat) is not None
    assert not await db.write(partial(service.expire, machine_id=seat.id))
    await silence(db, seat.id)

    assert await db.write(partial(service.expire, machine_id=seat.id))

    assert await db.write(beat) is None
    with pytest.raises(LostLease):
        await db.write(service.hold)
    await be(db, await join(db, "a"))
    await db.write(service.hold)
    assert (await rows(db))["harbor"].status == MachineStatus.ACTIVE


async def test_placement_prefers_free_memory_then_load(db: Database) -> None:
    if db.dialect == "sqlite":
        return
    small, large = await join(db, "a", name="small", memory_mb=4096), await join(db, "b", name="large")
    db.env.hooks.add(COMMITTED, "test", lambda tx: {large.id: 3000})
    await be(db, large)
    await db.write(partial(service.beat, load_milli=900, facts="", address=None))

    def place(tx: Tx) -> list[int]:
        placement = Placement(tx)
        return [placement.choose(1024) for _ in range(4)]

    # 5192 MB are free on the large one, then 4168: as many steps as on the small one, which has less load.
    assert await db.read(place) == [large.id, small.id, large.id, small.id]


async def test_a_draining_machine_gets_nothing_new(db: Database) -> None:
    if db.dialect == "sqlite":
        return
    one, two = await join(db, "a", name="one"), await join(db, "b", name="two")
    await db.write(lambda tx: service.set_draining(tx, service.get(tx, "one"), draining=True))

    assert await db.read(lambda tx: Placement(tx).choose(1)) == two.id

    await db.write(lambda tx: service.set_draining(tx, service.get(tx, "one"), draining=False))
    assert await db.read(lambda tx: [Placement(tx).choose(1)]) == [one.id]


async def test_only_a_machine_that_is_gone_and_has_no_data_is_removed(db: Database) -> None:
    seat = await join(db, "a")
    row = (await rows(db))["harbor"]
    with pytest.raises(Conflict, match="still runs"):
        await db.write(partial(service.remove, row=row))
    await silence(db, seat.id)
    await db.write(partial(service.expire, machine_id=seat.id))
    db.env.hooks.add(service.STATEFUL, "test", lambda tx, machine_id: ["databases orders"])

    with pytest.raises(Conflict, match="databases orders"):
        await db.write(partial(service.remove, row=row))

    await db.write(partial(service.remove, row=row, is_lost=True))
    assert await rows(db) == {}
