"""Resolves host names of users' URLs; the client checks the addresses."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from weakref import WeakValueDictionary

# A name whose DNS servers do not answer blocks a thread for up to 30 s and must not delay other names. The pool starts
# threads on demand.
_MAX_THREADS = 256
# A lookup takes some milliseconds, so only names whose servers do not answer fill this many threads.
MAX_LOOKUPS_OF_TENANT = 32
_MAX_CACHED_NAMES = 10_000


class Resolver(Protocol):
    """Resolves a name to IP addresses."""

    async def resolve(self, host: str) -> list[str]: ...


class NameResolver:
    """Resolves names through the given resolver, or through the system's in threads.

    `localhost` and its subdomains are loopback by definition and are never sent to DNS. A temporary failure
    (EAI_AGAIN) is retried once. With `keep_s`, addresses are cached for that long and concurrent lookups of one name
    are shared; failures are not cached. Each tenant has at most MAX_LOOKUPS_OF_TENANT lookups at once.
    """

    def __init__(self, inner: Resolver | None, *, keep_s: float = 0) -> None:
        self._inner = inner
        self._keep_s = keep_s
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="outbound-dns")
        self._cache: dict[str, tuple[float, list[str]]] = {}
        self._pending: dict[str, asyncio.Task[list[str]]] = {}
        self._lookups: set[asyncio.Task[list[str]]] = set()
        self._slots: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()  # by tenant

    async def resolve(self, host: str, *, tenant: int | None = None) -> list[str]:
        """Return the addresses of a name; an OSError says why there is none.

        A lookup that would exceed the bound of its tenant waits. Lookups without a tenant are not bounded.
        """
        if f".{host.rstrip('.').lower()}".endswith(".localhost"):
            return ["127.0.0.1", "::1"]
        if (addresses := self._cached(host)) is not None:
            return addresses
        if host not in self._pending:
            slots = self._slots_of(tenant)
            await slots.acquire()
            if (addresses := self._cached(host)) is not None or host in self._pending:
                slots.release()
            else:
                return await asyncio.shield(self._begin(host, slots))
        # A cancelled caller must not cancel the lookup of the others.
        return addresses if addresses is not None else await asyncio.shield(self._pending[host])

    def _slots_of(self, tenant: int | None) -> asyncio.Semaphore:
        if tenant is None:
            return asyncio.Semaphore(1)
        return self._slots.setdefault(tenant, asyncio.Semaphore(MAX_LOOKUPS_OF_TENANT))

    def _cached(self, host: str) -> list[str] | None:
        expires_at, addresses = self._cache.get(host, (0.0, []))
        return addresses if asyncio.get_running_loop().time() < expires_at else None

    def _begin(self, host: str, slots: asyncio.Semaphore) -> asyncio.Task[list[str]]:
        """Start a lookup in a slot. It is not cancelled with its caller: its thread cannot be stopped."""
        task = asyncio.create_task(self._look_up(host))
        self._lookups.add(task)
        if self._keep_s:
            self._pending[host] = task

        def on_done(_: asyncio.Task[list[str]]) -> None:
            slots.release()
            self._lookups.discard(task)
            self._store(host, task)

        task.add_done_callback(on_done)
        return task

    def _store(self, host: str, task: asyncio.Task[list[str]]) -> None:
        self._pending.pop(host, None)
        if task.cancelled() or task.exception() is not None or not self._keep_s:
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
        for task in self._lookups:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
