"""One run of an app: forked into its sandbox, put into its limits, served, and waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass

from moorage.runtime.engines.ports import CannotStart, ReplicaSpec
from moorage.runtime.sandbox import syscalls as sys_
from moorage.runtime.sandbox.cgroups import files
from moorage.runtime.sandbox.cgroups import groups as cgroups
from moorage.runtime.sandbox.network.listeners import Door
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.sandbox.network.setup import HandOver
from moorage.runtime.sandbox.network.supervisor import Cell, Shared
from moorage.runtime.sandbox.usage import process_tree
from moorage.runtime.shim import child
from moorage.runtime.shim.logs.output import Output, Print

MOST_GENERATIONS = 100  # A process may fork while it is looked for.
OUT_OF_MEMORY = "it ran out of memory ({} MB)"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: an exit code as a shell would tell it, and the reason in words."""

    code: int | None
    reason: str | None  # None for a run that happens once and has ended well


@dataclass(frozen=True, slots=True)
class Kept:
    """Descriptors of a sandbox that the shim goes on using."""

    tmp: int
    namespaces: tuple[int, int]  # of mounts, and of users

    def close(self) -> None:
        for fd in (self.tmp, *self.namespaces):
            os.close(fd)


class Run:
    """Owns the processes of one run. Whoever makes one waits for `ended`, which never fails, and closes it."""

    def __init__(self, spec: ReplicaSpec, group: cgroups.Group) -> None:
        self._spec = spec
        self.group = group
        self.pid = 0
        self.kept: Kept | None = None
        self.verdict: str | None = None  # why the platform has ended it
        self._cell: Cell | None = None
        self._pidfd = -1
        self._channel: socket.socket | None = None
        self._outputs: list[Output] = []

    async def start(self, world: child.World, shared: Shared, door: Door | None, print_: Print) -> None:
        """Bring the app to the point where its program runs; raises CannotStart, and then nothing runs."""
        failure = self._fork(world, print_)
        try:
            self.group.attach(self.pid)
            await self._send_word()
            if self._spec.is_boxed:
                await self._serve_network(shared, door)
            said = await _read_all(failure)
        except OSError as error:
            said = str(error).encode()
        finally:
            os.close(failure)
        if said:
            self.kill()
            await self.ended()
            raise CannotStart(_why_not(said))

    def _fork(self, world: child.World, print_: Print) -> int:
        ours, theirs = socket.socketpair()
        (out, out_end), (error, error_end), (failure, failure_end) = os.pipe(), os.pipe(), os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = _forked(self._spec, world)
            if self.pid == 0:
                child.become(self._spec, world, child.Ends(out_end, error_end, failure_end, theirs))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            for fd in (out_end, error_end, failure_end):
                os.close(fd)
        ours.setblocking(False)
        self._channel, self._pidfd = ours, os.pidfd_open(self.pid)
        self._outputs = [Output(out, "stdout", print_), Output(error, "stderr", print_)]
        return failure

    async def _send_word(self) -> None:
        assert self._channel is not None
        await asyncio.get_running_loop().sock_sendall(self._channel, b"!")

    async def _serve_network(self, shared: Shared, door: Door | None) -> None:
        """Take over the sandbox's network. One that has failed meanwhile has said why elsewhere."""
        assert self._channel is not None
        await _readable(self._channel.fileno())
        message, fds, _, _ = socket.recv_fds(self._channel, 1, child.DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        listener, udp, tcp, tmp, *namespaces = fds
        self.kept = Kept(tmp, (namespaces[0], namespaces[1]))
        policy = NetworkPolicy(tuple(self._spec.allow), tuple(self._spec.block), doors=tuple(self._spec.doors))
        self._cell = Cell(HandOver(0, policy, listener, udp, tcp), shared, door)
        await self._send_word()

    def terminate(self) -> None:
        self._send(signal.Signals(self._spec.stop_signal))

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def end(self, why: str) -> None:
        """End it at once because it has gone over a limit."""
        self.verdict = self.verdict or why
        self.kill()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def app_pid(self) -> int | None:
        """Return the number of the app's first process, as the host sees it."""
        return self.pid if child.is_first(self._spec) else next(iter(process_tree.children(self.pid)), None)

    async def ended(self) -> Ended:
        """Wait for the end of all processes, and of all that they printed; nothing is left then."""
        await _readable(self._pidfd)
        status = self._reap()
        for output in self._outputs:
            output.finish()
        ended = self._judge(status)
        self._close()
        return ended

    def _reap(self) -> int:
        os.close(self._pidfd)
        return os.waitpid(self.pid, 0)[1]

    def _close(self) -> None:
        if self._cell is not None:
            self._cell.close()
        if self.kept is not None:
            self.kept.close()
        assert self._channel is not None
        self._channel.close()

    def _judge(self, status: int) -> Ended:
        """Tell how it ended: by what process 1 said of the app, or else by how process 1 itself ended."""
        told = b""
        with contextlib.suppress(OSError):
            assert self._channel is not None
            told = self._channel.recv(child.STATUS.size)
        code = os.waitstatus_to_exitcode(child.STATUS.unpack(told)[0] if len(told) == child.STATUS.size else status)
        return Ended(code if code >= 0 else 128 - code, self.verdict or self._reason(code))

    def _reason(self, code: int) -> str:
        if code != 0 and self.group.oom_kills():
            return OUT_OF_MEMORY.format(self._spec.memory_mb)
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"it was ended by {_name_of(-code)}"


def end_orphans() -> None:
    """End what an app left behind outside of a sandbox: it has become ours, whatever session it is in."""
    for _ in range(MOST_GENERATIONS):
        orphans = process_tree.with_descendants(process_tree.children(os.getpid()))
        files.send(orphans, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while orphans:
                os.waitpid(-1, 0)
        if not orphans:
            return


def _forked(spec: ReplicaSpec, world: child.World) -> int:
    if not spec.is_boxed:
        return os.fork()
    return sys_.fork_into(child.NAMESPACES | (sys_.CLONE_NEWUSER if world.user else 0))


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _why_not(said: bytes) -> str:
    return f"it cannot be started: {said.decode(errors='replace')}"


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _wake, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _read_all(pipe: int) -> bytes:
    """Read until all who could write have closed it; what is said is short."""
    said = b""
    while True:
        await _readable(pipe)
        piece = os.read(pipe, 4096)
        said += piece
        if not piece:
            return said
