"""Handling of every `connect`, `listen` and `bind` call of a sandbox.

No call continues in the kernel, because its address is in memory that other threads of the caller can change. For an
address in the sandbox's own namespace, the supervisor makes the call itself on a duplicate of the socket. For an
outside address it connects a host socket to the address that it read and checked, and replaces the caller's descriptor
by it. The only host sockets that a sandbox may listen on are its app listeners, if it has any.
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
from dataclasses import field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.core.net.own_networks import OwnNetworks
from moorage.runtime.sandbox import syscalls
from moorage.runtime.sandbox.network import binds, callers
from moorage.runtime.sandbox.network.alarm import Alarm
from moorage.runtime.sandbox.network.callers import Address
from moorage.runtime.sandbox.network.host_sockets import SandboxPorts
from moorage.runtime.sandbox.network.listeners import AppListener, AppListeners
from moorage.runtime.sandbox.network.notify import Notification, SeccompListener
from moorage.runtime.sandbox.network.policy import NetworkPolicy
from moorage.runtime.sandbox.network.setup import OWN_ADDRESS

# "Permission denied" shows that a rule forbids the address; ECONNREFUSED would look like a server that is down.
# Libraries try the next address in both cases.
REFUSED = errno.EACCES
MAX_WAIT_S = 130.0  # The kernel itself gives up after about 127 s.

_CONNECT = syscalls.number("connect")
_LISTEN = syscalls.number("listen")
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_OWN_ADDRESS = ip_address(OWN_ADDRESS)
_TCP_SYN_SENT = 2
_TCP_CLOSE = 7
_UNIX_RETRY_S = 0.02
_REPLACE_RETRY_S = 0.01

PendingCall = Coroutine[Any, Any, int]


@dataclass(frozen=True, slots=True)
class SocketCalls:
    """Handles the calls of one sandbox; returns an errno, or a coroutine for it."""

    listener: SeccompListener
    namespace: bytes
    policy: NetworkPolicy
    own: OwnNetworks
    alarm: Alarm
    ports: SandboxPorts
    app_listeners: AppListeners | None = None
    replacing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def handle(self, call: Notification) -> int | PendingCall:
        """Perform a call as far as possible without waiting; may raise OSError."""
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

    def _listen(self, call: Notification, sock: socket.socket, backlog: int) -> int | PendingCall:
        """Allow `listen` in the sandbox's namespace, and on the app's listeners."""
        apps, is_own = self.app_listeners, self._is_own(sock)
        app = (apps.find_for(sock) if is_own else apps.find_same(sock)) if apps is not None else None
        if not is_own:
            return app.listen(backlog) if app is not None else errno.EACCES
        if app is not None:
            return self._listen_outside(app, call, sock, backlog)
        sock.listen(backlog)
        return 0

    def _listen_outside(
        self, app: AppListener, call: Notification, sock: socket.socket, backlog: int
    ) -> int | PendingCall:
        blocking = not callers.is_nonblocking(sock)
        app.prepare_for(sock)
        try:
            self._replace(call, app.socket, blocking=blocking)
        except InterruptedError:
            return self._finish_listening(app, call, backlog, blocking=blocking)
        return app.listen(backlog)

    async def _finish_listening(self, app: AppListener, call: Notification, backlog: int, *, blocking: bool) -> int:
        await self._replace_when_running(call, app.socket, blocking=blocking)
        return app.listen(backlog)

    def _is_own(self, sock: socket.socket) -> bool:
        return callers.namespace_of(sock) == self.namespace

    def _connect(self, call: Notification, sock: socket.socket, address: Address) -> int | PendingCall:
        if sock.family == socket.AF_UNIX:
            return self._connect_unix(call, sock, address) if self._is_own(sock) else REFUSED
        if sock.family in _INTERNET and sock.type == socket.SOCK_STREAM:
            return self._connect_tcp(call, sock, address)
        if sock.family in _INTERNET and self._is_own(sock):  # UDP reaches only the sandbox's own loopback.
            return callers.connect_borrowed(sock, address.data)
        return REFUSED

    def _connect_tcp(self, call: Notification, sock: socket.socket, address: Address) -> int | PendingCall:
        is_own, state = self._is_own(sock), callers.tcp_state(sock)
        host_address = self._find_host_address(address)
        is_inside = host_address is None and address.ip is not None and _is_inside(address.ip)
        if is_own and (is_inside or address.family == socket.AF_UNSPEC or state != _TCP_CLOSE):
            return self._connect_inside(sock, address)
        if address.family != sock.family:
            return errno.EAFNOSUPPORT
        if not is_own and (code := _repeated_connect_code(sock, state)):
            return code
        if host_address is None and (is_inside or self.policy.refusal(str(address.ip), self.own.get())):
            return REFUSED
        return self._connect_outside(call, sock, host_address or address)

    def _find_host_address(self, address: Address) -> Address | None:
        """Return the host address for an egress rule or for the sandbox's own app."""
        if address.ip is None:
            return None
        if self.policy.has_egress_rule(address.ip, address.port):
            return address
        is_own_app = self.app_listeners is not None and _is_inside(address.ip)
        app = self.app_listeners.find_at(address.port) if self.app_listeners and is_own_app else None
        return app.address(address) if app is not None else None

    def _connect_inside(self, sock: socket.socket, address: Address) -> int | PendingCall:
        blocking = not callers.is_nonblocking(sock)
        code = callers.connect_borrowed(sock, address.data)
        if code == errno.EINPROGRESS and blocking:
            return self._finish_inside(sock.dup(), address, _send_timeout(sock))
        return code

    async def _finish_inside(self, sock: socket.socket, address: Address, timeout: float | None) -> int:
        with self._closing(sock):
            if not await _is_writable(sock, timeout):
                return errno.EINPROGRESS if timeout else errno.ETIMEDOUT
            with self.alarm.watch():
                return callers.connect_borrowed(sock, address.data)

    def _connect_outside(self, call: Notification, sock: socket.socket, address: Address) -> int | PendingCall:
        blocking, timeout = not callers.is_nonblocking(sock), _send_timeout(sock)
        host, code = self.ports.start_connecting(sock, address)
        if code == errno.EINPROGRESS and blocking:
            return self._finish_outside(call, host, address, timeout)
        if code in (0, errno.EINPROGRESS):
            try:
                self._replace(call, host, blocking=blocking)
            except InterruptedError:
                return self._finish_replacing(call, host, code, blocking=blocking)
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
                await self._replace_when_running(call, host, blocking=True)
            return code

    async def _finish_replacing(self, call: Notification, host: socket.socket, code: int, *, blocking: bool) -> int:
        with self._closing(host):
            await self._replace_when_running(call, host, blocking=blocking)
            return code

    async def _replace_when_running(self, call: Notification, host: socket.socket, *, blocking: bool) -> None:
        """Replace the caller's descriptor when the caller runs: retry, one at a time."""
        pause = _REPLACE_RETRY_S
        async with self.replacing:
            while True:
                try:
                    with self.alarm.watch():
                        self._replace(call, host, blocking=blocking)
                    return
                except InterruptedError:
                    await asyncio.sleep(pause)
                pause = min(2 * pause, 1)

    def _replace(self, call: Notification, host: socket.socket, *, blocking: bool) -> None:
        fd = _signed(call.arguments[0])
        host.setblocking(blocking)
        self.listener.replace_descriptor(call, host.fileno(), fd, cloexec=callers.closes_on_exec(call, fd))

    def _connect_unix(self, call: Notification, sock: socket.socket, address: Address) -> int | PendingCall:
        """Connect to an abstract name or a path of the sandbox itself."""
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

    def _try_unix(self, sock: socket.socket, address: bytes, target: int | None) -> int | PendingCall:
        blocking = not callers.is_nonblocking(sock)
        code = callers.connect_borrowed(sock, address)
        return self._retry_unix(sock.dup(), address, target) if code == errno.EAGAIN and blocking else code

    async def _retry_unix(self, sock: socket.socket, address: bytes, target: int | None) -> int:
        """Retry until the listener's backlog has room: the kernel has no event for this."""
        with self._closing(sock), _closing_fd(target):
            code, deadline = errno.EAGAIN, asyncio.get_running_loop().time() + MAX_WAIT_S
            while code == errno.EAGAIN and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(_UNIX_RETRY_S)
                with self.alarm.watch():
                    code = callers.connect_borrowed(sock, address)
            return code

    def _open_unix_socket(self, call: Notification, path: bytes) -> int:
        """Open a unix socket by path; it must belong to the caller's own user."""
        target = callers.open_path(call, path, is_absolute=path.startswith(b"/"))
        info = os.fstat(target)
        try:
            is_theirs = stat.S_ISSOCK(info.st_mode) and info.st_uid == callers.filesystem_user(call)
            self.listener.require_waiting(call)
            if not is_theirs:
                raise OSError(errno.ECONNREFUSED, "this is not a socket of the sandbox")
        except OSError:
            os.close(target)
            raise
        return target

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
    """Convert an argument to the C `int` that the kernel reads."""
    low = word & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _is_inside(ip: IPv4Address | IPv6Address) -> bool:
    return ip.is_loopback or ip.is_unspecified or ip == _OWN_ADDRESS


def _repeated_connect_code(host: socket.socket, state: int) -> int:
    """Return the errno of a repeated `connect`; 0 if the socket may connect again."""
    if state == _TCP_CLOSE:
        return host.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.EALREADY if state == _TCP_SYN_SENT else errno.EISCONN


def _send_timeout(sock: socket.socket) -> float | None:
    seconds, microseconds = struct.unpack("=qq", sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16))
    return seconds + microseconds / 1e6 or None


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _is_writable(sock: socket.socket, timeout: float | None) -> bool:
    """Wait until a connection is established or has failed; False on a timeout."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _wake, ready)
    try:
        await asyncio.wait_for(ready, min(timeout or MAX_WAIT_S, MAX_WAIT_S))
    except TimeoutError:
        return False
    finally:
        loop.remove_writer(sock)
    return True
