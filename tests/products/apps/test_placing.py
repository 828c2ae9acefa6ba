"""Replicas on several machines: which are replaced, which are drained, and where requests go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moorage.core.machines.states import MachineStatus
from moorage.core.machines.tables import Machine
from moorage.products.apps import service
from moorage.products.apps.machines.placing import Fleet
from moorage.products.apps.service import DRAIN_MS, Difference, View
from moorage.products.apps.states import ReplicaStatus
from moorage.products.apps.tables import Candidate, LiveApp, Replica
from moorage.runtime.engines.ports import Address

ONE, TWO, UNKNOWN = 1, 2, 9
DEPLOYMENT = 5
APP = LiveApp("shop", 1, 7, None, DEPLOYMENT, 1, False, None, "mini", None)


def machine(machine_id: int, status: MachineStatus = MachineStatus.ACTIVE) -> Machine:
    return Machine(
        machine_id, str(machine_id), f"m{machine_id}", status, None, "{}", 2, 8192, 0, "", "", 1, 0, None, 0, 0
    )


def replica(number: int, on: int, status: str = "ready", deployment_id: int = DEPLOYMENT) -> Replica:
    return Replica(number, 1, 7, None, deployment_id, "", status, 20_000 + number, None, None, 0, 0, on)


def view(*rows: Replica, two: MachineStatus = MachineStatus.ACTIVE, app: LiveApp | None = APP, **fields: Any) -> View:
    machines = {row.id: row for row in (machine(ONE), machine(TWO, two))}
    return View(list(rows), [app] if app is not None else [], fields.get("candidates", []), Fleet(machines, ONE))


def summary(changes: Difference) -> tuple[int, list[tuple[int, int]]]:
    """Return the number of replicas to add, and id and time of each one to drain."""
    return sum(lacking for _, lacking in changes.missing), [(row.id, ms) for row, ms in changes.surplus]


def test_a_replica_of_another_machine_counts_like_an_own_one() -> None:
    assert summary(service.difference(view(replica(1, TWO)))) == (0, [])


def test_a_replica_with_an_address_of_its_own_is_reached_there_from_each_machine() -> None:
    rows = [replace(replica(number, on), host="10.1.2.3") for number, on in ((1, ONE), (2, TWO))]

    assert service.addresses(view(*rows), DEPLOYMENT) == ("10.1.2.3:20001", "10.1.2.3:20002")
    assert rows[0].address == Address(20_001, "10.1.2.3")


def test_other_machines_are_those_that_are_not_lost() -> None:
    assert view().fleet.others == ["m2"]
    assert view(two=MachineStatus.GONE).fleet.others == []


@pytest.mark.parametrize("on", [TWO, UNKNOWN])
def test_a_replica_of_a_machine_that_is_gone_is_replaced_at_once(on: int) -> None:
    seen = view(replica(1, on), two=MachineStatus.GONE)

    assert summary(service.difference(seen)) == (1, [(1, 0)])
    assert service.addresses(seen, DEPLOYMENT) == ()


def test_a_replica_on_a_draining_machine_stays_until_its_replacement_is_ready() -> None:
    leaving = replica(1, TWO)

    assert summary(service.difference(view(leaving, two=MachineStatus.DRAINING))) == (1, [])
    starting = view(leaving, replica(2, ONE, "starting"), two=MachineStatus.DRAINING)
    assert summary(service.difference(starting)) == (0, [])
    replaced = view(leaving, replica(2, ONE), two=MachineStatus.DRAINING)
    assert summary(service.difference(replaced)) == (0, [(1, DRAIN_MS)])


def test_nothing_leaves_a_draining_machine_while_no_other_is_active() -> None:
    machines = {ONE: machine(ONE, MachineStatus.DRAINING)}
    seen = View([replica(1, ONE)], [APP], [], Fleet(machines, ONE))

    assert summary(service.difference(seen)) == (0, [])


@pytest.mark.parametrize("two", [MachineStatus.GONE, MachineStatus.DRAINING])
def test_an_app_with_a_volume_stays_with_its_machine(two: MachineStatus) -> None:
    stateful = LiveApp("store", 1, 7, None, DEPLOYMENT, 1, False, None, "mini", 10)

    assert summary(service.difference(view(replica(1, TWO), two=two, app=stateful))) == (0, [])


def test_replicas_of_a_release_in_progress_are_given_up_with_their_machine() -> None:
    candidate = Candidate("uuid", 1, 7, 6)
    rows = (replica(1, TWO, "starting", 6), replica(2, ONE, "starting", 6))
    seen = view(*rows, two=MachineStatus.GONE, app=None, candidates=[candidate])

    assert summary(service.difference(seen)) == (0, [(1, 0)])


def test_requests_go_to_ready_replicas_of_all_machines_that_answer() -> None:
    seen = view(replica(1, ONE), replica(2, TWO), replica(3, TWO, ReplicaStatus.STARTING))

    assert service.addresses(seen, DEPLOYMENT) == ("127.0.0.1:20001", "machine-2:20002")
