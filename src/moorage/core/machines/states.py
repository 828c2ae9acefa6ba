"""States of a machine."""

from __future__ import annotations

from enum import StrEnum

from moorage.core.kit.machine import Machine as StateMachine


class MachineStatus(StrEnum):
    ACTIVE = "active"  # runs apps and gets new ones
    DRAINING = "draining"  # gets nothing new; its stateless apps move to other machines
    GONE = "gone"  # its lease expired: others run its stateless apps; its databases and volumes wait for it


M = MachineStatus
MACHINE = StateMachine(
    "machine",
    {
        M.ACTIVE: {M.DRAINING, M.GONE},
        M.DRAINING: {M.ACTIVE, M.GONE},
        M.GONE: {M.ACTIVE},
    },
)
