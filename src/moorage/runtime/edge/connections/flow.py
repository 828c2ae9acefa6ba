"""Backpressure for one connection: when it is read, and which of its bytes count against the bounds for strangers."""

from __future__ import annotations

import asyncio
from typing import Protocol

from moorage.core.http.limits.proxies import Networks
from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.connections.bodies import LARGE_BYTES, BodyBudget, Client, Hold
from moorage.runtime.edge.connections.clients import Clients

MB = 2**20

# Why a connection is not read at the moment.
UNREAD = 1  # its client does not take our answers
AHEAD = 2  # its client has sent enough requests ahead
NO_ROOM = 4  # there is no memory for the body yet, or it is not its turn


class Guard:
    """Bounds for strangers. All listeners of the process share one."""

    def __init__(
        self, *, budget: BodyBudget | None = None, clients: Clients | None = None, trusted: Networks = ()
    ) -> None:
        self.budget = budget or BodyBudget(asyncio.get_running_loop().time)
        self.clients = clients or Clients()
        self.unread = Shares(most=128 * MB, least=8 * MB, spare=64 * MB)  # answers that clients do not take
        self.trusted = trusted  # peers that name the address of their client


class Metered(Client, Protocol):
    """The connection, as its flow uses it."""

    transport: asyncio.Transport

    def abort(self) -> None: ...


class Flow:
    def __init__(self, client: Metered, guard: Guard | None) -> None:
        self._client = client
        self._guard = guard
        self._pauses = 0
        self._hold: Hold | None = None
        self._unread_key = ""
        self._unread_bytes = 0  # of an answer that the client does not take
        self._unread_left = 0
        self._unread_until = 0.0

    @property
    def is_metered(self) -> bool:
        return self._guard is not None

    @property
    def has_hold(self) -> bool:
        return self._hold is not None

    @property
    def waits_for_room(self) -> bool:
        return bool(self._pauses & NO_ROOM)

    def pause(self, why: int) -> None:
        transport = self._client.transport
        if not self._pauses and not transport.is_closing():
            transport.pause_reading()
        self._pauses |= why

    def resume(self, why: int) -> None:
        if self._pauses & why:
            self._pauses &= ~why
            transport = self._client.transport
            if not self._pauses and not transport.is_closing():
                transport.resume_reading()

    # What the client sends.

    def open(self, key: str) -> None:
        """Count for this address from now on."""
        self._hold = Hold(self._client, key)

    def count(self, *, loose: int, body: int, size: int, is_turn: bool) -> bool:
        """Count what is in memory: `body` bytes of a body that will be `size` long, and `loose` others.

        A large body is only read when it is its request's turn and there is room for it. Returns False where the
        request has to be refused.
        """
        guard, hold = self._guard, self._hold
        if guard is None or hold is None:
            return True
        if size > LARGE_BYTES and not hold.reserved and not hold.is_waiting:
            # Not in its turn: what is reserved then would be held for as long as the calls before it take.
            if not is_turn:
                self.pause(NO_ROOM)
            elif not guard.budget.has_place(hold):
                return False
            elif not guard.budget.reserve(hold, size):
                self.pause(NO_ROOM)
        if hold.reserved:
            hold.received = body
        return guard.budget.keep(hold, loose if hold.reserved else loose + body)

    @property
    def is_reserved(self) -> bool:
        return self._hold is not None and self._hold.reserved > 0

    def close(self) -> None:
        """Forget what was counted of requests; safe to repeat."""
        if self._hold is not None and self._guard is not None:
            hold, self._hold = self._hold, None
            self._guard.budget.release(hold)

    # What the client does not take.

    def count_unread(self, key: str, until: float) -> None:
        """Count what waits to be sent. The connection ends where that is more than its address may leave."""
        guard = self._guard
        if guard is None:
            return
        self.forget_unread()
        size = self._client.transport.get_write_buffer_size()
        if not guard.unread.fits(key, size):
            self._client.abort()
            return
        guard.unread.add(key, size)
        self._unread_key, self._unread_until = key, until
        self._unread_bytes = self._unread_left = size

    def forget_unread(self) -> None:
        if self._unread_bytes and self._guard is not None:
            self._guard.unread.remove(self._unread_key, self._unread_bytes)
            self._unread_bytes = 0

    def check_unread(self, now: float, patience_s: float) -> None:
        """End the connection if its client has taken nothing of an answer for a while."""
        if not self._unread_bytes:
            return
        left = self._client.transport.get_write_buffer_size()
        if left < self._unread_left:
            self._unread_left, self._unread_until = left, now + patience_s
        elif now > self._unread_until:
            self._client.abort()
