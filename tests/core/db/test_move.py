"""State machines and `move`: every pair of states, and races."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil

import pytest
from tests.builders import make_user

import moorage
from moorage.accounts.identity import users
from moorage.accounts.identity.states import APPROVAL, Approval
from moorage.core.db.store import Database
from moorage.core.db.tx import move
from moorage.core.kit.machine import Machine
from moorage.errors import IllegalMove

pytestmark = [pytest.mark.anyio, pytest.mark.both_stores]


def all_machines() -> list[Machine]:  # type: ignore[type-arg]
    """Find every machine of the product, so that new ones are tested automatically."""
    machines = []
    for module in pkgutil.walk_packages(moorage.__path__, "moorage."):
        if module.name.endswith(".states"):
            loaded = importlib.import_module(module.name)
            machines += [value for value in vars(loaded).values() if isinstance(value, Machine)]
    return machines


@pytest.mark.parametrize("machine", all_machines(), ids=lambda machine: machine.name)
def test_every_state_can_be_reached_or_is_where_a_row_begins(machine: Machine) -> None:  # type: ignore[type-arg]
    reached = {target for targets in machine.moves.values() for target in targets}
    starts = machine.states - reached

    assert len(starts) <= 1
    assert machine.terminal <= reached


@pytest.mark.parametrize("at", list(Approval))
@pytest.mark.parametrize("to", list(Approval))
async def test_a_move_happens_exactly_where_the_table_has_it(db: Database, at: Approval, to: Approval) -> None:
    user = await make_user(db, status=at)

    try:
        await db.write(lambda tx: move(tx, APPROVAL, user, to=to))
        moved = True
    except IllegalMove:
        moved = False

    stored = await db.read(lambda tx: users.get(tx, user.id))
    assert moved == APPROVAL.allows(at, to)
    assert stored.status == (to if moved else at)


async def test_of_two_racing_moves_one_wins(db: Database) -> None:
    user = await make_user(db, status=Approval.PENDING)
    targets = [Approval.APPROVED, Approval.REJECTED] * 3

    outcomes = await asyncio.gather(
        *(db.write(lambda tx, to=to: move(tx, APPROVAL, user, to=to)) for to in targets[:2]),  # type: ignore[misc]
        return_exceptions=True,
    )

    # Rejected to approved is a valid transition, too, so one or both may have succeeded.
    refused = [outcome for outcome in outcomes if isinstance(outcome, IllegalMove)]
    assert len(refused) <= 1
    stored = await db.read(lambda tx: users.get(tx, user.id))
    assert stored.status in (Approval.APPROVED, Approval.REJECTED)


def test_a_machine_with_a_state_that_has_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="without a row"):
        Machine("half", {Approval.PENDING: {Approval.APPROVED}})
