"""The environment of units of work: settings, clock and keys."""

from __future__ import annotations

from dataclasses import field

from moorage.core.hooks import Hooks
from moorage.core.kit.clock import Clock
from moorage.core.kit.crypto import KeyRing, derive
from moorage.core.kit.records import dataclass
from moorage.settings import Settings


@dataclass(slots=True)
class ThisMachine:
    """Row of the machine that a process runs on, known after the process has joined the store.

    A process that runs no apps has none, and id 0 owns nothing on a store with machines.
    """

    id: int = 0
    epoch: int = 0  # fence: each start of the machine increases it
    has_others: bool = False  # whether the store has further machines, as of the last heartbeat


@dataclass(frozen=True)
class Env:
    settings: Settings
    clock: Clock
    ring: KeyRing
    session_key: bytes
    cursor_key: bytes
    app_key: bytes  # from which the random values of apps' variables are derived
    hooks: Hooks = field(default_factory=Hooks, compare=False)
    machine: ThisMachine = field(default_factory=ThisMachine, compare=False)

    @classmethod
    def make(cls, settings: Settings, clock: Clock, ring: KeyRing, session_secret: bytes) -> Env:
        return cls(
            settings=settings,
            clock=clock,
            ring=ring,
            session_key=derive(session_secret, "session"),
            cursor_key=derive(session_secret, "cursor"),
            app_key=derive(session_secret, "app"),
        )
