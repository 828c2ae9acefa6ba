"""Notice when the system clock was set, and keep a wrong clock from doing lasting harm.

The wall clock is compared with the time since boot, every second and over restarts. A step is logged and counted. After
a step forward, times that lie further back than before the step are not trusted for a day: nothing is deleted for its
age by the new time until then. After a step back, times that were stored meanwhile are corrected.
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
from moorage.core.telemetry import Telemetry
from moorage.platform.clock import future_times

LOOK_S = 1.0
STEP_MS = 2_000  # A clock that is slewed gains far less from one look to the next.
GAP_MS = HOUR_MS  # A platform that was down longer cannot tell that from a clock that is ahead.
DISTRUST_MS = DAY_MS
SAVE_EVERY_MS = MINUTE_MS
CORRECT_EVERY_MS = HOUR_MS  # Another machine's clock may have been ahead, and no step was seen here.
SHOWN = 20  # corrections that are logged one by one
FACT = "clock"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mark(msgspec.Struct, frozen=True):
    """What the clocks said when a process last looked."""

    wall: int
    steady: int
    boot: str  # The time since boot can be compared within one boot only.
    distrusted: int
    trusted_at: int  # the time since boot at which the clock is trusted again


class ClockWatch:
    def __init__(
        self,
        db: Database,
        telemetry: Telemetry,
        *,
        steady: Callable[[], int] = steady_ms,
        boot: str | None = None,
    ) -> None:
        self.on_step: list[Callable[[], None]] = []  # called after the clock was set
        self._db = db
        self._telemetry = telemetry
        self._steady = steady
        self._boot = boot_id() if boot is None else boot
        self._wall, self._at = self._read()
        self._trusted_at = 0
        self._save_at = self._correct_at = self._at

    async def start(self) -> None:
        """Compare with the last look of the process before this one, and correct what a clock ahead has stored."""
        mark = await self._db.read(_find_mark)
        self._wall, self._at = self._read()
        if mark is not None:
            self._compare(mark)
        await self._correct()
        await self._save()

    async def run(self) -> None:
        """Look every second until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the loop outlives a store that is away for a moment
                self._telemetry.crashed(None, error, where="clock")

    async def look(self) -> int:
        """Return by how many milliseconds the clock was set since the last look; 0 where it was not."""
        before, (wall, at) = (self._wall, self._at), self._read()
        step = (wall - before[0]) - (at - before[1])
        self._wall, self._at = wall, at
        is_step = abs(step) >= STEP_MS
        if is_step:
            self._stepped(step, before[0] + at - before[1])
        self._trust_again()
        if (is_step and step < 0) or at >= self._correct_at:
            await self._correct()
        if is_step or at >= self._save_at:
            await self._save()
        return step if is_step else 0

    def _read(self) -> tuple[int, int]:
        """Read both clocks at the same moment: a process that is stopped in between reads them again."""
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
            self._stepped(step, mark.wall + elapsed)
        elif gap >= GAP_MS:
            self._distrust(gap)
            self._telemetry.log.warning(
                "the platform was down for long, or the clock is ahead: check it; for a day nothing is deleted by age",
                last_seen=to_wire(mark.wall),
                now=to_wire(self._wall),
            )

    def _stepped(self, step: int, expected: int) -> None:
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

    def _trust_again(self) -> None:
        clock = self._db.env.clock
        if clock.distrusted_ms and self._at >= self._trusted_at:
            self._telemetry.log.warning(
                "the clock is trusted again: what is past its retention is deleted from now on",
                set_forward_s=clock.distrusted_ms // 1000,
                now=to_wire(self._wall),
            )
            clock.distrusted_ms = 0
            self._save_at = self._at

    async def _correct(self) -> None:
        self._correct_at = self._at + CORRECT_EVERY_MS
        self._warn(await self._db.write(future_times.end_sessions))
        for rule in await self._db.read(future_times.find_wrong):
            while done := await self._db.write(partial(future_times.correct, rule=rule)):
                self._warn(done)

    def _warn(self, done: list[Correction]) -> None:
        log = self._telemetry.log
        for each in done[:SHOWN]:
            log.warning(
                "corrected a time that a wrong clock had stored",
                row=each.what,
                column=each.column,
                before=to_wire(each.before),
                after=to_wire(each.after),
            )
        if len(done) > SHOWN:
            log.warning("corrected more such times", column=done[0].column, count=len(done) - SHOWN)

    async def _save(self) -> None:
        self._save_at = self._at + SAVE_EVERY_MS
        mark = Mark(self._wall, self._at, self._boot, self._db.env.clock.distrusted_ms, self._trusted_at)
        text = msgspec.json.encode(mark).decode()
        await self._db.write(lambda tx: users.set_fact(tx, FACT, text))


def boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:  # Without it every restart counts as another boot.
        return ""


@across_organizations("the clock is the platform's")
def _find_mark(tx: Tx) -> Mark | None:
    text = users.find_fact(tx, FACT)
    try:
        return msgspec.json.decode(text, type=Mark) if text is not None else None
    except msgspec.MsgspecError:  # of a version before or after this one
        return None
