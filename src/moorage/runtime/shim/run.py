"""One run of an app: fork it into its sandbox, serve its network, wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

from moorage.core.kit.records import dataclass
from moorage.runtime.engines.local_specs import ShimSpec
from moorage.runtime.engines.ports import CannotStart
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network.listeners import AppListeners
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.sandbox.network.setup import SandboxSockets
from moorage.runtime.sandbox.network.supervisor import SandboxNetwork, SharedResources
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.shim import child
from moorage.runtime.shim.logs.output import OutputHandler, OutputReader

MAX_ORPHAN_SWEEPS = 100  # Processes may fork while they are listed, so one sweep may miss some.
OUT_OF_MEMORY = "it ran out of memory ({} MB)"


@dataclass(frozen=True, slots=True)
class RunExit:
    """Exit code of a run (128 + signal, as in a shell), and the reason."""

    code: int | None
    reason: str | None  # None for a one-off run that succeeded


@dataclass(frozen=True, slots=True)
class SandboxDescriptors:
    """Descriptors of a sandbox that the shim keeps open."""

    tmp: int
    namespaces: tuple[int, int]  # mount namespace, user namespace
    changes: int | None = None  # folder of the files that the app changed in its application folder

    @property
    def has_changes(self) -> bool:
        return self.changes is not None and bool(os.listdir(self.changes))

    def close(self) -> None:
        for fd in (self.tmp, *self.namespaces, *(() if self.changes is None else (self.changes,))):
            os.close(fd)


class Run:
    """Owns the processes of one run; `wait` never fails, and releases everything."""

    def __init__(self, spec: ShimSpec, group: cgroups.Group) -> None:
        self._spec = spec
        self.group = group
        self.pid = 0
        self.sandbox_fds: SandboxDescriptors | None = None
        self.verdict: str | None = None  # reason, if the platform ended the run
        self._network: SandboxNetwork | None = None
        self._pidfd = -1
        self._channel: socket.socket | None = None
        self._checks: socket.socket | None = None  # to process 1, which runs the app's health checks
        self._outputs: list[OutputReader] = []

    async def start(
        self,
        context: child.LaunchContext,
        shared: SharedResources,
        listeners: AppListeners | None,
        on_output: OutputHandler,
    ) -> None:
        """Return when the program runs; raises CannotStart after killing everything."""
        failure = self._fork(context, on_output)
        try:
            self.group.attach(self.pid)
            await self._send_go_ahead()
            if self._spec.is_boxed:
                await self._serve_network(shared, listeners)
            message = await _read_all(failure)
        except OSError as error:
            message = str(error).encode()
        finally:
            os.close(failure)
        if message:
            self.kill()
            await self.wait()
            raise CannotStart(f"it cannot be started: {message.decode(errors='replace')}")

    def _fork(self, context: child.LaunchContext, on_output: OutputHandler) -> int:
        ours, theirs = socket.socketpair()
        checks, checks_end = socket.socketpair()
        (out, out_end), (error, error_end), (failure, failure_end) = os.pipe(), os.pipe(), os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = _fork_process(self._spec, context)
            if self.pid == 0:
                child.become(self._spec, context, child.ChildPipes(out_end, error_end, failure_end, theirs, checks_end))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            checks_end.close()
            for fd in (out_end, error_end, failure_end):
                os.close(fd)
        ours.setblocking(False)
        checks.setblocking(False)
        self._channel, self._checks, self._pidfd = ours, checks, os.pidfd_open(self.pid)
        self._outputs = [OutputReader(out, "stdout", on_output), OutputReader(error, "stderr", on_output)]
        return failure

    async def _send_go_ahead(self) -> None:
        assert self._channel is not None
        await asyncio.get_running_loop().sock_sendall(self._channel, b"!")

    async def _serve_network(self, shared: SharedResources, listeners: AppListeners | None) -> None:
        """Serve the sandbox's network, unless it failed: the failure pipe has the reason."""
        assert self._channel is not None
        await _readable(self._channel.fileno())
        message, fds, _, _ = socket.recv_fds(self._channel, 1, child.DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        notify, udp, tcp, tmp, mounts, users, *changes = fds
        self.sandbox_fds = SandboxDescriptors(tmp, (mounts, users), next(iter(changes), None))
        policy = NetworkPolicy(tuple(self._spec.allow), tuple(self._spec.block), egress=tuple(self._spec.doors))
        self._network = SandboxNetwork(SandboxSockets(0, policy, notify, udp, tcp), shared, listeners)
        await self._send_go_ahead()

    def terminate(self) -> None:
        self._send(self._spec.stop_signal)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def kill_for(self, reason: str) -> None:
        """Kill the run because it exceeded a limit."""
        self.verdict = self.verdict or reason
        self.kill()

    def terminate_for(self, reason: str) -> None:
        """Ask the run to end, for a reason of the platform."""
        self.verdict = self.verdict or reason
        self.terminate()

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def app_pid(self) -> int | None:
        """Return the PID of the app's first process, in the host's PID namespace."""
        return self.pid if child.is_init(self._spec) else next(iter(process_tree.children(self.pid)), None)

    async def wait(self) -> RunExit:
        """Wait for all processes and their output; then release everything."""
        await _readable(self._pidfd)
        status = self._reap()
        for output in self._outputs:
            output.finish()
        run_exit = self._exit_from(status)
        self._close()
        return run_exit

    def _reap(self) -> int:
        os.close(self._pidfd)
        return os.waitpid(self.pid, 0)[1]

    def _close(self) -> None:
        if self._network is not None:
            self._network.close()
        if self.sandbox_fds is not None:
            self.sandbox_fds.close()
        assert self._channel is not None
        assert self._checks is not None
        self._channel.close()
        self._checks.close()

    async def check_health(self, timeout_s: float) -> int | None:
        """Run the app's health command in its sandbox; return its exit code, None after a timeout.

        Raises OSError when the run has ended. Only one check runs at a time.
        """
        assert self._checks is not None
        loop, code = asyncio.get_running_loop(), None
        await loop.sock_sendall(self._checks, child.START_CHECK)
        self._send(child.CHECK_SIGNAL)
        try:
            async with asyncio.timeout(timeout_s):
                code = await self._check_result()
        except TimeoutError:
            await loop.sock_sendall(self._checks, child.KILL_CHECK)
            self._send(child.CHECK_SIGNAL)
            await self._check_result()
        return code

    async def _check_result(self) -> int:
        assert self._checks is not None
        report = await asyncio.get_running_loop().sock_recv(self._checks, child.STATUS.size)
        if len(report) != child.STATUS.size:
            raise ConnectionResetError("the run has ended")
        code = os.waitstatus_to_exitcode(child.STATUS.unpack(report)[0])
        return code if code >= 0 else 128 - code

    def _exit_from(self, status: int) -> RunExit:
        """Use the app's wait status as process 1 reported it, or that of process 1."""
        report = b""
        with contextlib.suppress(OSError):
            assert self._channel is not None
            report = self._channel.recv(child.STATUS.size)
        code = os.waitstatus_to_exitcode(child.STATUS.unpack(report)[0] if len(report) == child.STATUS.size else status)
        return RunExit(code if code >= 0 else 128 - code, self.verdict or self._reason(code))

    def _reason(self, code: int) -> str:
        if code != 0 and self.group.oom_kills():
            return OUT_OF_MEMORY.format(self._spec.memory_mb)
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"it was ended by {_name_of(-code)}"


def kill_orphans() -> None:
    """Kill processes left behind without a sandbox; the shim is their subreaper."""
    for _ in range(MAX_ORPHAN_SWEEPS):
        orphans = process_tree.with_descendants(process_tree.children(os.getpid()))
        files.send(orphans, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while orphans:
                os.waitpid(-1, 0)
        if not orphans:
            return


def _fork_process(spec: ShimSpec, context: child.LaunchContext) -> int:
    if not spec.is_boxed:
        return os.fork()
    return sys_.fork_into(child.NAMESPACES | (sys_.CLONE_NEWUSER if context.user else 0))


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _read_all(pipe: int) -> bytes:
    """Read until all write ends are closed; a message is short."""
    message = b""
    while True:
        await _readable(pipe)
        piece = os.read(pipe, 4096)
        message += piece
        if not piece:
            return message
