"""The shim's unix socket: JSON lines, for clients that send the token first."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from moorage.runtime.engines import wire
from moorage.runtime.shim.supervisor import ReplicaSupervisor

TOKEN_TIMEOUT_S = 5.0
MAX_LINE_BYTES = 65536
MAX_UNREAD_BYTES = 1 << 20  # A client that does not read is disconnected beyond this.


class ControlServer:
    """Handles requests of clients, and sends them the replica's state changes."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.supervisor: ReplicaSupervisor | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._is_broadcast_scheduled = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not await self._is_authenticated(reader):
                return
            self._clients.add(writer)
            self._send_state(writer)
            while line := await reader.readline():
                self._handle(json.loads(line), writer)
        except (ConnectionError, ValueError, KeyError, TypeError):
            return
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _is_authenticated(self, reader: asyncio.StreamReader) -> bool:
        with contextlib.suppress(TimeoutError, ValueError, TypeError, AttributeError):
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                message = json.loads(await reader.readline())
            return hmac.compare_digest(str(message["token"]).encode(), self._token)
        return False

    def _handle(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        assert self.supervisor is not None
        actions: dict[str, Callable[[], None]] = {
            "look": lambda: None,
            "stop": lambda: self.supervisor.stop(float(request["graceS"])) if self.supervisor else None,
            "limit": lambda: self.supervisor.limit(_cpu(request["cpu"])) if self.supervisor else None,
        }
        actions[request["do"]]()
        self._send_state(writer)

    def schedule_broadcast(self) -> None:
        """Send the state to all clients, once for all changes of one event loop turn."""
        if not self._is_broadcast_scheduled and self.supervisor is not None:
            self._is_broadcast_scheduled = True
            asyncio.get_running_loop().call_soon(self._broadcast)

    def _broadcast(self) -> None:
        self._is_broadcast_scheduled = False
        for writer in list(self._clients):
            self._send_state(writer)

    def _send_state(self, writer: asyncio.StreamWriter) -> None:
        assert self.supervisor is not None
        if writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            writer.transport.abort()
            return
        writer.write(wire.line(wire.state_json(self.supervisor.state())))

    async def finish(self) -> None:
        """Send the final state to all clients and close their connections."""
        self._broadcast()
        for writer in list(self._clients):
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await writer.drain()
            writer.close()


def _cpu(value: Any) -> float | None:
    return None if value is None else float(value)
