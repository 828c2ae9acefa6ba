"""Supervision of one replica: start, restart after a crash, limits, and stop.

A one-off run is supervised in the same way, but has no port and is never restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from moorage.core.net import tcp_sockets
from moorage.core.net.own_networks import OwnNetworks
from moorage.runtime.engines import port_choice
from moorage.runtime.engines.local_specs import ShimApp, ShimRun, ShimServer, ShimSpec
from moorage.runtime.engines.ports import CannotStart, Health, Phase, ReplicaState
from moorage.runtime.logs.logfile import LogFile, Stream
from moorage.runtime.sandbox import inside
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.host_sockets import HostPorts
from moorage.runtime.sandbox.network.listeners import AppListener, AppListeners
from moorage.runtime.sandbox.network.resolver import Upstream
from moorage.runtime.sandbox.network.supervisor import SharedResources
from moorage.runtime.sandbox.runs import cgroups as run_groups
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.shim import child, ports, result_file
from moorage.runtime.shim.backoff import Backoff
from moorage.runtime.shim.health import HealthWatch
from moorage.runtime.shim.proxy.proxy import DatabaseProxy
from moorage.runtime.shim.run import Run, RunExit, kill_orphans
from moorage.runtime.shim.run_folder import RunFolder
from moorage.runtime.shim.storage.reserve import DiskReserve
from moorage.runtime.shim.storage.volume import Volume, lock_folder
from moorage.runtime.shim.watch import MACHINE_DISK_FULL, ResourceWatch

NORMAL_CPU_WEIGHT = 100
RESTART_QUEUE_S = 30.0  # connections wait so long in the backlog for a restarted app to listen, then are refused
LOG_FLUSH_INTERVAL_S = 1.0
STOP_DURING_START_GRACE_S = 5.0
ROOT = "root"  # mount point of the sandbox's root file system, in the run folder
RESOLV_CONF = Path("/etc/resolv.conf")
ADDRESS = "127.0.0.1"  # of this machine, where replicas are reached


class ReplicaSupervisor:
    """Owns the app, its port and its log; calls `on_change` on state changes."""

    def __init__(self, spec: ShimSpec, run_folder: RunFolder, on_change: Callable[[], None]) -> None:
        self.spec = spec
        self._run_spec = spec if isinstance(spec, ShimRun) else None
        self._server_spec = spec if isinstance(spec, ShimServer) else None
        self.run_folder = run_folder
        self.is_root = os.getuid() == 0
        _check(spec, is_root=self.is_root)
        self.cpu: float | None = spec.cpu if self._run_spec else None
        self.volume = _volume(spec) if spec.volume else None
        self.reserve = DiskReserve(spec.volume, spec.reserve_mb) if spec.volume else None
        self.was_full = False  # a server's volume, at the previous disk check
        self._volume_lock = lock_folder(spec.volume) if spec.volume and self._server_spec else None
        self.run_: Run | None = None
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        kept_bytes = self._run_spec.log_bytes if self._run_spec else 0
        self._log = LogFile(Path(spec.log), spec.key, spec.hidden, kept_bytes=kept_bytes)
        self._flush_timer: asyncio.TimerHandle | None = None
        self._has_printed = False
        self._shared = SharedResources(Upstream(RESOLV_CONF), OwnNetworks(), Alarm(), HostPorts())
        self._groups = run_groups.find()
        self.polls_memory = "memory" not in self._groups.controllers
        port = self._server_spec.port if self._server_spec else 0
        host_socket = None if self._run_spec else ports.bind(ADDRESS, port)
        self.assigned_port: int = host_socket.getsockname()[1] if host_socket else 0
        self.port = self.assigned_port  # of the host; of another listener if the app ignores PORT
        self._other_port = 0  # the port that the app listens on instead of PORT, as the app calls it
        self._port_choice = port_choice.PortChoice(self._use_other_port)
        self._listeners = self._make_listeners(host_socket) if host_socket and spec.is_boxed else None
        self._proxy = self._make_proxy()
        if not spec.is_boxed:
            if host_socket:
                host_socket.close()  # An app without a sandbox binds the port itself.
            sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
        self._queue_timer: asyncio.TimerHandle | None = None
        self._stopping = asyncio.Event()
        self._backoff = Backoff()
        self._started = process_tree.started(os.getpid()) or 0
        self._phase: Phase = "starting"
        self.is_listening = False
        self._health: Health = ""
        self._restarts = 0
        self._last_exit: RunExit | None = None
        self._cpu_us = 0  # of the runs that have ended

    def _make_listeners(self, host_socket: socket.socket) -> AppListeners:
        inside_port = self.spec.inside_port if isinstance(self.spec, ShimApp) else 0
        main = AppListener(host_socket, self.on_port_used, inside_port)
        # A server's port is fixed by its spec.
        bind = None if self._server_spec else partial(ports.bind, ADDRESS)
        return AppListeners(main, bind, self._on_other_listener)

    def _make_proxy(self) -> DatabaseProxy | None:
        """Create the proxy of a public database; without a sandbox there is none."""
        spec = self._server_spec
        if not (spec and spec.proxy and self._listeners):
            return None
        listener = ports.share(self._listeners.main.socket, spec.proxy_address)
        return DatabaseProxy(listener, (ADDRESS, self.port), spec.proxy, spec.proxy_connections)

    async def supervise(self, on_first_start: Callable[[], None]) -> None:
        """Run the app until it is stopped; raises CannotStart if the first start fails."""
        if self._proxy is not None:
            await self._proxy.open()
        if self._run_spec:
            await self._supervise_once(self._run_spec, on_first_start)
        else:
            await self._supervise_restarting(on_first_start)
        if self._proxy is not None:
            self._proxy.close()
        self._cancel_queue_timer()
        self._set(phase="stopped", is_listening=False)

    async def _supervise_restarting(self, on_first_start: Callable[[], None]) -> None:
        run = await self._start()
        self.log("started")
        on_first_start()
        while True:
            run_exit = await self._wait_for_exit(run)
            if self._stopping.is_set():
                break
            next_run = await self._restart(run_exit)
            if next_run is None:
                break
            run = next_run
        self._log_and_close("stopped")

    async def _supervise_once(self, spec: ShimRun, on_start: Callable[[], None]) -> None:
        """Wait for a one-off run and write its result file after its log is complete."""
        began_ms = result_file.now_ms()
        self.log("starting")
        try:
            run = await self._start()
        except CannotStart as error:
            self._log_and_close(str(error))
            raise
        on_start()
        timeout = self._loop.call_later(spec.timeout_s, self._on_timeout, run, spec) if spec.timeout_s else None
        run_exit = await self._wait_for_exit(run)
        if timeout is not None:
            timeout.cancel()
        failure = run_exit.reason if run_exit.code else None
        reason = run.verdict or (result_file.STOPPED if self._stopping.is_set() else failure)
        self._last_exit = RunExit(run_exit.code, reason)
        self._log_and_close(f"ended: {reason or run_exit.reason}")
        if spec.result:
            result_file.write_result(Path(spec.result), self._last_exit, began_ms)

    def _on_timeout(self, run: Run, spec: ShimRun) -> None:
        run.verdict = run.verdict or result_file.took_longer(spec.timeout_s)
        run.terminate()
        self._loop.call_later(result_file.TIMEOUT_GRACE_S, self._kill)

    def _log_and_close(self, text: str) -> None:
        self.log(text)
        self._log.close()

    async def _wait_for_exit(self, run: Run) -> RunExit:
        self._set(phase="running")
        if self._stopping.is_set():  # requested while the app started
            run.terminate()
            self._loop.call_later(STOP_DURING_START_GRACE_S, self._kill)
        watches = [asyncio.create_task(ResourceWatch(self).run(run))]
        if isinstance(self.spec, ShimApp) and self.spec.health_argv:
            watches.append(asyncio.create_task(HealthWatch(self.spec, self._set_health).run(run)))
        run_exit = await run.wait()
        for watch in watches:
            watch.cancel()
        self._health = ""
        self.run_ = None
        self._remove(run.group)
        if not self.spec.is_boxed:
            kill_orphans()
        self.is_listening = False
        self._last_exit = run_exit
        return run_exit

    async def _restart(self, run_exit: RunExit) -> Run | None:
        """Start the app with backoff until it runs; None if a stop was requested."""
        while True:
            delay = self._backoff.next()
            when = f"starting again in {delay:g} s" if delay else "starting again"
            self.log(f"ended: {run_exit.reason}; {when}")
            await self._wait_before_restart(delay)
            if self._stopping.is_set():
                return None
            self._restarts += 1
            self._queue_timer = self._loop.call_later(RESTART_QUEUE_S, self._refuse_connections)
            try:
                run = await self._start()
            except CannotStart as error:
                run_exit = self._last_exit = RunExit(None, str(error))
                continue
            self.log("started")
            return run

    async def _wait_before_restart(self, delay: float) -> None:
        if not delay:
            self._set(phase="starting")
            return
        self._refuse_connections()
        self._set(phase="waiting")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)

    async def _start(self) -> Run:
        self._set(phase="starting")
        self._port_choice.cancel()
        if self._listeners is not None:
            self._listeners.is_main_used = False
        group: cgroups.Group | None = None
        try:
            if self.volume and self.reserve:
                self.reserve.restart()
                if not self._server_spec:
                    await self.volume.measure()
            # The random suffix avoids a cgroup that an earlier shim with the same PID left behind.
            group = self._groups.create(f"{run_groups.name()}-{secrets.token_hex(4)}")
            # A deployment waits for the app to listen, so a start gets at least the normal CPU weight and no CPU limit;
            # the values of the app's tier apply once it listens. A one-off run has its own values from the start.
            weight = self._weight if self._run_spec else max(self._weight, NORMAL_CPU_WEIGHT)
            cpu = self.cpu if self._run_spec else None
            group.limit(memory_mb=self.spec.memory_mb, pids=self.spec.pids, weight=weight, cpu=cpu)
            self.run_ = run = Run(self.spec, group)
            await run.start(self._launch_context(), self._shared, self._listeners, self._write_output)
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

    def _launch_context(self) -> child.LaunchContext:
        spec = self.spec
        bounds = inside.bounds(
            self._groups.controllers,
            memory_mb=spec.memory_mb,
            pids=spec.pids,
            is_own_user=spec.uid != 0,
            is_root=self.is_root,
            is_boxed=spec.is_boxed,
        )
        return child.LaunchContext(
            tree=self.run_folder.path / ROOT,
            env={**({} if spec.files.image else {"HOME": inside.TMP}), **spec.env, **self._address_env()},
            bounds=bounds,
            user=None if self.is_root else (os.getuid(), os.getgid()),
            is_read_only=self.is_read_only,
            is_counted=not self.polls_memory,
        )

    @property
    def is_read_only(self) -> bool:
        """Whether the volume is read-only: it, or the machine's disk, is full."""
        is_full = bool(self.volume and self.volume.is_full) or bool(self.reserve and self.reserve.is_exhausted)
        return is_full and not self._server_spec

    @property
    def read_only_reason(self) -> str:
        is_full = self.volume is not None and self.volume.is_full
        return f"its disk is full ({self.spec.disk_mb} MB)" if is_full else MACHINE_DISK_FULL

    def _address_env(self) -> dict[str, str]:
        if self._run_spec:
            return {}
        host = "0.0.0.0" if self.spec.is_boxed else ADDRESS  # noqa: S104 - in its own network namespace
        return {"PORT": str(self._listeners.main.inside_port if self._listeners else self.assigned_port), "HOST": host}

    def _remove(self, group: cgroups.Group) -> None:
        with contextlib.suppress(OSError):
            self._cpu_us += group.cpu_us()
        with contextlib.suppress(OSError):  # The next shim that starts sweeps up a cgroup that remains.
            group.kill()
            group.remove()

    def on_port_used(self) -> None:
        """The app listens on PORT, which counts more than any other port."""
        self._port_choice.cancel()
        if self._listeners is not None:
            self._listeners.is_main_used = True
        has_moved = self.port != self.assigned_port
        self.port, self._other_port = self.assigned_port, 0
        self.on_listening()
        if has_moved:
            self._on_change()

    def _on_other_listener(self, listener: AppListener) -> None:
        if listener.port == self.port:  # chosen in an earlier run
            self.on_listening()
        elif not self.is_listening:
            self._port_choice.add(listener.inside_port)

    def on_other_ports(self, port_numbers: Collection[int]) -> None:
        """The app has no sandbox, and listens on these ports of the host."""
        for port in port_numbers:
            self._port_choice.add(port)

    def _use_other_port(self, port: int, port_numbers: Collection[int]) -> None:
        if self.run_ is None or self.is_listening:
            return
        self._other_port = port
        self.port = self._listeners.others[port].port if self._listeners is not None else port
        self.log(port_choice.describe(port, port_numbers))
        self.on_listening()

    def on_listening(self) -> None:
        self._cancel_queue_timer()
        if self.run_ is not None:
            self._apply_cpu(self.run_, self.cpu)
        if not self.is_listening:
            self._set(is_listening=True)

    def _cancel_queue_timer(self) -> None:
        if self._queue_timer is not None:
            self._queue_timer.cancel()
            self._queue_timer = None

    def _refuse_connections(self) -> None:
        """Refuse connections, also queued ones, until the app listens again."""
        self._cancel_queue_timer()
        listener = self._listeners.find_at(self._other_port) if self._listeners and self._other_port else None
        listener = listener or (self._listeners.main if self._listeners else None)
        if listener is not None and listener.is_open and not self.is_listening:
            with contextlib.suppress(OSError):
                listener.socket.shutdown(socket.SHUT_RDWR)

    def stop(self, grace_s: float) -> None:
        """Terminate the app; kill it after the shortest `grace_s` of all calls."""
        if not self._stopping.is_set():
            self._stopping.set()
            # The app holds the last descriptor of its listening sockets from now on: closing one closes the port.
            if self._listeners is not None:
                self._listeners.close()
            if self._proxy is not None:
                self._proxy.stop_accepting()
            if self.run_ is not None:
                self.run_.terminate()
        self._loop.call_later(grace_s, self._kill)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_in_transition(self) -> bool:
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

    def state(self) -> ReplicaState:
        """Return the current state; the disk figure is from the last check."""
        return ReplicaState(
            key=self.spec.key,
            pid=os.getpid(),
            started=self._started,
            port=self.port,
            other_port=self._other_port,
            health=self._health,
            phase=self._phase,
            is_listening=self.is_listening,
            app_pid=self.run_.app_pid() if self.run_ is not None and self._phase == "running" else None,
            restarts=self._restarts,
            exit_code=self._last_exit.code if self._last_exit else None,
            reason=self._last_exit.reason if self._last_exit else None,
            cpu_us=self._cpu_us + (_read_or_zero(self.run_.group.cpu_us) if self.run_ else 0),
            memory_bytes=_read_or_zero(self.memory_bytes),
            connections=_read_or_zero(self._connections),
            disk_bytes=self.volume.used if self.volume and not self._server_spec else 0,
        )

    def _connections(self) -> int:
        """Count connections to the app; through the proxy each has two sockets."""
        if not self.port:
            return 0
        sockets = tcp_sockets.count(self.port, tcp_sockets.ESTABLISHED)
        return max(0, sockets - self._proxy.connections) if self._proxy else sockets

    def memory_bytes(self) -> int:
        """Return the memory that the app uses, including its files in /tmp (a tmpfs)."""
        run = self.run_
        if run is None:
            return 0
        if not self.polls_memory:
            return run.group.memory_bytes()
        used = process_tree.memory_bytes(pid for pid in run.group.processes() if pid != run.pid)
        if run.sandbox_fds is None:
            return used
        tmp = os.fstatvfs(run.sandbox_fds.tmp)
        return used + (tmp.f_blocks - tmp.f_bfree) * tmp.f_frsize

    def _set_health(self, health: Health, why: str) -> None:
        self._health = health
        if why:
            self.log(why)
        self._on_change()

    def _set(self, *, phase: Phase | None = None, is_listening: bool | None = None) -> None:
        self._phase = phase or self._phase
        self.is_listening = self.is_listening if is_listening is None else is_listening
        self._on_change()

    def log(self, text: str) -> None:
        self._log.write("system", text.encode())

    def _write_output(self, stream: Stream, data: bytes) -> None:
        self._log.write(stream, data)
        self._has_printed = True
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(LOG_FLUSH_INTERVAL_S, self._flush_log)

    def _flush_log(self) -> None:
        """Write unfinished lines to the log; repeats as long as the app prints."""
        self._log.flush()
        again = self._has_printed
        self._flush_timer = self._loop.call_later(LOG_FLUSH_INTERVAL_S, self._flush_log) if again else None
        self._has_printed = False


def _read_or_zero(read: Callable[[], int]) -> int:
    try:
        return read()
    except OSError:
        return 0  # The app has just ended.


def _check(spec: ShimSpec, *, is_root: bool) -> None:
    if isinstance(spec, ShimServer) and is_root and not spec.uid:
        raise CannotStart("it cannot be started: a server never runs as root, and its spec names no other user")
    if spec.files.image and not spec.is_boxed:
        raise CannotStart("it cannot be started: images run in sandboxes only, and this platform has none")
    if spec.files.image and is_root and not spec.files.image_ids:
        raise CannotStart("it cannot be started: an image never runs as root, and its spec names no range of ids")


def _volume(spec: ShimSpec) -> Volume:
    assert spec.volume is not None
    return Volume(spec.volume, spec.disk_mb, is_boxed=spec.is_boxed, is_server=isinstance(spec, ShimServer))
