"""Identity of the machine that a process runs on, known after the process has joined the store."""

from __future__ import annotations

from moorage.core.kit.records import dataclass


@dataclass(slots=True)
class ThisMachine:
    """Row of this machine. A process that runs no apps has none, and id 0 owns nothing on a store with machines."""

    id: int = 0
    epoch: int = 0  # fence: each start of the machine increases it
    has_others: bool = False  # whether the store has further machines, as of the last heartbeat
