"""Resolves host names of users' URLs; the client checks the addresses."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

# A name whose DNS servers do not answer blocks a thread for up to 30 s and must not delay other names. The pool starts
# threads on demand.
_MAX_THREADS = 256
_MAX_CACHED_NAMES = 10_000


class Resolver(Protocol):
    """Resolves a name to IP addresses."""

    async def resolve(self, host: str) -> list[str]: ...


class NameResolver:
    """Resolves names through the given resolver, or through the system's in threads.

    `localhost` and its subdomains are loopback by definition and are never sent to DNS. A temporary failure
    (EAI_AGAIN) is retried once. With `keep_s`, addresses are cached for that long and concurrent lookups of one name
    are shared; failures are not cached.
    """

    def __init__(self, inner: Resolver | None, *, keep_s: float = 0) -> None:
        self._inner = inner
        self._keep_s = keep_s
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="outbound-dns")
        self._cache: dict[str, tuple[float, list[str]]] = {}
        self._pending: dict[str, asyncio.Task[list[str]]] = {}

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of a name; an OSError says why there is none."""
        if f".{host.rstrip('.').lower()}".endswith(".localhost"):
            return ["127.0.0.1", "::1"]
        return await (self._look_up_cached(host) if self._keep_s else self._look_up(host))

    async def _look_up_cached(self, host: str) -> list[str]:
        expires_at, addresses = self._cache.get(host, (0.0, []))
        if asyncio.get_running_loop().time() < expires_at:
            return addresses
        if host not in self._pending:
            self._pending[host] = asyncio.create_task(self._look_up(host))
            self._pending[host].add_done_callback(lambda task: self._store(host, task))
        # A cancelled caller must not cancel the lookup of the others.
        return await asyncio.shield(self._pending[host])

    def _store(self, host: str, task: asyncio.Task[list[str]]) -> None:
        self._pending.pop(host, None)
        if task.cancelled() or task.exception() is not None:
            return
        if len(self._cache) >= _MAX_CACHED_NAMES:
            self._cache.clear()
        self._cache[host] = (asyncio.get_running_loop().time() + self._keep_s, task.result())

    async def _look_up(self, host: str) -> list[str]:
        try:
            try:
                addresses = await self._query(host)
            except socket.gaierror as error:
                if error.errno != socket.EAI_AGAIN:
                    raise
                addresses = await self._query(host)
        except UnicodeError as error:  # A label that is empty or longer than 63 characters.
            raise OSError("the name is malformed") from error
        except TimeoutError as error:
            raise OSError("no DNS server answered") from error
        if not addresses:
            raise OSError("the name has no address")
        return addresses

    async def _query(self, host: str) -> list[str]:
        if self._inner:
            return await self._inner.resolve(host)
        lookup = (host, None, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        loop = asyncio.get_running_loop()
        infos = await loop.run_in_executor(self._threads, socket.getaddrinfo, *lookup)
        return [str(address[0]) for *_, address in infos]

    async def close(self) -> None:
        """Stop the threads. A resolver from the caller stays open."""
        for task in self._pending.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
