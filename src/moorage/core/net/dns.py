"""Looks up the names in users' URLs. What a name resolves to is judged elsewhere, right before it is connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

# A name whose DNS servers are dead holds a thread for up to half a minute, and must not keep the others' names waiting.
# Threads are made when they are needed, so many are only there while many names hang.
_THREADS = 256
_MOST_KEPT = 10_000


class Resolver(Protocol):
    """What may look names up instead of the system, such as one of aiohttp's: `host` of each result is an address."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> Sequence[Mapping[str, Any]]: ...


class NameResolver:
    """Looks names up through the given resolver, or through the system's on threads of its own.

    `localhost` and the names below it are loopback by definition, whatever a DNS server says about them. A resolver
    that could not tell for now is asked a second time. With `keep_s`, what was found is good for that long, and those
    who ask for one name at the same time share a lookup; what was not found is always asked for again.
    """

    def __init__(self, inner: Resolver | None, *, keep_s: float = 0) -> None:
        self._inner = inner
        self._keep_s = keep_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="outbound-dns")
        self._kept: dict[str, tuple[float, list[str]]] = {}
        self._under_way: dict[str, asyncio.Task[list[str]]] = {}

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of a name; an OSError says why there is none."""
        if f".{host.rstrip('.').lower()}".endswith(".localhost"):
            return ["127.0.0.1", "::1"]
        return await (self._find_or_share(host) if self._keep_s else self._look_up(host))

    async def _find_or_share(self, host: str) -> list[str]:
        until, found = self._kept.get(host, (0.0, []))
        if asyncio.get_running_loop().time() < until:
            return found
        if host not in self._under_way:
            self._under_way[host] = asyncio.create_task(self._look_up(host))
            self._under_way[host].add_done_callback(lambda task: self._keep(host, task))
        # One of those who wait may give up without taking the answer from the others.
        return await asyncio.shield(self._under_way[host])

    def _keep(self, host: str, task: asyncio.Task[list[str]]) -> None:
        self._under_way.pop(host, None)
        if task.cancelled() or task.exception() is not None:
            return
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[host] = (asyncio.get_running_loop().time() + self._keep_s, task.result())

    async def _look_up(self, host: str) -> list[str]:
        try:
            try:
                found = await self._ask(host)
            except socket.gaierror as error:
                if error.errno != socket.EAI_AGAIN:
                    raise
                found = await self._ask(host)
        except UnicodeError as error:  # A label that is empty or longer than 63 characters.
            raise OSError("the name is malformed") from error
        except TimeoutError as error:
            raise OSError("no DNS server answered") from error
        if not found:
            raise OSError("the name has no address")
        return found

    async def _ask(self, host: str) -> list[str]:
        if self._inner:
            return [result["host"] for result in await self._inner.resolve(host, 0, socket.AF_UNSPEC)]
        lookup = (host, None, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        loop = asyncio.get_running_loop()
        infos = await loop.run_in_executor(self._threads, socket.getaddrinfo, *lookup)
        return [str(address[0]) for *_, address in infos]

    async def close(self) -> None:
        """Let the threads go. A resolver that was passed in belongs to the caller and stays open."""
        for task in self._under_way.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
