"""The decision about every `connect`, `listen` and `bind` of a sandbox, and what stands in for the call.

No call is ever let through to the kernel as it is, because its address lies in memory that other threads of the caller
can write. Inside its own namespace the supervisor makes the call itself, on a duplicate of the socket. To the outside
it connects a socket of the host to the address that it read and judged, and puts it in the place of the caller's. The
one socket of the host that a sandbox may listen with is its door, where it has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import struct
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from moorage.core.net.own_networks import OwnNetworks
from moorage.runtime.sandbox import syscalls
from moorage.runtime.sandbox.network import binds, callers
from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.host_sockets import HostPorts
from moorage.runtime.sandbox.network.listeners import Door
from moorage.runtime.sandbox.network.notify import Listener, Notification
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.sandbox.network.setup import OWN_ADDRESS

# What a refused address is answered with. "Permission denied" tells a user that a rule forbids the address;
# ECONNREFUSED would send them to look for a server that is down. Libraries go on to the next address either way.
REFUSED = errno.EACCES
LONGEST_WAIT_S = 130.0  # The kernel itself gives up after about 127 s.

_CONNECT = syscalls.number("connect")
_LISTEN = syscalls.number("listen")
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_OWN_ADDRESS = ip_address(OWN_ADDRESS)
_TCP_SYN_SENT = 2
_TCP_CLOSE = 7
_UNIX_RETRY_S = 0.02
_PLACE_RETRY_S = 0.01

Later = Coroutine[Any, Any, int]


@dataclass(frozen=True, slots=True)
class Connects:
    """Decides for one sandbox. An outcome is the errno to answer with, or a coroutine that will know it."""

    listener: Listener
    namespace: bytes
    policy: NetworkPolicy
    own: OwnNetworks
    alarm: Alarm
    ports: HostPorts
    door: Door | None = None
    placing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def decide(self, call: Notification) -> int | Later:
        """Carry out a call as far as this goes without waiting. An `OSError` is an outcome as well."""
        if call.thread_id == 0:
            return errno.EPERM
        fd = _signed(call.arguments[0])
        if call.number == _LISTEN:
            with callers.borrow_socket(call, fd) as sock:
                self.listener.require_waiting(call)
                return self._listen(call, sock, _signed(call.arguments[1]))
        address = callers.read_address(call, call.arguments[1], _signed(call.arguments[2]))
        with callers.borrow_socket(call, fd) as sock:
            self.listener.require_waiting(call)
            if call.number == _CONNECT:
                return self._connect(call, sock, address)
            return binds.bind(self.listener, call, sock, address) if self._is_own(sock) else errno.EINVAL

    def _listen(self, call: Notification, sock: socket.socket, backlog: int) -> int | Later:
        """Let a sandbox serve itself; no socket of the host but its door may become a way into it."""
        if not self._is_own(sock):
            is_door = self.door is not None and self.door.is_itself(sock)
            return self.door.open(backlog) if self.door and is_door else errno.EACCES
        if self.door is not None and self.door.is_for(sock):
            return self._open_door(self.door, call, sock, backlog)
        sock.listen(backlog)
        return 0

    def _open_door(self, door: Door, call: Notification, sock: socket.socket, backlog: int) -> int | Later:
        waits = not callers.is_nonblocking(sock)
        door.resemble(sock)
        try:
            self._put_in_place(call, door.socket, waits=waits)
        except InterruptedError:
            return self._finish_opening(door, call, backlog, waits=waits)
        return door.open(backlog)

    async def _finish_opening(self, door: Door, call: Notification, backlog: int, *, waits: bool) -> int:
        await self._place(call, door.socket, waits=waits)
        return door.open(backlog)

    def _is_own(self, sock: socket.socket) -> bool:
        return callers.namespace_of(sock) == self.namespace

    def _connect(self, call: Notification, sock: socket.socket, address: Address) -> int | Later:
        if sock.family == socket.AF_UNIX:
            return self._connect_unix(call, sock, address) if self._is_own(sock) else REFUSED
        if sock.family in _INTERNET and sock.type == socket.SOCK_STREAM:
            return self._connect_tcp(call, sock, address)
        if sock.family in _INTERNET and self._is_own(sock):  # Datagrams find their own loopback and nothing else.
            return callers.connect_borrowed(sock, address.data)
        return REFUSED

    def _connect_tcp(self, call: Notification, sock: socket.socket, address: Address) -> int | Later:
        is_own, state = self._is_own(sock), callers.tcp_state(sock)
        through = self._through_door(address)
        is_inside = through is None and address.ip is not None and _is_inside(address.ip)
        if is_own and (is_inside or address.family == socket.AF_UNSPEC or state != _TCP_CLOSE):
            return self._connect_inside(sock, address)
        if address.family != sock.family:
            return errno.EAFNOSUPPORT
        if not is_own and (code := _outcome_so_far(sock, state)):
            return code
        if through is None and (is_inside or self.policy.refusal(str(address.ip), self.own.get())):
            return REFUSED
        return self._connect_outside(call, sock, through or address)

    def _through_door(self, address: Address) -> Address | None:
        """Return where on the host a call leads that would otherwise stay inside, or be refused."""
        if address.ip is None:
            return None
        if self.policy.is_door(address.ip, address.port):
            return address
        is_called = self.door is not None and address.port == self.door.port and _is_inside(address.ip)
        return self.door.address(address) if self.door and is_called else None

    def _connect_inside(self, sock: socket.socket, address: Address) -> int | Later:
        waits = not callers.is_nonblocking(sock)
        code = callers.connect_borrowed(sock, address.data)
        if code == errno.EINPROGRESS and waits:
            return self._finish_inside(sock.dup(), address, _send_timeout(sock))
        return code

    async def _finish_inside(self, sock: socket.socket, address: Address, timeout: float | None) -> int:
        with self._closing(sock):
            if not await _is_writable(sock, timeout):
                return errno.EINPROGRESS if timeout else errno.ETIMEDOUT
            with self.alarm.watch():
                return callers.connect_borrowed(sock, address.data)

    def _connect_outside(self, call: Notification, sock: socket.socket, address: Address) -> int | Later:
        waits, timeout = not callers.is_nonblocking(sock), _send_timeout(sock)
        host, code = self.ports.start_connecting(sock, address)
        if code == errno.EINPROGRESS and waits:
            return self._finish_outside(call, host, address, timeout)
        if code in (0, errno.EINPROGRESS):
            try:
                self._put_in_place(call, host, waits=waits)
            except InterruptedError:
                return self._finish_placing(call, host, code, waits=waits)
            except OSError:
                host.close()
                raise
        host.close()
        return code

    async def _finish_outside(
        self, call: Notification, host: socket.socket, address: Address, timeout: float | None
    ) -> int:
        with self._closing(host):
            code = errno.EINPROGRESS if timeout else errno.ETIMEDOUT
            if await _is_writable(host, timeout):
                code = host.connect_ex(address.for_socket(host.family))
            if code in (0, errno.EINPROGRESS):
                await self._place(call, host, waits=True)
            return code

    async def _finish_placing(self, call: Notification, host: socket.socket, code: int, *, waits: bool) -> int:
        with self._closing(host):
            await self._place(call, host, waits=waits)
            return code

    async def _place(self, call: Notification, host: socket.socket, *, waits: bool) -> None:
        """Put a socket in place as soon as the caller runs. One at a time tries it, and less and less often."""
        pause = _PLACE_RETRY_S
        async with self.placing:
            while True:
                try:
                    with self.alarm.watch():
                        self._put_in_place(call, host, waits=waits)
                    return
                except InterruptedError:
                    await asyncio.sleep(pause)
                pause = min(2 * pause, 1)

    def _put_in_place(self, call: Notification, host: socket.socket, *, waits: bool) -> None:
        fd = _signed(call.arguments[0])
        host.setblocking(waits)
        self.listener.put_in_place(call, host.fileno(), fd, cloexec=callers.closes_on_exec(call, fd))

    def _connect_unix(self, call: Notification, sock: socket.socket, address: Address) -> int | Later:
        """Connect to a unix socket of the sandbox itself: an abstract name of its namespace, or a path in its root."""
        path = address.data[2:].partition(b"\0")[0]
        if address.family != socket.AF_UNIX or not path:
            return self._try_unix(sock, address.data, None)
        target = self._open_unix_socket(call, path)
        try:
            inode = f"/proc/self/fd/{target}".encode()
            outcome = self._try_unix(sock, struct.pack("=H", socket.AF_UNIX) + inode + b"\0", target)
        except OSError:
            os.close(target)
            raise
        if isinstance(outcome, int):
            os.close(target)
        return outcome

    def _try_unix(self, sock: socket.socket, address: bytes, target: int | None) -> int | Later:
        waits = not callers.is_nonblocking(sock)
        code = callers.connect_borrowed(sock, address)
        return self._retry_unix(sock.dup(), address, target) if code == errno.EAGAIN and waits else code

    async def _retry_unix(self, sock: socket.socket, address: bytes, target: int | None) -> int:
        """Try until the listener's queue has room: the kernel offers nothing else to wait for."""
        with self._closing(sock), _closing_fd(target):
            code, deadline = errno.EAGAIN, asyncio.get_running_loop().time() + LONGEST_WAIT_S
            while code == errno.EAGAIN and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(_UNIX_RETRY_S)
                with self.alarm.watch():
                    code = callers.connect_borrowed(sock, address)
            return code

    def _open_unix_socket(self, call: Notification, path: bytes) -> int:
        """Find a path as the caller sees it. Only a socket that the caller's own user made is good enough."""
        place = "root" if path.startswith(b"/") else "cwd"
        resolve = syscalls.RESOLVE_IN_ROOT if path.startswith(b"/") else syscalls.RESOLVE_BENEATH
        root = os.open(f"/proc/{call.thread_id}/{place}", os.O_PATH | os.O_DIRECTORY)
        try:
            found = syscalls.openat2(root, path, os.O_PATH | os.O_CLOEXEC, resolve | syscalls.RESOLVE_NO_MAGICLINKS)
        finally:
            os.close(root)
        info = os.fstat(found)
        try:
            is_theirs = stat.S_ISSOCK(info.st_mode) and info.st_uid == callers.filesystem_user(call)
            self.listener.require_waiting(call)
            if not is_theirs:
                raise OSError(errno.ECONNREFUSED, "this is not a socket of the sandbox")
        except OSError:
            os.close(found)
            raise
        return found

    @contextlib.contextmanager
    def _closing(self, sock: socket.socket) -> Iterator[None]:
        try:
            yield
        finally:
            with self.alarm.watch():
                sock.close()


@contextlib.contextmanager
def _closing_fd(fd: int | None) -> Iterator[None]:
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _signed(word: int) -> int:
    """Read an argument as the C `int` that the kernel takes it for."""
    low = word & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _is_inside(ip: IPv4Address | IPv6Address) -> bool:
    return ip.is_loopback or ip.is_unspecified or ip == _OWN_ADDRESS


def _outcome_so_far(host: socket.socket, state: int) -> int:
    """Answer a repeated connect on a socket of the host as the kernel would; 0 when it is free for a new one."""
    if state == _TCP_CLOSE:
        return host.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.EALREADY if state == _TCP_SYN_SENT else errno.EISCONN


def _send_timeout(sock: socket.socket) -> float | None:
    seconds, microseconds = struct.unpack("=qq", sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))
    return seconds + microseconds / 1e6 or None


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _is_writable(sock: socket.socket, timeout: float | None) -> bool:
    """Wait until a connection is made or has failed; False when the time is up."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _wake, ready)
    try:
        await asyncio.wait_for(ready, min(timeout or LONGEST_WAIT_S, LONGEST_WAIT_S))
    except TimeoutError:
        return False
    finally:
        loop.remove_writer(sock)
    return True
