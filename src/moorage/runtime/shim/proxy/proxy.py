"""TCP proxy of a public database, for all connections from other machines.

The server itself listens on loopback, where apps of the platform connect to it directly. The proxy listens at the same
port on all other addresses. It limits connections per source address, closes clients that send nothing, and forwards
only clients that request TLS. TLS is between client and server: the proxy forwards the encrypted bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from ipaddress import ip_address
from typing import Final, cast

from moorage.core.kit.processes.process import raise_open_files_limit
from moorage.runtime.shim.proxy.wire import TOO_MANY, TOO_MANY_OF_ADDRESS, WIRES, Verdict, Wire

FIRST_REQUEST_TIMEOUT_S = 5.0  # a client sends its first request within one round trip
TLS_ANSWER_TIMEOUT_S = 30.0  # for a connection to the server and its answer; a restarting server may take long
SERVER_CLOSE_TIMEOUT_S = 5.0  # after the client disconnected; a server in a long query does not read its socket
BACKLOG = 511
BUFFER_BYTES = 256 * 1024
MAX_FIRST_BYTES = 4096
USER_TIMEOUT_MS = 60_000  # A client that acknowledges no data for this long is disconnected.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))


class DatabaseProxy:
    """Forwards to `target`: up to 9/10 of `max_connections`, 3/4 per address.

    The rest is for apps on this machine, and for clients at other addresses. Connections from loopback are neither
    counted nor required to use TLS: they could reach the server directly.

    A server counts a connection until it has detected that the client disconnected. Connections to the server
    therefore have their own semaphore, released when the server closes; a client waits while there are too many.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int], protocol: str, max_connections: int) -> None:
        self.target: Final = target
        self.wire: Final[Wire] = WIRES[protocol]
        self._listener = listener
        self._max_clients = max(1, max_connections - max_connections // 10)
        self._max_per_address = max(1, max_connections * 3 // 4)
        self._admitted: set[_Client] = set()
        self._by_address: Counter[str] = Counter()
        self._silent: dict[_Client, None] = {}  # clients that sent no request yet, oldest first
        self._server: asyncio.Server | None = None
        self._clients: set[_Client] = set()
        self.server_slots: Final = asyncio.Semaphore(self._max_clients)  # connections to the server, without loopback's

    async def open(self) -> None:
        raise_open_files_limit()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), sock=self._listener, backlog=BACKLOG)

    def stop_accepting(self) -> None:
        """Accept no more connections; open ones continue. Safe to repeat."""
        if self._server is not None:
            self._server.close()
        self._listener.close()

    def close(self) -> None:
        """Accept no more connections, and abort the open ones."""
        self.stop_accepting()
        for client in list(self._clients):
            client.abort()

    @property
    def connections(self) -> int:
        return len(self._clients)

    def admit(self, client: _Client) -> str | None:
        """Admit a client, evicting a silent one, or return the reason to refuse it."""
        address = client.address
        if self._by_address[address] >= self._max_per_address and not self._evict(address):
            return TOO_MANY_OF_ADDRESS
        if len(self._admitted) >= self._max_clients and not self._evict(None):
            return TOO_MANY
        self._admitted.add(client)
        self._by_address[address] += 1
        self._silent[client] = None
        return None

    def _evict(self, address: str | None) -> bool:
        oldest = next((each for each in self._silent if address in (None, each.address)), None)
        if oldest is None:
            return False
        oldest.abort()
        self.release(oldest)
        return True

    def mark_active(self, client: _Client) -> None:
        """Stop evicting a client that requested TLS: the server's login timeout applies."""
        self._silent.pop(client, None)

    def add(self, client: _Client) -> None:
        self._clients.add(client)

    def remove(self, client: _Client) -> None:
        self._clients.discard(client)
        self.release(client)

    def release(self, client: _Client) -> None:
        self._silent.pop(client, None)
        if client not in self._admitted:
            return
        self._admitted.discard(client)
        self._by_address[client.address] -= 1
        if not self._by_address[client.address]:
            del self._by_address[client.address]


class _Leg(asyncio.Protocol):
    """One end of a forwarded connection; a full write buffer pauses the other end."""

    transport: asyncio.Transport | None = None
    peer: _Leg | None = None
    is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        self.is_full = True
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.peer is not None:
            self.peer.close()

    def close(self) -> None:
        """Close this end after its write buffer is sent. Safe to repeat."""
        if self.transport is not None:
            self.transport.close()


