"""HTTP client for processes of the platform: over unix sockets, and over links to other machines.

A thousand schedules can be due in the same minute, each with a request of its own. So connections are persistent, one
per request in flight.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from moorage.core.net.http1 import Connection, Response, encode_request

CONNECT_TIMEOUT_S = 2.0
HOST = "local"
_HEADERS = (("Host", HOST), ("Content-Type", "application/json"))


class NotConnected(Exception):
    """The connection failed; nothing was sent."""


class Reply(NamedTuple):
    status: int
    body: bytes


class KeptHttp(ABC):
    """Keeps connections to one server; used within one event loop. A subclass opens them."""

    def __init__(self) -> None:
        self._free: list[Connection] = []
        self._open: set[Connection] = set()

    async def send(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send one request, without retry, and wait for its response without a timeout.

        Raises NotConnected if nothing was sent, and ResponseError if the request may have been processed.
        """
        connection = self._take_free() or await self._connect()
        response = Response()
        try:
            connection.send(encode_request(method, path, _HEADERS, body), response)
            await connection.read()
        except BaseException:
            connection.close()
            raise
        if response.can_keep_alive:
            self._free.append(connection)
        else:
            connection.close()
        return Reply(response.status, bytes(response.body.data))

    async def close(self) -> None:
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)  # The transports close in the next iteration of the event loop.

    def _take_free(self) -> Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_idle():
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        try:
            connection = await self._open_connection(lambda: Connection(self._forget))
        except (OSError, TimeoutError) as error:
            raise NotConnected(str(error)) from error
        self._open.add(connection)
        return connection

    @abstractmethod
    async def _open_connection(self, make: Callable[[], Connection]) -> Connection:
        """Open a connection with the protocol that `make` returns; raises OSError and TimeoutError."""

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._free:
            self._free.remove(connection)


class LocalHttp(KeptHttp):
    """One client per process and socket."""

    def __init__(self, socket_path: Path) -> None:
        super().__init__()
        self.socket_path = socket_path

    async def _open_connection(self, make: Callable[[], Connection]) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await loop.create_unix_connection(make, str(self.socket_path))
        return connection
