"""The supervisor of all sandboxes' networks: `python -m moorage.runtime.sandbox.network.supervisor FD [RESOLV_CONF]`.

It is started with one end of a unix stream socket, over which sandboxes are handed to it, and ends when the other end
is closed. A sandbox is served until its last process has gone. Each turn of the loop takes at most one call of each
sandbox, so one that floods delays nobody else, and one whose calls hold up the loop has to pause.
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
from dataclasses import dataclass, field
from pathlib import Path

from moorage.core.net.own_networks import OwnNetworks
from moorage.runtime.sandbox.network import callers
from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.connects import Connects, Later
from moorage.runtime.sandbox.network.host_sockets import HostPorts
from moorage.runtime.sandbox.network.listeners import Door
from moorage.runtime.sandbox.network.notify import Listener, Notification
from moorage.runtime.sandbox.network.resolver import Resolver, Upstream
from moorage.runtime.sandbox.network.setup import HandOver, Inbox

MOST_WAITING = 256  # calls of one sandbox that wait for a connection
CROWDED_WAITING = 16  # where all sandboxes together have so many that descriptors could run out
PAUSE_S = 0.1  # for a sandbox that rang the alarm

_log = logging.getLogger("moorage.runtime.sandbox.network.supervisor")


class Load:
    """Calls of all sandboxes that wait for a connection; each has a descriptor of this process."""

    def __init__(self) -> None:
        self._crowd = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self.waiting = 0

    @property
    def most_waiting(self) -> int:
        """How many calls of one sandbox may wait at the moment."""
        return MOST_WAITING if self.waiting < self._crowd else CROWDED_WAITING


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sandboxes use of the host."""

    upstream: Upstream
    own: OwnNetworks
    alarm: Alarm
    ports: HostPorts
    load: Load = field(default_factory=Load)


class Cell:
    """One sandbox: its calls, its questions for names, and what is under way for it. The descriptors become its own."""

    def __init__(self, handed: HandOver, shared: Shared, door: Door | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm = shared.alarm
        self._load = shared.load
        self._waiting: set[asyncio.Task[None]] = set()
        with contextlib.ExitStack() as opened:
            self._listener = opened.enter_context(contextlib.closing(Listener(handed.notify_fd)))
            udp = opened.enter_context(socket.socket(fileno=handed.udp_fd))
            tcp = opened.enter_context(socket.socket(fileno=handed.tcp_fd))
            namespace = callers.namespace_of(udp)
            self._connects = Connects(
                self._listener, namespace, handed.policy, shared.own, shared.alarm, shared.ports, door
            )
            opened.pop_all()
        self._resolver = Resolver(shared.upstream, udp, tcp, outside=handed.policy.outside)
        self._resume()

    def close(self) -> None:
        """Serve it no more. Safe to repeat."""
        if self._listener.fd < 0:
            return
        for task in self._waiting:
            task.cancel()
        self._resolver.close()
        self._loop.remove_reader(self._listener.fd)
        self._listener.close()

    def _resume(self) -> None:
        if self._listener.fd >= 0:
            self._loop.add_reader(self._listener.fd, self._ready)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener.fd)
        self._loop.call_later(PAUSE_S, self._resume)

    def _ready(self) -> None:
        events = self._listener.events()
        if events & select.POLLIN:
            self._take()
        elif events:  # It hung up: the last process under the filter has gone.
            self.close()

    def _take(self) -> None:
        call = self._listener.receive()
        if call is None:
            return
        with self._alarm.watch():
            later = self._begin(call)
        if self._alarm.rang:
            self._pause()
        if later is not None:
            task = self._loop.create_task(self._finish(call, later))
            self._waiting.add(task)
            self._load.waiting += 1
            task.add_done_callback(self._finished)

    def _begin(self, call: Notification) -> Later | None:
        """Decide about a call and answer it, unless the answer has to wait. Whatever happens, it is answered."""
        outcome: int | Later = errno.EIO
        try:
            has_room = len(self._waiting) < self._load.most_waiting
            outcome = self._connects.decide(call) if has_room else errno.ENOBUFS
        except OSError as error:
            outcome = _code(error)
        finally:
            if isinstance(outcome, int):
                self._listener.answer(call, outcome)
        return None if isinstance(outcome, int) else outcome

    async def _finish(self, call: Notification, later: Later) -> None:
        code = errno.EIO
        try:
            code = await later
        except OSError as error:
            code = _code(error)
        finally:
            self._listener.answer(call, code)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        self._load.waiting -= 1
        if not task.cancelled() and (error := task.exception()):
            self._loop.call_exception_handler({"message": "a call of a sandbox failed", "exception": error})


def _code(error: OSError) -> int:
    """Tell what to answer. A caller that reads EINTR would wait for a connection that nobody makes."""
    return error.errno if error.errno and error.errno != errno.EINTR else errno.EIO


class Supervisor:
    """Takes in sandboxes until whoever hands them over has gone."""

    def __init__(self, channel: socket.socket, conf: Path) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._inbox = Inbox(channel)
        self._shared = Shared(Upstream(conf), OwnNetworks(), Alarm(), HostPorts())
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel, self._ready)
        await self._ended.wait()
        loop.remove_reader(self._channel)

    def _ready(self) -> None:
        try:
            handed = self._inbox.read()
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.error("the channel of hand-overs is broken: %r", error)
            handed = None
        if handed is None:
            self._ended.set()
        for one in handed or ():
            self._add(one)

    def _add(self, handed: HandOver) -> None:
        try:
            Cell(handed, self._shared)
        except OSError as error:
            _log.error("cannot serve the network of sandbox %s: %s", handed.cell_id, error)


def raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="netd: %(message)s")
    raise_descriptor_limit()
    channel = socket.socket(fileno=int(argv[1]))
    conf = Path(argv[2] if len(argv) > 2 else "/etc/resolv.conf")

    async def run() -> None:
        await Supervisor(channel, conf).serve()

    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv)
