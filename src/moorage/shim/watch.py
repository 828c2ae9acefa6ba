"""Looking after a running app: what the kernel does not bound for us, and whether anybody still wants it to run."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from moorage.shim import ports, volume
from moorage.shim.run import OUT_OF_MEMORY, Run

if TYPE_CHECKING:
    from moorage.shim.keeper import Keeper

QUIET_S = 10.0
LOOK_S = 2.0  # at memory and disk, where nobody else does
CLOSE_LOOK_S = 0.5  # for one that has used more than half of its memory
STARTING_LOOK_S = 0.2
MB = 2**20
GRACE_S = 5.0


class Watch:
    """Watches one run."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._oom_kills = 0
        self._pause = LOOK_S if keeper.counts_memory or keeper.volume else QUIET_S
        self._is_ending = False

    async def run(self, run: Run) -> None:
        while True:
            await asyncio.sleep(self._next_pause())
            if run.verdict is not None:
                return
            self._look_for_folder()
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

    def _look_for_folder(self) -> None:
        """End with the app when the folder is gone, or is another's: then nobody knows of us any more."""
        if not self._keeper.home.is_ours:
            self._keeper.stop(GRACE_S)

    def _look_at_memory(self, run: Run) -> None:
        keeper = self._keeper
        if not keeper.counts_memory:
            self._tell_oom_kills(run)
            return
        most, held = keeper.spec.memory_mb * MB, keeper.memory_bytes()
        self._pause = CLOSE_LOOK_S if held > most // 2 else LOOK_S
        if held > most:
            run.end(OUT_OF_MEMORY.format(keeper.spec.memory_mb))

    def _tell_oom_kills(self, run: Run) -> None:
        """Say that a process was killed of an app that goes on without it."""
        kills = run.group.oom_kills()
        if kills > self._oom_kills:
            self._oom_kills = kills
            self._keeper.say(f"one of its processes was ended: {OUT_OF_MEMORY.format(self._keeper.spec.memory_mb)}")

    async def _look_at_disk(self, run: Run) -> None:
        disk = self._keeper.volume
        if disk is None or self._is_ending:
            return
        was_sealed = disk.is_sealed
        await disk.look()
        if disk.is_sealed == was_sealed or run.kept is None:
            return
        mb = self._keeper.spec.disk_mb
        code = volume.seal(run.kept.namespaces, disk.is_sealed, is_root=self._keeper.is_root)
        if code == 0:
            full = f"its disk is full ({mb} MB): /data is read-only now"
            self._keeper.say(full if disk.is_sealed else "/data is writable again")
        elif disk.is_sealed:
            self._end_for_disk(run, mb)

    def _end_for_disk(self, run: Run, mb: int) -> None:
        """End an app that holds files open for writing; it is started again with a disk that it can only read."""
        self._is_ending = True
        run.verdict = f"its disk is full ({mb} MB)"
        self._keeper.say(f"its disk is full ({mb} MB): it is started again, with /data read-only")
        run.terminate()
        asyncio.get_running_loop().call_later(GRACE_S, run.kill)
