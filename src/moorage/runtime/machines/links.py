"""Connections between machines: a port of another machine's loopback as a port of this one's.

Replicas and database servers listen on loopback. A link listens on loopback here and forwards each connection, over
mutually authenticated TLS, to the machine that owns the target; that machine connects to its own loopback. It accepts
ports of its replicas and database servers, and the API, and refuses all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.core.env import Env
from moorage.core.telemetry import Telemetry
from moorage.errors import CannotStart

if TYPE_CHECKING:
    from moorage.runtime.machines.certificates import Contexts

LOOPBACK = "127.0.0.1"
REMOTE_HOST = "machine-"  # `machine-<id>:<port>` names a port of another machine
API = 0  # port in the request for the API of a machine
CONNECT_TIMEOUT_S = 3.0
# A machine whose control process restarts accepts connections again within seconds.
RECONNECT_FOR_S = 10.0
RECONNECT_INTERVAL_S = 0.2
UNUSED_FOR_S = 60.0
CHUNK_BYTES = 2**16
MAX_REQUEST_BYTES = 32
ACCEPTED = b"ok\n"
BACKLOG = 1024

Target = tuple[int, int]  # machine and port


class Links:
    def __init__(self, env: Env, telemetry: Telemetry) -> None:
        self._env = env
        self._telemetry = telemetry
        self.peers: dict[int, str] = {}  # by machine: its address
        self.is_own_port: list[Callable[[int], bool]] = []  # whether a product serves a port of this machine
        self._contexts: Contexts | None = None
        self._forwards: dict[Target, _Forward] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    # Connections of other machines.

    async def listen(self, host: str, port: int, last_port: Path | None = None) -> str:
        """Accept connections of other machines; return `host:port`. Safe to repeat.

        Port 0 is the one in the file `last_port`, if it is free, else any; the file has the port afterwards.
        """
        if self._server is None:
            former = _read_port(last_port) if last_port is not None and not port else 0
            try:
                self._server = await self._listen(host, former or port)
            except OSError as error:
                if not former:
                    raise CannotStart(
                        f"cannot listen on {host}:{port} for other machines: {error.strerror}; "
                        "set MOORAGE_MACHINE_ADDRESS"
                    ) from error
                self._server = await self._listen(host, port)
        number = self._server.sockets[0].getsockname()[1]
        if last_port is not None:
            last_port.write_text(str(number))
        return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accept, host, port, ssl=self._tls().server, backlog=BACKLOG)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            port = await asyncio.wait_for(_read_request(reader), CONNECT_TIMEOUT_S)
            if port is None or not self._may_reach(port):
                return
            settings = self._env.settings
            host = LOOPBACK if port != API else _reachable(settings.host)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                to_reader, to_writer = await asyncio.open_connection(host, port or settings.api_port)
            writer.write(ACCEPTED)
            await pump_both(reader, writer, to_reader, to_writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return
        finally:
            self._connections.discard(task)
            writer.close()

    def _may_reach(self, port: int) -> bool:
        return port == API or any(is_own(port) for is_own in self.is_own_port)

    # Connections to other machines.

    def local_address(self, address: str) -> str:
        """Return an address on this machine for `machine-<id>:<port>`; other addresses are returned unchanged."""
        host, _, port = address.rpartition(":")
        if not host.startswith(REMOTE_HOST):
            return address
        return f"{LOOPBACK}:{self.local_port(int(host.removeprefix(REMOTE_HOST)), int(port))}"

    def local_port(self, machine_id: int, port: int) -> int:
        """Return a port of this machine's loopback that is forwarded to a port of another machine."""
        forward = self._forwards.get((machine_id, port))
        if forward is None:
            forward = self._forwards[machine_id, port] = _Forward(self, (machine_id, port), 0)
        forward.used_at = time.monotonic()
        return forward.port

    def keep(self, targets: Iterable[Target]) -> None:
        """Forward these ports from equal ports of this machine, and stop forwarding ports that are unused."""
        wanted = set(targets)
        for target in wanted:
            if target not in self._forwards:
                with contextlib.suppress(OSError):  # Another program has the port; a later call tries again.
                    self._forwards[target] = _Forward(self, target, target[1])
            if target in self._forwards:
                self._forwards[target].used_at = time.monotonic()
        before = time.monotonic() - UNUSED_FOR_S
        for target in [each for each, forward in self._forwards.items() if forward.used_at < before]:
            self._forwards.pop(target).close()

    async def connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of another machine; raises OSError and TimeoutError."""
        machine_id, port = target
        host, _, number = self.peers.get(machine_id, "").rpartition(":")
        if not host:
            raise ConnectionError(f"machine {machine_id} has no address")
        from moorage.runtime.machines.certificates import host_of

        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(number), ssl=self._tls().client, server_hostname=host_of(machine_id)
            )
            try:
                writer.write(f"{port}\n".encode())
                if await reader.readexactly(len(ACCEPTED)) != ACCEPTED:
                    raise ConnectionError(f"machine {machine_id} does not serve port {port}")
            except BaseException:
                writer.close()
                raise
        return reader, writer

    async def close(self) -> None:
        for forward in self._forwards.values():
            forward.close()
        self._forwards.clear()
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _tls(self) -> Contexts:
        if self._contexts is None:
            # A sole machine does without the library, which takes 9 MB.
            from moorage.runtime.machines.certificates import host_of, make_contexts

            self._contexts = make_contexts(self._env.ring, host_of(self._env.machine.id))
        return self._contexts


class _Forward:
    """Listens on a port of loopback and forwards to a port of another machine."""

    def __init__(self, links: Links, target: Target, port: int) -> None:
        self._links = links
        self._target = target
        self.used_at = time.monotonic()
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((LOOPBACK, port))
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._connections: set[asyncio.Task[None]] = set()
        # The kernel accepts connections meanwhile.
        self._starting = asyncio.ensure_future(asyncio.start_server(self._forward, sock=self._socket))

    def close(self) -> None:
        """Stop accepting; open connections continue until either side closes them."""
        if self._starting.done() and not self._starting.cancelled() and self._starting.exception() is None:
            self._starting.result().close()
        else:
            self._starting.cancel()
            self._socket.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)  # The event loop alone would let the task be collected.
        try:
            to_reader, to_writer = await self._connect()
            await pump_both(reader, writer, to_reader, to_writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            self._connections.discard(task)
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        give_up_at = time.monotonic() + RECONNECT_FOR_S
        while True:
            try:
                return await self._links.connect(self._target)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                if time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(RECONNECT_INTERVAL_S)


def _read_port(path: Path) -> int:
    try:
        text = path.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() and 0 < int(text) < 2**16 else 0


async def _read_request(reader: asyncio.StreamReader) -> int | None:
    line = await reader.readuntil(b"\n")
    text = line.strip().decode("ascii", "replace")
    is_port = len(line) <= MAX_REQUEST_BYTES and text.isdecimal() and int(text) < 2**16
    return int(text) if is_port else None


async def pump_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    to_reader: asyncio.StreamReader,
    to_writer: asyncio.StreamWriter,
) -> None:
    """Copy both directions until either side closes; TLS has no half-closed connections."""
    pumps = [asyncio.ensure_future(_pump(reader, to_writer)), asyncio.ensure_future(_pump(to_reader, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        to_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()


def _reachable(host: str) -> str:
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - looked up, not bound
