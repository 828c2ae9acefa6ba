"""Client of edges on other machines.

A call goes to any edge that accepts it. The edge that has accepted a scheduled run remembers it, and executes it once.
So a run goes to the edges in an order that its id decides, and a run that may have been sent before is sent again only
when every edge says that it does not know it.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Sequence
from functools import cached_property

import msgspec

from moorage.core.kit.crypto import KeyRing
from moorage.core.kit.decoding import decoder_of
from moorage.core.net.http1 import ResponseError
from moorage.core.net.local_http import NotConnected, Reply
from moorage.errors import Conflict
from moorage.products.functions.edge_client import (
    Call,
    EdgeClient,
    EdgeLost,
    EdgeUnreachable,
    Health,
    Outcome,
    encode,
    health_of,
    outcome_of,
    refusal,
)
from moorage.products.functions.remote import wire
from moorage.products.functions.remote.host import Host

WAIT_S = 5.0  # for a host that accepts a call; a pod that restarts is back later
FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 1.0
ANSWER_TIMEOUT_S = 5.0  # of health, records and known runs
LOG_TIMEOUT_S = 20.0
REFUSED = (404, 429)  # The edge has not run the call, so another one may.


class KnownRun(msgspec.Struct, frozen=True):
    known: bool


_read_known = decoder_of(KnownRun).decode


class RemoteEdge(EdgeClient):
    """Calls edges elsewhere. Processes beside those edges push the routes and store the records."""

    def __init__(self, addresses: Sequence[str], ring: KeyRing) -> None:
        self.is_expected = False
        self._ring = ring
        self.hosts = [Host(address, lambda: self._context, self._server_name) for address in addresses]
        self._next = 0
        self._has_log: dict[str, Host] = {}  # by the folder id in the name of a segment

    @property
    def _server_name(self) -> str:
        from moorage.runtime.machines.certificates import EDGE_HOST

        return EDGE_HOST

    @cached_property
    def _context(self) -> ssl.SSLContext:
        from moorage.runtime.machines.certificates import host_of, make_contexts

        return make_contexts(self._ring, host_of(0)).client

    async def invoke(self, call: Call, *, is_repeated: bool = False) -> Outcome:
        hosts = self._ranked(call.activation_id) if call.source == "schedule" else self._rotated()
        if is_repeated and call.source == "schedule":
            await self._check_unknown(call.activation_id)
        return outcome_of(await self._send_to(hosts, encode(call)))

    async def health(self) -> Health:
        """Return the start of the edge that runs the longest, so that all edges started then or later."""
        healths = await asyncio.gather(*(self._health(host) for host in self.hosts))
        return min(healths, key=lambda each: float(each.started))

    async def catch_up(self) -> bool:
        """Store all records that the edges have written; return whether all of them are."""
        answers = await asyncio.gather(*(self._ask(host, wire.RECORDS) for host in self.hosts))
        return all(answer == wire.OK for answer in answers)

    async def publish(self, org_id: int, function_id: int) -> None:
        """Wait until each edge that answers has the current state of a function; others read it at their start."""
        line = b"%b %d %d\n" % (wire.PUBLISH, org_id, function_id)
        await asyncio.gather(*(self._ask(host, line) for host in self.hosts))

    async def read_log(self, org_id: int, function_id: int, reference: str) -> bytes | None:
        """Return packed log text from the edge that stores it; None if no edge that answers stores it."""
        folder_id = reference.partition(":")[0].rpartition("_")[2]
        known = self._has_log.get(folder_id)
        for host in [known] if known else [each for each in self.hosts if not each.is_away]:
            try:
                packed = await host.read_log(org_id, function_id, reference, LOG_TIMEOUT_S)
            except NotConnected:
                continue
            if packed is not None:
                self._has_log[folder_id] = host
                return packed
        return None

    async def close(self) -> None:
        await asyncio.gather(*(host.close() for host in self.hosts))

    async def _send(self, method: str, path: str, body: bytes) -> Reply:
        """Routes are pushed by the process beside each edge, so nothing else is sent."""
        raise EdgeUnreachable

    async def _send_to(self, hosts: Sequence[Host], body: bytes) -> Reply:
        """Send a call to the first host that accepts it; raises EdgeUnreachable if none is reached in time."""
        loop = asyncio.get_running_loop()
        give_up_at, pause_s = loop.time() + WAIT_S, FIRST_PAUSE_S
        while True:
            refused: Reply | None = None
            # A host that was away a moment ago comes last: a connection attempt may take seconds.
            for host in sorted(hosts, key=lambda each: each.is_away):
                try:
                    reply = await host.send("POST", "/invoke", body)
                except NotConnected:
                    continue
                except ResponseError as error:
                    raise EdgeLost from error
                if reply.status not in REFUSED:
                    return reply
                refused = reply
            if refused is not None:
                return refused
            if loop.time() + pause_s >= give_up_at:
                raise EdgeUnreachable
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    async def _check_unknown(self, activation_id: str) -> None:
        """Raise Conflict if an edge has the run, and EdgeUnreachable if one of them does not answer."""
        body = encode({"activation": activation_id})
        for reply in await asyncio.gather(*(self._request_of(host, "POST", "/known", body) for host in self.hosts)):
            if reply.status != 200:
                raise refusal(reply.status)
            if _read_known(reply.body).known:
                raise Conflict("The edge has already received this call")

    async def _health(self, host: Host) -> Health:
        return health_of(await self._request_of(host, "GET", "/health", b""))

    async def _request_of(self, host: Host, method: str, path: str, body: bytes) -> Reply:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await host.send(method, path, body)
        except (NotConnected, TimeoutError, ResponseError) as error:
            raise EdgeUnreachable from error

    async def _ask(self, host: Host, line: bytes) -> bytes:
        """Return the answer of a host; none from one that was away a moment ago."""
        if host.is_away:
            return b""
        try:
            return await host.ask(line, ANSWER_TIMEOUT_S)
        except NotConnected:
            return b""

    def _rotated(self) -> list[Host]:
        self._next += 1
        first = self._next % len(self.hosts)
        return [*self.hosts[first:], *self.hosts[:first]]

    def _ranked(self, activation_id: str) -> list[Host]:
        def rank(host: Host) -> bytes:
            return hashlib.blake2b(f"{activation_id} {host.address}".encode(), digest_size=8).digest()

        return sorted(self.hosts, key=rank)
