"""Network supervisor of sandboxes.

`python -m moorage.runtime.sandbox.network.supervisor FD [RESOLV_CONF]`: FD is one end of a unix stream socket, over
which it receives the descriptors of sandboxes; the supervisor exits when the other end is closed. It serves a sandbox
until its last process has exited. Each turn of the event loop handles at most one call per sandbox, so a flood of one
does not delay others; a sandbox whose calls block the loop is paused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import select
import socket
import sys
from dataclasses import field
from pathlib import Path

from moorage.core.kit.records import dataclass
from moorage.core.net.own_networks import OwnNetworks
from moorage.runtime.sandbox.network import callers
from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.host_sockets import HostPorts, SandboxPorts
from moorage.runtime.sandbox.network.listeners import AppListeners
from moorage.runtime.sandbox.network.notify import Notification, SeccompListener
from moorage.runtime.sandbox.network.resolver import Resolver, Upstream
from moorage.runtime.sandbox.network.setup import SandboxReceiver, SandboxSockets
from moorage.runtime.sandbox.network.socket_calls import PendingCall, SocketCalls

MAX_PENDING_CALLS = 256  # of one sandbox, waiting for a connection
MAX_PENDING_CALLS_CROWDED = 16  # while all sandboxes together could use up the descriptors
SLOW_CALL_PAUSE_S = 0.1  # for a sandbox whose call triggered the alarm

_log = logging.getLogger("moorage.runtime.sandbox.network.supervisor")


class PendingCalls:
    """Number of pending calls of all sandboxes; each uses a descriptor."""

    def __init__(self) -> None:
        self._crowded_at = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self.count = 0

    @property
    def max_per_sandbox(self) -> int:
        return MAX_PENDING_CALLS if self.count < self._crowded_at else MAX_PENDING_CALLS_CROWDED


@dataclass(frozen=True, slots=True)
class SharedResources:
    """Host resources that all sandboxes share."""

    upstream: Upstream
    own: OwnNetworks
    alarm: Alarm
    ports: HostPorts
    pending: PendingCalls = field(default_factory=PendingCalls)


class SandboxNetwork:
    """Serves the socket calls and DNS queries of one sandbox. Owns the descriptors."""

    def __init__(
        self, sockets: SandboxSockets, shared: SharedResources, app_listeners: AppListeners | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm = shared.alarm
        self._all_pending = shared.pending
        self._pending: set[asyncio.Task[None]] = set()
        policy = sockets.policy
        with contextlib.ExitStack() as opened:
            self._listener = opened.enter_context(contextlib.closing(SeccompListener(sockets.notify_fd)))
            udp = opened.enter_context(socket.socket(fileno=sockets.udp_fd))
            tcp = opened.enter_context(socket.socket(fileno=sockets.tcp_fd))
            namespace = callers.namespace_of(udp)
            ports = SandboxPorts(shared.ports)
            self._calls = SocketCalls(self._listener, namespace, policy, shared.own, shared.alarm, ports, app_listeners)
            opened.pop_all()
        self._resolver = Resolver(shared.upstream, udp, tcp, outside=policy.outside)
        self._resume()

    def close(self) -> None:
        """Stop serving the sandbox. Safe to repeat."""
        if self._listener.fd < 0:
            return
        for task in self._pending:
            task.cancel()
        self._resolver.close()
        self._loop.remove_reader(self._listener.fd)
        self._listener.close()

    def _resume(self) -> None:
        if self._listener.fd >= 0:
            self._loop.add_reader(self._listener.fd, self._ready)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener.fd)
        self._loop.call_later(SLOW_CALL_PAUSE_S, self._resume)

    def _ready(self) -> None:
        events = self._listener.events()
        if events & select.POLLIN:
            self._handle_call()
        elif events:  # POLLHUP: the last process under the filter has exited.
            self.close()

    def _handle_call(self) -> None:
        call = self._listener.receive()
        if call is None:
            return
        with self._alarm.watch():
            pending = self._begin(call)
        if self._alarm.rang:
            self._pause()
        if pending is not None:
            task = self._loop.create_task(self._finish(call, pending))
            self._pending.add(task)
            self._all_pending.count += 1
            task.add_done_callback(self._on_finished)

    def _begin(self, call: Notification) -> PendingCall | None:
        """Handle a call and answer it, also on failure, unless it has to wait."""
        outcome: int | PendingCall = errno.EIO
        try:
            has_room = len(self._pending) < self._all_pending.max_per_sandbox
            outcome = self._calls.handle(call) if has_room else errno.ENOBUFS
        except OSError as error:
            outcome = _code(error)
        finally:
            if isinstance(outcome, int):
                self._listener.answer(call, outcome)
        return None if isinstance(outcome, int) else outcome

    async def _finish(self, call: Notification, pending: PendingCall) -> None:
        code = errno.EIO
        try:
            code = await pending
        except OSError as error:
            code = _code(error)
        finally:
            self._listener.answer(call, code)

    def _on_finished(self, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        self._all_pending.count -= 1
        if not task.cancelled() and (error := task.exception()):
            self._loop.call_exception_handler({"message": "a call of a sandbox failed", "exception": error})


def _code(error: OSError) -> int:
    """Return the errno to answer; after EINTR a caller would wait forever."""
    return error.errno if error.errno and error.errno != errno.EINTR else errno.EIO


class NetworkSupervisor:
    """Accepts sandboxes until the sender closes the socket."""

    def __init__(self, channel: socket.socket, conf: Path) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._receiver = SandboxReceiver(channel)
        self._shared = SharedResources(Upstream(conf), OwnNetworks(), Alarm(), HostPorts())
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel, self._ready)
        await self._ended.wait()
        loop.remove_reader(self._channel)

    def _ready(self) -> None:
        try:
            received = self._receiver.read()
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.error("cannot read from the socket that sends sandboxes, exiting: %r", error)
            received = None
        if received is None:
            self._ended.set()
        for sockets in received or ():
            self._add(sockets)

    def _add(self, sockets: SandboxSockets) -> None:
        try:
            SandboxNetwork(sockets, self._shared)
        except OSError as error:
            _log.error("cannot serve the network of sandbox %s: %s", sockets.sandbox_id, error)


def raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="netd: %(message)s")
    raise_descriptor_limit()
    channel = socket.socket(fileno=int(argv[1]))
    conf = Path(argv[2] if len(argv) > 2 else "/etc/resolv.conf")

    async def run() -> None:
        await NetworkSupervisor(channel, conf).serve()

    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv)
