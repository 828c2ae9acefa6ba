"""Polling of an app's resources, for limits that the kernel does not enforce."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Protocol

from moorage.runtime.engines.local_specs import ShimRun, ShimServer, ShimSpec
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.shim import ports
from moorage.runtime.shim.run import OUT_OF_MEMORY, Run
from moorage.runtime.shim.storage import volume
from moorage.runtime.shim.storage.reserve import DiskReserve
from moorage.runtime.shim.storage.volume import Volume

OOM_CHECK_INTERVAL_S = 10.0  # if only OOM kills have to be reported
USAGE_CHECK_INTERVAL_S = 2.0  # of memory and disk that no kernel limit bounds
SERVER_DISK_CHECK_INTERVAL_S = 5.0  # longer, because RLIMIT_FSIZE bounds a server's files
CLOSE_CHECK_INTERVAL_S = 0.5  # above half of the memory limit, and while the machine's disk is nearly full
LISTEN_CHECK_INTERVAL_S = 0.2
MACHINE_DISK_FULL = "the disk of this machine is nearly full"
CHANGES_WARNING = (
    "it writes to its application folder: these files are in memory, count with /tmp, and are lost when it is started "
    "or deployed again. Set `disk` and write to /data to keep files"
)
CHANGES_CHECK_INTERVAL_S, CHANGES_CLOSE_S = 1.0, 60.0  # interval until the warning, in the first minute of a run
MB = 2**20
RESTART_GRACE_S = 5.0


class WatchedReplica(Protocol):
    """The state and methods of the supervisor that polling needs."""

    spec: ShimSpec
    assigned_port: int
    port: int
    volume: Volume | None
    reserve: DiskReserve | None
    was_full: bool
    is_root: bool
    is_listening: bool

    @property
    def is_read_only(self) -> bool: ...

    @property
    def read_only_reason(self) -> str: ...

    @property
    def polls_memory(self) -> bool: ...

    def memory_bytes(self) -> int: ...

    def on_listening(self) -> None: ...

    def on_port_used(self) -> None: ...

    def on_other_ports(self, port_numbers: Collection[int]) -> None: ...

    def log(self, text: str) -> None: ...


class ResourceWatch:
    """Polls one run."""

    def __init__(self, supervisor: WatchedReplica) -> None:
        self._supervisor = supervisor
        self._began = time.monotonic()
        self._oom_kills = 0
        self._usual_interval = _usual_interval(supervisor)
        self._interval = self._usual_interval
        self._is_restarting = False
        self._has_warned = isinstance(supervisor.spec, ShimRun)  # Files of a one-off run are not expected to last.
        self._is_read_only = supervisor.is_read_only  # as the run was started

    async def run(self, run: Run) -> None:
        while True:
            await asyncio.sleep(LISTEN_CHECK_INTERVAL_S if self._polls_for_listener else self._next_interval)
            if run.verdict is not None:
                return
            self._interval = self._usual_interval
            with contextlib.suppress(OSError):  # A process may exit while it is inspected; polling continues.
                self._check_listener(run)
                self._check_changes(run)
                self._check_memory(run)
                await self._check_disk(run)

    @property
    def _next_interval(self) -> float:
        is_new = not self._has_warned and time.monotonic() < self._began + CHANGES_CLOSE_S
        return min(self._interval, CHANGES_CHECK_INTERVAL_S) if is_new else self._interval

    @property
    def _polls_for_listener(self) -> bool:
        """Whether only polling shows that the app listens: without a sandbox."""
        supervisor = self._supervisor
        return not (supervisor.spec.is_boxed or isinstance(supervisor.spec, ShimRun) or supervisor.is_listening)

    def _check_listener(self, run: Run) -> None:
        if not self._polls_for_listener:
            return
        supervisor = self._supervisor
        port_numbers = ports.listening(process_tree.with_descendants([run.pid]))
        if supervisor.assigned_port in port_numbers:
            supervisor.on_port_used()
        elif supervisor.port in port_numbers:  # chosen in an earlier run
            supervisor.on_listening()
        elif not isinstance(supervisor.spec, ShimServer):
            supervisor.on_other_ports(port_numbers)

    def _check_changes(self, run: Run) -> None:
        """Warn once of files in the application folder, which do not last."""
        if not self._has_warned and run.sandbox_fds is not None and run.sandbox_fds.has_changes:
            self._has_warned = True
            self._supervisor.log(CHANGES_WARNING)

    def _check_memory(self, run: Run) -> None:
        supervisor = self._supervisor
        if not supervisor.polls_memory:
            self._report_oom_kills(run)
            return
        limit, used = supervisor.spec.memory_mb * MB, supervisor.memory_bytes()
        if used > limit // 2:
            self._interval = CLOSE_CHECK_INTERVAL_S
        if used > limit:
            run.kill_for(OUT_OF_MEMORY.format(supervisor.spec.memory_mb))

    def _report_oom_kills(self, run: Run) -> None:
        """Log that the kernel killed a process of an app that continues without it."""
        kills = run.group.oom_kills()
        if kills > self._oom_kills:
            self._oom_kills = kills
            reason = OUT_OF_MEMORY.format(self._supervisor.spec.memory_mb)
            self._supervisor.log(f"one of its processes was ended: {reason}")

    async def _check_disk(self, run: Run) -> None:
        disk, reserve = self._supervisor.volume, self._supervisor.reserve
        if disk is None or reserve is None or self._is_restarting:
            return
        reserve.measure()
        reserve.add_sample(disk.used, disk.measured_at)
        await disk.measure(run.group.processes, drop=reserve.step)
        reserve.add_sample(disk.used, disk.measured_at)
        if reserve.is_near:
            self._interval = CLOSE_CHECK_INTERVAL_S
        if reserve.is_counted:
            reserve.decide(run.group.processes())
        if isinstance(self._supervisor.spec, ShimServer):
            self._check_server_disk(run, disk, reserve)
        elif run.sandbox_fds is not None and self._supervisor.is_read_only != self._is_read_only:
            self._set_read_only(run, run.sandbox_fds.namespaces, self._supervisor.is_read_only)

    def _check_server_disk(self, run: Run, disk: volume.Volume, reserve: DiskReserve) -> None:
        """Kill a server that fills the disk with temporary files.

        A restart frees these but keeps its data, so a volume that stays full does not kill the server again.
        """
        if reserve.is_sprinting():
            run.kill_for(f"it wrote too much at once: {MACHINE_DISK_FULL}")
        elif disk.is_full and not self._supervisor.was_full:
            run.kill_for(f"its files took more than {self._supervisor.spec.disk_mb * volume.SERVER_SHARE} MB of disk")
        self._supervisor.was_full = disk.is_full

    def _set_read_only(self, run: Run, namespaces: tuple[int, int], on: bool) -> None:
        code = volume.set_read_only(namespaces, on, is_root=self._supervisor.is_root)
        reason = self._supervisor.read_only_reason
        if code == 0:
            self._is_read_only = on
            self._supervisor.log(f"{reason}: /data is read-only now" if on else "/data is writable again")
        elif on:
            self._restart_read_only(run, reason)

    def _restart_read_only(self, run: Run, reason: str) -> None:
        """Stop an app with files open for writing; it restarts with a read-only volume.

        The exit frees deleted files that were still open; if that is enough, the volume becomes writable again.
        """
        self._is_restarting = True
        run.verdict = reason
        self._supervisor.log(f"{reason}, and files are open for writing: it is started again")
        run.terminate()
        asyncio.get_running_loop().call_later(RESTART_GRACE_S, run.kill)


def _usual_interval(supervisor: WatchedReplica) -> float:
    if supervisor.polls_memory:
        return USAGE_CHECK_INTERVAL_S
    if supervisor.volume is None:
        return OOM_CHECK_INTERVAL_S
    return SERVER_DISK_CHECK_INTERVAL_S if isinstance(supervisor.spec, ShimServer) else USAGE_CHECK_INTERVAL_S
