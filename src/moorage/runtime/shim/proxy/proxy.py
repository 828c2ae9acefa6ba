"""The proxy of a public database: every connection from another machine passes it on the way to the server.

The server itself listens on loopback, where apps of the platform connect to it directly. The proxy listens at the same
port on all other addresses. It admits connections by source address, so that one address cannot take all of them; it
closes those that stay silent; and it forwards only clients that ask for TLS. What follows is encrypted between client
and server, and passes through unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from ipaddress import ip_address
from typing import Final, cast

from moorage.core.kit.process import open_many
from moorage.runtime.shim.proxy.wire import TOO_MANY, TOO_MANY_OF_ADDRESS, WIRES, Verdict, Wire

SILENT_S = 5.0  # for the first request; a client answers within one round trip
ANSWER_S = 30.0  # for the server to agree to TLS; one that starts again may take long
LEAVE_S = 5.0  # for the server to close a connection whose client has left; one in a long query does not read
BACKLOG = 511
BUFFER_BYTES = 256 * 1024
MOST_FIRST_BYTES = 4096
USER_TIMEOUT_MS = 60_000  # A client that acknowledges nothing for so long is gone.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))


class DatabaseProxy:
    """Forwards connections at `listener` to `target`; at most nine tenths of `most`, and three quarters per address.

    The rest stays for apps on this machine, and for clients at other addresses. Connections from loopback are neither
    counted nor required to use TLS: they could reach the server directly.

    A server counts a connection until it has noticed that the client left. Connections to the server are therefore
    counted by themselves, until the server has closed them, and a client waits while there are too many.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int], protocol: str, most: int) -> None:
        self.target: Final = target
        self.wire: Final[Wire] = WIRES[protocol]
        self._listener = listener
        self._most = max(1, most - most // 10)
        self._most_per_address = max(1, most * 3 // 4)
        self._admitted: set[_Client] = set()
        self._by_address: Counter[str] = Counter()
        self._silent: dict[_Client, None] = {}  # in the order in which they came
        self._server: asyncio.Server | None = None
        self._clients: set[_Client] = set()
        self.places: Final = asyncio.Semaphore(self._most)  # connections to the server, of clients that count

    async def open(self) -> None:
        open_many()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), sock=self._listener, backlog=BACKLOG)

    def shut(self) -> None:
        """Take no more connections; those that are open stay. Safe to repeat."""
        if self._server is not None:
            self._server.close()
        self._listener.close()

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        self.shut()
        for client in list(self._clients):
            client.abort()

    @property
    def connections(self) -> int:
        return len(self._clients)

    def admit(self, client: _Client) -> str | None:
        """Count a new client in; return why it is refused otherwise. A silent one makes room for a new one."""
        address = client.address
        if self._by_address[address] >= self._most_per_address and not self._evict(address):
            return TOO_MANY_OF_ADDRESS
        if len(self._admitted) >= self._most and not self._evict(None):
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

    def heard(self, client: _Client) -> None:
        """Take note that a client has asked for TLS: from now on the server's own time limit ends it."""
        self._silent.pop(client, None)

    def begun(self, client: _Client) -> None:
        self._clients.add(client)

    def ended(self, client: _Client) -> None:
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
    """One end of a forwarded connection. What one end cannot take yet is not read from the other."""

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
            self.peer.leave()

    def leave(self) -> None:
        """Close this end once it has taken what is on its way to it. Safe to repeat."""
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
        self.awaits_agreement = False
        self._timer: asyncio.TimerHandle | None = None
        self._reaching: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.begun(self)
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        self._is_local = bool(self.address) and ip_address(self.address).is_loopback
        _keep_alive(transport.get_extra_info("socket"))
        if self._is_local:
            self._forward(b"")
            return
        if why := self._proxy.admit(self):
            self._refuse(self._wire.refuse_too_many(why))
            return
        self._set_timer(SILENT_S)
        if self._wire.server_speaks_first:
            self._reach()

    def data_received(self, data: bytes) -> None:
        if self._is_forwarded:
            if self.peer is None or self.peer.transport is None:  # It is being connected.
                self._first += data
            else:
                self.peer.transport.write(data)
            return
        self._first += data
        self._judge()

    def _judge(self) -> None:
        match self._wire.judge(self._first):
            case Verdict.TLS:
                self.awaits_agreement = True
                self._forward(self._take())
            case Verdict.FORWARD:
                self._forward(self._take())
            case Verdict.DECLINE:
                self._first = self._first[self._wire.request_bytes :]
                self._write(self._wire.decline())
                self._judge()
            case Verdict.NO_TLS:
                self._refuse(self._wire.refuse_no_tls())
            case Verdict.INVALID:
                self.abort()
            case Verdict.WAIT if len(self._first) > MOST_FIRST_BYTES:
                self.abort()

    def _take(self) -> bytes:
        taken, self._first = self._first, b""
        return taken

    def _forward(self, data: bytes) -> None:
        """Forward what was read so far, and everything from now on."""
        self._proxy.heard(self)
        self._is_forwarded = True
        self._set_timer(ANSWER_S if self.awaits_agreement and not self._wire.server_speaks_first else None)
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)
            return
        self._first = data
        if self._reaching is None:
            self._reach()

    def _reach(self) -> None:
        assert self.transport is not None
        if not self._wire.server_speaks_first or self._is_forwarded:
            self.transport.pause_reading()  # Nothing is read that could not be passed on.
        self._reaching = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        if not self._is_local:
            await self._proxy.places.acquire()
        server = _Server(self, None if self._is_local else self._proxy.places)
        try:
            await asyncio.get_running_loop().create_connection(lambda: server, *self._proxy.target)
        except OSError:
            self.abort()
            return
        finally:
            if server.transport is None:
                server.give_back()
        if self.transport is None or self.transport.is_closing():
            server.leave()
            return
        if self._is_forwarded and server.transport is not None:
            server.transport.write(self._take())
        self.transport.resume_reading()

    def agreed(self) -> None:
        self.awaits_agreement = False
        self._set_timer(None)

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def _refuse(self, answer: bytes) -> None:
        """Answer with an error and close."""
        self._is_forwarded = True
        self._first = b""
        self._proxy.release(self)
        self._set_timer(None)
        if self._reaching is not None:
            self._reaching.cancel()
        if self.peer is not None:
            self.peer.leave()
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
        self._proxy.ended(self)
        if self._reaching is not None:
            self._reaching.cancel()
        super().connection_lost(error)


class _Server(_Leg):
    """The end towards the database server."""

    def __init__(self, client: _Client, places: asyncio.Semaphore | None) -> None:
        self.peer: _Client = client
        self._places = places
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer.peer = self

    def data_received(self, data: bytes) -> None:
        if self.peer.awaits_agreement:
            if not self.peer._wire.is_agreed(data):
                self.peer.abort()  # A client that prefers TLS would go on without.
                return
            self.peer.agreed()
        if self.peer.transport is not None:
            self.peer.transport.write(data)

    def leave(self) -> None:
        """Tell the server that the client has left, and wait for the server to close, for some seconds."""
        if self.transport is None or self._timer is not None:
            return
        self._timer = asyncio.get_running_loop().call_later(LEAVE_S, self.transport.abort)
        self.transport.resume_reading()
        self.transport.write_eof()

    def give_back(self) -> None:
        """Let another client connect to the server. Safe to repeat."""
        if self._places is not None:
            self._places.release()
        self._places = None

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.give_back()
        super().connection_lost(error)


def _keep_alive(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
