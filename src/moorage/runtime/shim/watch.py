"""Looking after a running app: what the kernel does not bound for us."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from moorage.runtime.shim import ports
from moorage.runtime.shim.run import OUT_OF_MEMORY, Run
from moorage.runtime.shim.storage import volume
from moorage.runtime.shim.storage.reserve import Reserve

if TYPE_CHECKING:
    from moorage.runtime.shim.supervisor import Keeper

QUIET_S = 10.0
LOOK_S = 2.0  # at memory and disk, where nobody else does
SERVER_LOOK_S = 5.0  # at the disk of a server: the size of its files is bounded
CLOSE_LOOK_S = 0.5  # for one that has used more than half of its memory, and while the disk is nearly full
NO_ROOM = "the disk of this machine is nearly full"
STARTING_LOOK_S = 0.2
MB = 2**20
GRACE_S = 5.0


class Watch:
    """Watches one run."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._oom_kills = 0
        self._usual_pause = _usual_pause(keeper)
        self._pause = self._usual_pause
        self._is_ending = False
        self._is_sealed = keeper.is_sealed  # It was started so.

    async def run(self, run: Run) -> None:
        while True:
            await asyncio.sleep(self._next_pause())
            if run.verdict is not None:
                return
            self._pause = self._usual_pause
            with contextlib.suppress(OSError):  # What is looked at may have ended; and nothing may stop the watching.
                self._look_for_listener()
                self._look_at_memory(run)
                await self._look_at_disk(run)

    def _next_pause(self) -> float:
        return STARTING_LOOK_S if self._may_listen_soon else self._pause

    @property
    def _may_listen_soon(self) -> bool:
        """Whether nobody but us would notice that it listens: a door tells by itself."""
        keeper = self._keeper
        return not (keeper.spec.is_boxed or keeper.spec.is_once or keeper.is_listening)

    def _look_for_listener(self) -> None:
        keeper = self._keeper
        if self._may_listen_soon and ports.count(keeper.port, ports.LISTEN):
            keeper.opened()

    def _look_at_memory(self, run: Run) -> None:
        keeper = self._keeper
        if not keeper.counts_memory:
            self._tell_oom_kills(run)
            return
        most, held = keeper.spec.memory_mb * MB, keeper.memory_bytes()
        if held > most // 2:
            self._pause = CLOSE_LOOK_S
        if held > most:
            run.end(OUT_OF_MEMORY.format(keeper.spec.memory_mb))

    def _tell_oom_kills(self, run: Run) -> None:
        """Say that a process was killed of an app that goes on without it."""
        kills = run.group.oom_kills()
        if kills > self._oom_kills:
            self._oom_kills = kills
            self._keeper.say(f"one of its processes was ended: {OUT_OF_MEMORY.format(self._keeper.spec.memory_mb)}")

    async def _look_at_disk(self, run: Run) -> None:
        disk, reserve = self._keeper.volume, self._keeper.reserve
        if disk is None or reserve is None or self._is_ending:
            return
        reserve.measure()
        reserve.note(disk.used, disk.looked_at)
        await disk.look(run.group.processes, drop=reserve.step)
        reserve.note(disk.used, disk.looked_at)
        if reserve.is_near:
            self._pause = CLOSE_LOOK_S
        if reserve.is_counted:
            reserve.look(run.group.processes())
        if self._keeper.spec.is_server:
            self._judge_server(run, disk, reserve)
        elif run.kept is not None and self._keeper.is_sealed != self._is_sealed:
            self._seal(run, run.kept.namespaces, self._keeper.is_sealed)

    def _judge_server(self, run: Run, disk: volume.Volume, reserve: Reserve) -> None:
        """End a server that fills the disk with temporary files; its data stays, so the same data ends it only once."""
        if reserve.is_sprinting():
            run.end(f"it wrote too much at once: {NO_ROOM}")
        elif disk.is_full and not self._keeper.was_full:
            run.end(f"its files took more than {self._keeper.spec.disk_mb * volume.SERVER_SHARE} MB of disk")
        self._keeper.was_full = disk.is_full

    def _seal(self, run: Run, namespaces: tuple[int, int], on: bool) -> None:
        code = volume.seal(namespaces, on, is_root=self._keeper.is_root)
        why = self._keeper.why_sealed
        if code == 0:
            self._is_sealed = on
            self._keeper.say(f"{why}: /data is read-only now" if on else "/data is writable again")
        elif on:
            self._end_for_disk(run, why)

    def _end_for_disk(self, run: Run, why: str) -> None:
        """End an app that holds files open for writing; it is started again with a disk that it can only read.

        What it had deleted and still held open is free by then; if that is enough, it can write again.
        """
        self._is_ending = True
        run.verdict = why
        self._keeper.say(f"{why}, and files are open for writing: it is started again")
        run.terminate()
        asyncio.get_running_loop().call_later(GRACE_S, run.kill)


def _usual_pause(keeper: Keeper) -> float:
    if keeper.counts_memory:
        return LOOK_S
    if keeper.volume is None:
        return QUIET_S
    return SERVER_LOOK_S if keeper.spec.is_server else LOOK_S