class _Client(_Leg):
    def __init__(self, proxy: DatabaseProxy) -> None:
        self._proxy = proxy
        self._wire = proxy.wire
        self.address = ""
        self._first = b""
        self._is_local = False
        self._is_forwarded = False
        self.awaits_tls_answer = False
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.add(self)
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        self._is_local = bool(self.address) and ip_address(self.address).is_loopback
        _keep_alive(transport.get_extra_info("socket"))
        if self._is_local:
            self._forward(b"")
            return
        if reason := self._proxy.admit(self):
            self._refuse(self._wire.refuse_too_many(reason))
            return
        self._set_timer(FIRST_REQUEST_TIMEOUT_S)
        if self._wire.server_speaks_first:
            self._connect_server()

    def data_received(self, data: bytes) -> None:
        if self._is_forwarded:
            super().data_received(data)  # Reading is paused while there is no connection to the server.
            return
        self._first += data
        self._handle_first()

    def _handle_first(self) -> None:
        match self._wire.judge(self._first):
            case Verdict.TLS:
                self.awaits_tls_answer = True
                self._forward(self._take_first())
            case Verdict.FORWARD:
                self._forward(self._take_first())
            case Verdict.DECLINE:
                self._first = self._first[self._wire.request_bytes :]
                self._write(self._wire.decline())
                self._handle_first()
            case Verdict.NO_TLS:
                self._refuse(self._wire.refuse_no_tls())
            case Verdict.INVALID:
                self.abort()
            case Verdict.WAIT if len(self._first) > MAX_FIRST_BYTES:
                self.abort()

    def _take_first(self) -> bytes:
        first, self._first = self._first, b""
        return first

    def _forward(self, data: bytes) -> None:
        """Forward `data` and everything that follows."""
        self._proxy.mark_active(self)
        self._is_forwarded = True
        if self.peer is not None and self.peer.transport is not None:
            self._set_timer(None)  # Only a server that speaks first has a connection here.
            self.peer.transport.write(data)
            return
        assert self.transport is not None
        self.transport.pause_reading()  # until the data can be forwarded
        self._set_timer(TLS_ANSWER_TIMEOUT_S)
        self._first = data
        if self._connecting is None:
            self._connect_server()

    def _connect_server(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        if not self._is_local:
            await self._proxy.server_slots.acquire()
        server = _Server(self, None if self._is_local else self._proxy.server_slots)
        try:
            await asyncio.get_running_loop().create_connection(lambda: server, *self._proxy.target)
        except OSError:
            self.abort()
            return
        finally:
            if server.transport is None:
                server.release_slot()
        if self.transport is None or self.transport.is_closing():
            server.close()
            return
        if self._is_forwarded and server.transport is not None:
            server.transport.write(self._take_first())
            if self._wire.server_speaks_first or not self.awaits_tls_answer:
                self._set_timer(None)
        self.transport.resume_reading()

    def on_tls_accepted(self) -> None:
        self.awaits_tls_answer = False
        self._set_timer(None)

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def _refuse(self, answer: bytes) -> None:
        self._is_forwarded = True
        self._first = b""
        self._proxy.release(self)
        self._set_timer(None)
        if self._connecting is not None:
            self._connecting.cancel()
        if self.peer is not None:
            self.peer.close()
        self.peer = None
        self._write(answer)
        if self.transport is not None:
            self.transport.close()

    def _set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else asyncio.get_running_loop().call_later(delay_s, self.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._set_timer(None)
        self._proxy.remove(self)
        if self._connecting is not None:
            self._connecting.cancel()
        super().connection_lost(error)


class _Server(_Leg):
    """The connection to the database server."""

    def __init__(self, client: _Client, slots: asyncio.Semaphore | None) -> None:
        self.peer: _Client = client
        self._slots = slots
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer.peer = self

    def data_received(self, data: bytes) -> None:
        if self.peer.awaits_tls_answer:
            if not self.peer._wire.is_agreed(data):
                self.peer.abort()  # A client with TLS preferred but not required would continue without it.
                return
            self.peer.on_tls_accepted()
        if self.peer.transport is not None:
            self.peer.transport.write(data)

    def close(self) -> None:
        """Send end of file to the server; abort if it does not close in time."""
        if self.transport is None or self._timer is not None:
            return
        self._timer = asyncio.get_running_loop().call_later(SERVER_CLOSE_TIMEOUT_S, self.transport.abort)
        self.transport.resume_reading()
        self.transport.write_eof()

    def release_slot(self) -> None:
        """Let another client connect to the server. Safe to repeat."""
        if self._slots is not None:
            self._slots.release()
        self._slots = None

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.release_slot()
        super().connection_lost(error)


def _keep_alive(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
