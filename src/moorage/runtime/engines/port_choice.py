"""Choice of an app's port where the app does not listen on PORT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

# Ports on which frameworks and tutorials serve HTTP, in order of preference.
COMMON = (
    3000,
    8000,
    8080,
    5000,
    4000,
    80,
    5173,
    8888,
    7860,
    8501,
    4200,
    4321,
    3001,
    8081,
    1337,
    9000,
    4173,
    3333,
    8787,
)
COMMON_GRACE_S = 1.5  # for PORT: some apps open a port for metrics before they listen on PORT
OTHER_GRACE_S = 5.0


class PortChoice:
    """Collects the other ports of one run, and calls `on_choice` after a grace."""

    def __init__(self, on_choice: Callable[[int, Collection[int]], None]) -> None:
        self._on_choice = on_choice
        self._ports: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, port: int) -> None:
        if port in self._ports:
            return
        is_sooner = port in COMMON and not self._ports.intersection(COMMON)
        if self._timer is None or is_sooner:
            self._cancel_timer()
            grace_s = COMMON_GRACE_S if port in COMMON else OTHER_GRACE_S
            self._timer = asyncio.get_running_loop().call_later(grace_s, self._choose)
        self._ports.add(port)

    def cancel(self) -> None:
        """Forget the ports: the app listens on PORT, or has ended."""
        self._cancel_timer()
        self._ports.clear()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _choose(self) -> None:
        self._timer = None
        self._on_choice(preferred(self._ports), sorted(self._ports))


def preferred(ports: Collection[int]) -> int:
    """Return the first common port, or the lowest one."""
    return next((port for port in COMMON if port in ports), min(ports))


def describe(chosen: int, ports: Collection[int]) -> str:
    if len(ports) == 1:
        return f"it listens on port {chosen} and not on PORT: requests go to {chosen}. Read the variable PORT to choose"
    numbers = ", ".join(map(str, ports))
    advice = "Listen on PORT, or set the variable PORT to another one, to choose"
    return f"it listens on the ports {numbers} and not on PORT: requests go to {chosen}. {advice}"
