"""The shim's unix socket: lines of JSON, to whoever knows the token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable
from typing import Any

from moorage.runtime.engines import wire
from moorage.runtime.shim.supervisor import Keeper

TOKEN_S = 5.0
LONGEST_LINE = 65536
MOST_UNREAD = 1 << 20


class Server:
    """Answers what it is asked, and tells all who are connected when something has changed."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.keeper: Keeper | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._is_telling = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not await self._is_known(reader):
                return
            self._clients.add(writer)
            self._tell(writer)
            while line := await reader.readline():
                self._do(json.loads(line), writer)
        except (ConnectionError, ValueError, KeyError, TypeError):
            return
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _is_known(self, reader: asyncio.StreamReader) -> bool:
        with contextlib.suppress(TimeoutError, ValueError, TypeError, AttributeError):
            async with asyncio.timeout(TOKEN_S):
                told = json.loads(await reader.readline())
            return hmac.compare_digest(str(told["token"]).encode(), self._token)
        return False

    def _do(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        assert self.keeper is not None
        actions: dict[str, Callable[[], None]] = {
            "look": lambda: None,
            "stop": lambda: self.keeper.stop(float(asked["graceS"])) if self.keeper else None,
            "limit": lambda: self.keeper.limit(_cpu(asked["cpu"])) if self.keeper else None,
        }
        actions[asked["do"]]()
        self._tell(writer)

    def changed(self) -> None:
        """Tell everybody, once for all that changes in one go."""
        if not self._is_telling and self.keeper is not None:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell_all)

    def _tell_all(self) -> None:
        self._is_telling = False
        for writer in list(self._clients):
            self._tell(writer)

    def _tell(self, writer: asyncio.StreamWriter) -> None:
        assert self.keeper is not None
        if writer.transport.get_write_buffer_size() > MOST_UNREAD:
            writer.transport.abort()
            return
        writer.write(wire.line(wire.state_json(self.keeper.state())))

    async def finish(self) -> None:
        """Say the last word, and see it off."""
        self._tell_all()
        for writer in list(self._clients):
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await writer.drain()
            writer.close()


def _cpu(told: Any) -> float | None:
    return None if told is None else float(told)
