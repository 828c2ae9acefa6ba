"""Detect steps of the system clock and limit the damage of a wrong clock.

The wall clock is compared with the time since boot, every second and across restarts. A step is logged and counted.
After a step forward, the clock is distrusted for a day: nothing is deleted for its age by the new time until then.
After a step back, times that were stored meanwhile are corrected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from moorage.accounts.identity import users
from moorage.core.db.scope import across_organizations
from moorage.core.db.store import Database
from moorage.core.db.tx import Tx
from moorage.core.jobs.corrections import Correction
from moorage.core.kit.clock import DAY_MS, HOUR_MS, MINUTE_MS, SKEW_MS, steady_ms, to_wire
from moorage.core.kit.decoding import decode
from moorage.core.telemetry import Telemetry
from moorage.platform.clock import future_times

CHECK_INTERVAL_S = 1.0
STEP_MS = 2_000  # A slewed clock gains far less between two checks.
GAP_MS = HOUR_MS  # After a longer downtime the gap may also be a clock that is ahead.
DISTRUST_MS = DAY_MS
SAVE_EVERY_MS = MINUTE_MS
CORRECT_EVERY_MS = HOUR_MS  # The clock of another machine may have been ahead, without a step here.
MAX_LOGGED_CORRECTIONS = 20
FACT = "clock"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mark(msgspec.Struct, frozen=True):
    """Readings of the clocks at the last check, stored across restarts."""

    wall: int
    steady: int
    boot: str  # boot id: times since boot are comparable within one boot only
    distrusted: int
    trusted_at: int  # time since boot at which the clock is trusted again


class ClockWatch:
    def __init__(
        self,
        db: Database,
        telemetry: Telemetry,
        *,
        steady: Callable[[], int] = steady_ms,
        boot: str | None = None,
    ) -> None:
        self.on_step: list[Callable[[], None]] = []  # called after a step
        self._db = db
        self._telemetry = telemetry
        self._steady = steady
        self._boot = boot_id() if boot is None else boot
        self._wall, self._at = self._read()
        self._trusted_at = 0
        self._save_at = self._correct_at = self._at

    async def start(self) -> None:
        """Compare with the last check of the previous process; correct stored times."""
        mark = await self._db.read(_find_mark)
        self._wall, self._at = self._read()
        if mark is not None:
            self._compare(mark)
        await self._correct()
        await self._save()

    async def run(self) -> None:
        """Check every second until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            try:
                await self.check()
            except Exception as error:  # noqa: BLE001 - the loop survives an unreachable store
                self._telemetry.crashed(None, error, where="clock")

    async def check(self) -> int:
        """Return the step of the clock since the last check in milliseconds, or 0."""
        before, (wall, at) = (self._wall, self._at), self._read()
        step = (wall - before[0]) - (at - before[1])
        self._wall, self._at = wall, at
        is_step = abs(step) >= STEP_MS
        if is_step:
            self._handle_step(step, before[0] + at - before[1])
        self._end_distrust()
        if (is_step and step < 0) or at >= self._correct_at:
            await self._correct()
        if is_step or at >= self._save_at:
            await self._save()
        return step if is_step else 0

    def _read(self) -> tuple[int, int]:
        """Read both clocks at once: repeat if the process was suspended in between."""
        while True:
            at, wall, after = self._steady(), self._db.env.clock.now(), self._steady()
            if after - at < STEP_MS // 4:
                return wall, at

    def _compare(self, mark: Mark) -> None:
        clock, gap = self._db.env.clock, self._wall - mark.wall
        is_same_boot = bool(self._boot) and mark.boot == self._boot and mark.steady <= self._at
        clock.distrusted_ms = mark.distrusted
        self._trusted_at = mark.trusted_at if is_same_boot else self._at + DISTRUST_MS
        elapsed = self._at - mark.steady if is_same_boot else max(gap, 0)
        step = gap - elapsed
        if abs(step) >= (STEP_MS if is_same_boot else SKEW_MS):
            self._handle_step(step, mark.wall + elapsed)
        elif gap >= GAP_MS:
            self._distrust(gap)
            self._telemetry.log.warning(
                "the platform was down for long, or the clock is ahead: check it; for a day nothing is deleted by age",
                last_seen=to_wire(mark.wall),
                now=to_wire(self._wall),
            )

    def _handle_step(self, step: int, expected: int) -> None:
        direction = "forward" if step > 0 else "back"
        self._telemetry.metrics.clock_steps.labels(direction).inc()
        self._telemetry.log.warning(
            f"the clock was set {direction}",
            by_s=round(abs(step) / 1000, 3),
            expected=to_wire(expected),
            now=to_wire(self._wall),
        )
        if step > 0:
            self._distrust(step)
        else:
            clock = self._db.env.clock
            clock.distrusted_ms = max(clock.distrusted_ms + step, 0)
        for call in self.on_step:
            call()

    def _distrust(self, by_ms: int) -> None:
        self._db.env.clock.distrusted_ms += by_ms
        self._trusted_at = self._at + DISTRUST_MS

    def _end_distrust(self) -> None:
        clock = self._db.env.clock
        if clock.distrusted_ms and self._at >= self._trusted_at:
            self._telemetry.log.warning(
                "the clock is trusted again: expired data is deleted from now on",
                set_forward_s=clock.distrusted_ms // 1000,
                now=to_wire(self._wall),
            )
            clock.distrusted_ms = 0
            self._save_at = self._at

    async def _correct(self) -> None:
        self._correct_at = self._at + CORRECT_EVERY_MS
        self._log(await self._db.write(future_times.end_sessions))
        for rule in await self._db.read(future_times.find_wrong):
            while corrections := await self._db.write(partial(future_times.correct, rule=rule)):
                self._log(corrections)

    def _log(self, corrections: list[Correction]) -> None:
        log = self._telemetry.log
        for each in corrections[:MAX_LOGGED_CORRECTIONS]:
            log.warning(
                "corrected a time that a wrong clock had stored",
                row=each.what,
                column=each.column,
                before=to_wire(each.before),
                after=to_wire(each.after),
            )
        if len(corrections) > MAX_LOGGED_CORRECTIONS:
            log.warning(
                "corrected more such times",
                column=corrections[0].column,
                count=len(corrections) - MAX_LOGGED_CORRECTIONS,
            )

    async def _save(self) -> None:
        self._save_at = self._at + SAVE_EVERY_MS
        mark = Mark(self._wall, self._at, self._boot, self._db.env.clock.distrusted_ms, self._trusted_at)
        text = msgspec.json.encode(mark).decode()
        await self._db.write(lambda tx: users.set_fact(tx, FACT, text))


def boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:  # Then every restart counts as another boot.
        return ""


@across_organizations("the clock is the platform's")
def _find_mark(tx: Tx) -> Mark | None:
    text = users.find_fact(tx, FACT)
    try:
        return decode(text, Mark) if text is not None else None
    except msgspec.MsgspecError:  # written by another version
        return None
