"""Whether a check failed because of the target, or because this machine has lost its own network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.core.telemetry import Telemetry
from moorage.products.monitors.probing.beats import Outcome
from moorage.products.monitors.probing.pace import Seldom

KEPT_S = 5.0
ANSWER_S = 10.0

Ask = Callable[[], Awaitable[bool]]


class Doubt:
    """Asks a canary about checks that got nowhere; for a few seconds its answer holds for others too."""

    def __init__(self, ask: Ask | None, telemetry: Telemetry, steady: Callable[[], float]) -> None:
        self._ask = ask
        self._telemetry = telemetry
        self._steady = steady
        self._seldom = Seldom(steady)
        self._answer = True
        self._asked_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def is_ours(self, outcome: Outcome) -> bool:
        """Tell whether a result says something about this machine instead of the target."""
        if self._ask is None or outcome.phase not in ("dns", "connect"):
            return False
        async with self._one_at_a_time:
            if self._steady() - self._asked_at >= KEPT_S:
                self._answer = await self._ask_within(self._ask)
                self._asked_at = self._steady()
        if not self._answer and self._seldom("down"):
            self._telemetry.log.warning("results of monitors do not count: the canary cannot be reached either")
        return not self._answer

    async def _ask_within(self, ask: Ask) -> bool:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await ask()
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - a canary that is broken itself must not hide what targets do
            self._telemetry.crashed(None, error, where="canary")
            return True
