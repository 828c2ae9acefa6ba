"""Accepts calls of the platform's other processes, and passes them on to the edge of this machine.

It runs in the process that stores the records of the edge, because the edge itself has no keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from moorage.core.kit.crypto import KeyRing
from moorage.errors import CannotStart
from moorage.products.functions.logs.log_files import FunctionLogs
from moorage.products.functions.remote import wire
from moorage.runtime.machines.links import CONNECT_TIMEOUT_S, pump_both

BACKLOG = 1024
HANDSHAKE_TIMEOUT_S = 10.0


class EdgeListener:
    def __init__(
        self,
        ring: KeyRing,
        edge_socket: Path,
        catch_up: Callable[[], Awaitable[bool]],
        publish: Callable[[int, int], Awaitable[None]],
        logs: FunctionLogs,
    ) -> None:
        self._ring = ring
        self._edge_socket = edge_socket
        self._catch_up = catch_up
        self._publish = publish
        self._logs = logs
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen; return the port. Clients need a certificate that the master key signed."""
        # The library takes 9 MB, so it is imported only here.
        from moorage.runtime.machines.certificates import EDGE_HOST, make_contexts

        context = make_contexts(self._ring, EDGE_HOST).server
        try:
            self._server = await asyncio.start_server(
                self._accept,
                host,
                port,
                ssl=context,
                backlog=BACKLOG,
                limit=wire.MAX_LINE_BYTES,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {host}:{port} for calls of the platform: {error.strerror}; choose another "
                "MOORAGE_EDGE_LINK_PORT"
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        wire.detect_loss(writer.transport)
        try:
            while line := await reader.readline():
                if line == wire.EDGE:
                    return await self._pass_on(reader, writer)
                writer.write(await self._answer(line))
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return None
        finally:
            self._connections.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            to_reader, to_writer = await asyncio.open_unix_connection(str(self._edge_socket))
        writer.write(wire.OK)
        await pump_both(reader, writer, to_reader, to_writer)

    async def _answer(self, line: bytes) -> bytes:
        match line.split():
            case [b"records"]:
                return wire.OK if await self._catch_up() else wire.NO
            case [wire.PUBLISH, org_id, function_id]:
                await self._publish(int(org_id), int(function_id))
                return wire.OK
            case [wire.LOG, org_id, function_id, reference]:
                packed = await asyncio.to_thread(self._read, int(org_id), int(function_id), reference.decode())
                return wire.GONE if packed is None else b"%d\n%b" % (len(packed), packed)
        raise ValueError("an unknown request")

    def _read(self, org_id: int, function_id: int, reference: str) -> bytes | None:
        piece = next(iter(self._logs.read(org_id, function_id, reference)), None)
        return piece if isinstance(piece, bytes) else None
