"""Health checks of an image's HEALTHCHECK command, with its own interval and retries."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from moorage.runtime.engines.local_specs import ShimApp
from moorage.runtime.engines.ports import Health

STOP_GRACE_S = 10.0  # between the stop signal and the kill of an app that stays unhealthy
STARTING_INTERVAL_S = 1.0  # until the first success, as long as the image's own interval is not shorter


class CheckedRun(Protocol):
    async def check_health(self, timeout_s: float) -> int | None: ...

    def terminate_for(self, reason: str) -> None: ...

    def kill(self) -> None: ...


class HealthWatch:
    """Checks one run until it is cancelled; calls `on_change` with the new health and a line for the log.

    A run is healthy at the first success. It becomes unhealthy after several failures in a row, or without a success in
    the start period and the time that these failures take. A run that stays unhealthy is ended, and so restarted.
    """

    def __init__(self, spec: ShimApp, on_change: Callable[[Health, str], None]) -> None:
        self._spec = spec
        self._on_change = on_change
        self._health: Health = "starting"
        self._failures = 0
        self._unhealthy_since = 0.0

    async def run(self, run: CheckedRun) -> None:
        spec, began = self._spec, time.monotonic()
        self._on_change("starting", "")
        with contextlib.suppress(OSError):  # The run has ended.
            while True:
                code = await run.check_health(spec.health_timeout_s)
                self._note(code, time.monotonic() - began)
                if self._health == "unhealthy" and time.monotonic() - self._unhealthy_since >= spec.health_restart_s:
                    await self._end(run)
                    return
                is_starting = self._health == "starting"
                await asyncio.sleep(min(spec.health_interval_s, STARTING_INTERVAL_S if is_starting else float("inf")))

    async def _end(self, run: CheckedRun) -> None:
        """End a run; the supervisor cancels this when the run has ended."""
        run.terminate_for(f"it was unhealthy for {self._spec.health_restart_s:g} s")
        await asyncio.sleep(STOP_GRACE_S)
        run.kill()

    def _note(self, code: int | None, age_s: float) -> None:
        spec = self._spec
        if code == 0:
            self._failures = 0
            self._move("healthy", "it is healthy again" if self._health == "unhealthy" else "")
            return
        self._failures += 1
        # Checks of a start are more frequent than the image expects, so the time decides.
        start_s = spec.health_start_s + spec.health_interval_s * spec.health_retries
        may_start = self._health == "starting" and age_s < start_s
        if self._failures >= spec.health_retries and not may_start:
            why = f"took longer than {spec.health_timeout_s:g} s" if code is None else f"ended with exit code {code}"
            self._move("unhealthy", f"it is unhealthy: the HEALTHCHECK of the image {why}")

    def _move(self, health: Health, line: str) -> None:
        if health != self._health:
            self._health = health
            self._unhealthy_since = time.monotonic()
            self._on_change(health, line)
