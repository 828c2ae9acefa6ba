"""Keeping one app running: started, started again when it ends, watched over, and stopped for good when asked.

A run that happens once is watched over in the same way; it has no port, and its end is the end of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from moorage.core.net.own_networks import OwnNetworks
from moorage.runtime.engines.ports import CannotStart, Phase, ReplicaSpec, ReplicaState
from moorage.runtime.sandbox import inside
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.host_sockets import HostPorts
from moorage.runtime.sandbox.network.listeners import Door
from moorage.runtime.sandbox.network.resolver import Upstream
from moorage.runtime.sandbox.network.supervisor import Shared
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.shim import child, ports
from moorage.runtime.shim import result_file as once
from moorage.runtime.shim.backoff import Backoff
from moorage.runtime.shim.home import Home
from moorage.runtime.shim.logs.logfile import LogFile, Stream
from moorage.runtime.shim.proxy.proxy import DatabaseProxy
from moorage.runtime.shim.run import Ended, Run, end_orphans
from moorage.runtime.shim.storage.reserve import Reserve
from moorage.runtime.shim.storage.volume import Volume, hold
from moorage.runtime.shim.watch import NO_ROOM, Watch

NORMAL_WEIGHT = 100
HOLD_S = 30.0  # how long connections wait for an app that has been started again
FLUSH_S = 1.0
LATE_GRACE_S = 5.0  # for an app that was to stop while it started
ROOT = "root"  # the folder on which a sandbox's file system is mounted
RESOLV_CONF = Path("/etc/resolv.conf")


class Keeper:
    """Owns the app, its port and its log. `on_change` is called whenever its state is another one."""

    def __init__(self, spec: ReplicaSpec, home: Home, on_change: Callable[[], None]) -> None:
        self.spec = spec
        self.home = home
        self.is_root = os.getuid() == 0
        _check(spec, is_root=self.is_root)
        self.cpu: float | None = spec.cpu if spec.is_once else None
        self.volume = _volume(spec) if spec.volume else None
        self.reserve = Reserve(spec.volume, spec.reserve_mb) if spec.volume else None
        self.was_full = False  # a server, when it was last looked at
        self._held = hold(spec.volume) if spec.volume and spec.is_server else None
        self.run_: Run | None = None
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._log = LogFile(Path(spec.log_folder), spec.key, spec.hidden, kept_bytes=spec.log_bytes)
        self._flush: asyncio.TimerHandle | None = None
        self._has_printed = False
        self._shared = Shared(Upstream(RESOLV_CONF), OwnNetworks(), Alarm(), HostPorts())
        self._groups = run_groups.find()
        self.counts_memory = "memory" not in self._groups.controllers
        self._socket = None if spec.is_once else ports.bind(spec.address, spec.port)
        self.port: int = self._socket.getsockname()[1] if self._socket else 0
        self._door = Door(self._socket, self.opened) if self._socket and spec.is_boxed else None
        self._proxy = self._make_proxy()
        if not spec.is_boxed:
            if self._socket:
                self._socket.close()  # An app outside of a sandbox has to take the port itself.
            sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
        self._hold: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()
        self._backoff = Backoff()
        self._started = process_tree.started(os.getpid()) or 0
        self._phase: Phase = "starting"
        self.is_listening = False
        self._restarts = 0
        self._ended: Ended | None = None
        self._cpu_us = 0  # of the runs that have ended

    def _make_proxy(self) -> DatabaseProxy | None:
        """Make the proxy of a public database. A server outside of a sandbox stays on loopback."""
        if not (self.spec.proxy and self._door):
            return None
        listener = ports.share(self._door.socket, self.spec.proxy_address)
        return DatabaseProxy(listener, (self.spec.address, self.port), self.spec.proxy, self.spec.proxy_connections)

    # What it does.

    async def keep(self, on_first: Callable[[], None]) -> None:
        """Run the app until it is to stop. Raises CannotStart where it cannot even be started once."""
        keep = self._keep_once if self.spec.is_once else self._keep_up
        if self._proxy is not None:
            await self._proxy.open()
        await keep(on_first)
        if self._proxy is not None:
            self._proxy.close()
        self._forget_hold()
        self._set(phase="stopped", is_listening=False)

    async def _keep_up(self, on_first: Callable[[], None]) -> None:
        run = await self._start()
        self.say("started")
        on_first()
        while True:
            ended = await self._see_through(run)
            if self._stopping.is_set():
                break
            started = await self._start_again(ended)
            if started is None:
                break
            run = started
        self._last_words("stopped")

    async def _keep_once(self, on_first: Callable[[], None]) -> None:
        """See a run through, and write down how it ended: its log is whole by then."""
        began_ms = once.now_ms()
        self.say("starting")
        try:
            run = await self._start()
        except CannotStart as error:
            self._last_words(str(error))
            raise
        on_first()
        timeout = self._loop.call_later(self.spec.timeout_s, self._time_is_up, run) if self.spec.timeout_s else None
        ended = await self._see_through(run)
        if timeout is not None:
            timeout.cancel()
        why = run.verdict or (once.STOPPED if self._stopping.is_set() else ended.reason if ended.code else None)
        self._ended = Ended(ended.code, why)
        self._last_words(f"ended: {why or ended.reason}")
        if self.spec.result:
            once.write_result(Path(self.spec.result), self._ended, began_ms)

    def _time_is_up(self, run: Run) -> None:
        run.verdict = run.verdict or once.took_longer(self.spec.timeout_s)
        run.terminate()
        self._loop.call_later(once.GRACE_S, self._kill)

    def _last_words(self, text: str) -> None:
        self.say(text)
        self._log.close()

    async def _see_through(self, run: Run) -> Ended:
        self._set(phase="running")
        if self._stopping.is_set():  # since it was begun to start
            run.terminate()
            self._loop.call_later(LATE_GRACE_S, self._kill)
        watch = asyncio.create_task(Watch(self).run(run))
        ended = await run.ended()
        watch.cancel()
        self.run_ = None
        self._remove(run.group)
        if not self.spec.is_boxed:
            end_orphans()
        self.is_listening = False
        self._ended = ended
        return ended

    async def _start_again(self, ended: Ended) -> Run | None:
        """Start the app until that works; None when it is to stop instead."""
        while True:
            delay = self._backoff.next()
            when = f"starting again in {delay:g} s" if delay else "starting again"
            self.say(f"ended: {ended.reason}; {when}")
            await self._wait(delay)
            if self._stopping.is_set():
                return None
            self._restarts += 1
            self._hold = self._loop.call_later(HOLD_S, self._let_go)
            try:
                run = await self._start()
            except CannotStart as error:
                ended = self._ended = Ended(None, str(error))
                continue
            self.say("started")
            return run

    async def _wait(self, delay: float) -> None:
        if not delay:
            self._set(phase="starting")
            return
        self._let_go()
        self._set(phase="waiting")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)

    async def _start(self) -> Run:
        self._set(phase="starting")
        group: cgroups.Group | None = None
        try:
            if self.volume and self.reserve:
                self.reserve.restart()
                if not self.spec.is_server:
                    await self.volume.look()
            # Nobody else has had this name: what is left of another shim with our number may still be there.
            group = self._groups.create(f"{run_groups.name()}-{secrets.token_hex(4)}")
            # Somebody waits for it to start; from the moment it listens it has the weight of its tier.
            weight = self._weight if self.spec.is_once else max(self._weight, NORMAL_WEIGHT)
            group.limit(memory_mb=self.spec.memory_mb, pids=self.spec.pids, weight=weight, cpu=self._first_cpu)
            self.run_ = run = Run(self.spec, group)
            await run.start(self._world(), self._shared, self._door, self._print)
        except (OSError, CannotStart) as error:
            self.run_ = None
            if group is not None:
                self._remove(group)
            if isinstance(error, OSError):
                raise CannotStart(f"it cannot be started: {error}") from error
            raise
        self._backoff.began()
        return run

    @property
    def _weight(self) -> int:
        return max(round(self.spec.cpu * 100), 1)

    @property
    def _first_cpu(self) -> float | None:
        """What it may use from its start: an app may use all there is until it listens."""
        return self.cpu if self.spec.is_once else None

    def _world(self) -> child.World:
        spec = self.spec
        bounds = inside.bounds(
            self._groups.controllers,
            memory_mb=spec.memory_mb,
            pids=spec.pids,
            is_own_user=spec.uid != 0,
            is_root=self.is_root,
            is_boxed=spec.is_boxed,
        )
        return child.World(
            tree=self.home.path / ROOT,
            env={"HOME": inside.TMP, **spec.env, **self._found_at()},
            bounds=bounds,
            user=None if self.is_root else (os.getuid(), os.getgid()),
            is_sealed=self.is_sealed,
            is_counted=not self.counts_memory,
        )

    @property
    def is_sealed(self) -> bool:
        """Tell whether the volume may only be read: it is full, or the machine has no room for what the app writes."""
        is_full = bool(self.volume and self.volume.is_full) or bool(self.reserve and self.reserve.is_exhausted)
        return is_full and not self.spec.is_server

    @property
    def why_sealed(self) -> str:
        is_full = self.volume is not None and self.volume.is_full
        return f"its disk is full ({self.spec.disk_mb} MB)" if is_full else NO_ROOM

    def _found_at(self) -> dict[str, str]:
        if self.spec.is_once:
            return {}
        host = "0.0.0.0" if self.spec.is_boxed else self.spec.address  # noqa: S104 - of a network of its own
        return {"PORT": str(self.port), "HOST": host}

    def _remove(self, group: cgroups.Group) -> None:
        with contextlib.suppress(OSError):
            self._cpu_us += group.cpu_us()
        with contextlib.suppress(OSError):  # What is left now is swept by the next shim that starts.
            group.kill()
            group.remove()

    # The door.

    def opened(self) -> None:
        """Take note that the app listens."""
        self._forget_hold()
        if self.run_ is not None:
            self._apply_cpu(self.run_, self.cpu)
        if not self.is_listening:
            self._set(is_listening=True)

    def _forget_hold(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def _let_go(self) -> None:
        """Refuse connections until the app listens again, those that wait already as well."""
        self._forget_hold()
        if self._socket and self._door and self._door.is_whole and not self.is_listening:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    # What it is asked for.

    def stop(self, grace_s: float) -> None:
        """Ask the app to end, and end it after a while. Safe to repeat; the shortest time holds."""
        if not self._stopping.is_set():
            self._stopping.set()
            # What the app closes from now on is closed for all, and what it does not is still its own.
            if self._socket:
                self._socket.close()
            if self._proxy is not None:
                self._proxy.shut()
            if self.run_ is not None:
                self.run_.terminate()
        self._loop.call_later(grace_s, self._kill)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_restless(self) -> bool:
        """Whether the app does not run, or not for long any more."""
        return self.is_stopping or self._phase != "running"

    def _kill(self) -> None:
        if self.run_ is not None:
            self.run_.kill()

    def limit(self, cpu: float | None) -> None:
        self.cpu = cpu
        if self.run_ is not None:
            self._apply_cpu(self.run_, cpu)

    def _apply_cpu(self, run: Run, cpu: float | None) -> None:
        with contextlib.suppress(OSError):
            run.group.limit(memory_mb=self.spec.memory_mb, pids=self.spec.pids, weight=self._weight, cpu=cpu)

    # What it says.

    def state(self) -> ReplicaState:
        """Return its state without looking at anything that takes time."""
        return ReplicaState(
            key=self.spec.key,
            pid=os.getpid(),
            started=self._started,
            port=self.port,
            phase=self._phase,
            is_listening=self.is_listening,
            app_pid=self.run_.app_pid() if self.run_ is not None and self._phase == "running" else None,
            restarts=self._restarts,
            exit_code=self._ended.code if self._ended else None,
            reason=self._ended.reason if self._ended else None,
            cpu_us=self._cpu_us + (self._figure(self.run_.group.cpu_us) if self.run_ else 0),
            memory_bytes=self._figure(self.memory_bytes),
            connections=self._figure(self._connections),
            disk_bytes=self.volume.used if self.volume and not self.spec.is_server else 0,
        )

    def _connections(self) -> int:
        """Count the connections to the app; those through the proxy have two sockets at its port."""
        if not self.port:
            return 0
        found = ports.count(self.port, ports.ESTABLISHED)
        return max(0, found - self._proxy.connections) if self._proxy else found

    def memory_bytes(self) -> int:
        """Return what the app holds; its temporary files are part of it."""
        run = self.run_
        if run is None:
            return 0
        if not self.counts_memory:
            return run.group.memory_bytes()
        held = process_tree.memory_bytes(pid for pid in run.group.processes() if pid != run.pid)
        if run.kept is None:
            return held
        tmp = os.fstatvfs(run.kept.tmp)
        return held + (tmp.f_blocks - tmp.f_bfree) * tmp.f_frsize

    def _figure(self, read: Callable[[], int]) -> int:
        try:
            return read()
        except OSError:
            return 0  # It has ended just now.

    def _set(self, *, phase: Phase | None = None, is_listening: bool | None = None) -> None:
        self._phase = phase or self._phase
        self.is_listening = self.is_listening if is_listening is None else is_listening
        self._on_change()

    def say(self, text: str) -> None:
        self._log.write("system", text.encode())

    def _print(self, stream: Stream, data: bytes) -> None:
        self._log.write(stream, data)
        self._has_printed = True
        if self._flush is None:
            self._flush = self._loop.call_later(FLUSH_S, self._flush_log)

    def _flush_log(self) -> None:
        """Show what has no end of line yet, and go on until nothing more is printed."""
        self._log.flush()
        self._flush = self._loop.call_later(FLUSH_S, self._flush_log) if self._has_printed else None
        self._has_printed = False


def _check(spec: ReplicaSpec, *, is_root: bool) -> None:
    if spec.is_server and is_root and not spec.uid:
        raise CannotStart("it cannot be started: a server is never root, and no other user was given")
    if spec.image and not spec.is_boxed:
        raise CannotStart("it cannot be started: images are run in sandboxes only, and this platform has none")
    if spec.image and is_root and not spec.uid:
        raise CannotStart("it cannot be started: an image is never run as root, and no other user was given")


def _volume(spec: ReplicaSpec) -> Volume:
    assert spec.volume is not None
    return Volume(spec.volume, spec.disk_mb, is_boxed=spec.is_boxed, is_server=spec.is_server)
