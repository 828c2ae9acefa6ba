"""Backpressure of one connection: pauses reading, counts its memory."""

from __future__ import annotations

import asyncio
from typing import Protocol

from moorage.core.net.proxies import Networks
from moorage.runtime.edge.calls.shares import Shares
from moorage.runtime.edge.connections.bodies import LARGE_BYTES, BodyBudget, Client, Hold
from moorage.runtime.edge.connections.clients import Clients

MB = 2**20

# Reasons to pause reading.
UNREAD = 1  # the client does not read answers
AHEAD = 2  # too many pipelined requests
NO_ROOM = 4  # no memory for the body yet, or an earlier request is running


class Guard:
    """Memory and connection limits of all clients, shared by the listeners."""

    def __init__(
        self, *, budget: BodyBudget | None = None, clients: Clients | None = None, trusted: Networks = ()
    ) -> None:
        self.budget = budget or BodyBudget(asyncio.get_running_loop().time)
        self.clients = clients or Clients()
        self.unread = Shares(limit=128 * MB, guaranteed=8 * MB, extra=64 * MB)  # answers that clients have not read
        self.trusted = trusted  # proxies whose X-Forwarded-For is used


class MeteredConnection(Client, Protocol):
    """The connection's interface for its flow."""

    transport: asyncio.Transport

    def abort(self) -> None: ...


class Flow:
    def __init__(self, client: MeteredConnection, guard: Guard | None) -> None:
        self._client = client
        self._guard = guard
        self._pauses = 0
        self._hold: Hold | None = None
        self._unread_key = ""
        self._unread_bytes = 0  # of an answer that the client has not read
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

    # Memory of incoming requests.

    def open(self, key: str) -> None:
        """Count the connection's memory for this address from now on."""
        self._hold = Hold(self._client, key)

    def count(self, *, loose: int, body: int, size: int, is_turn: bool) -> bool:
        """Count `body` bytes of a body of length `size`, and `loose` other bytes.

        A large body is read only when no earlier request runs and its reservation fits. Returns False if the request
        must be refused.
        """
        guard, hold = self._guard, self._hold
        if guard is None or hold is None:
            return True
        if size > LARGE_BYTES and not hold.reserved and not hold.is_waiting:
            # A reservation before its turn would be held while the earlier calls run.
            if not is_turn:
                self.pause(NO_ROOM)
            elif not guard.budget.may_wait(hold):
                return False
            elif not guard.budget.reserve(hold, size):
                self.pause(NO_ROOM)
        if hold.reserved:
            hold.received = body
        return guard.budget.count_loose(hold, loose if hold.reserved else loose + body)

    @property
    def is_reserved(self) -> bool:
        return self._hold is not None and self._hold.reserved > 0

    def close(self) -> None:
        """Release the memory of requests; safe to repeat."""
        if self._hold is not None and self._guard is not None:
            hold, self._hold = self._hold, None
            self._guard.budget.release(hold)

    # Memory of unread answers.

    def count_unread(self, key: str, until: float) -> None:
        """Count the write buffer; abort the connection above the share of its address."""
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

    def check_unread(self, now: float, timeout_s: float) -> None:
        """Abort the connection if its client read nothing for `timeout_s`."""
        if not self._unread_bytes:
            return
        left = self._client.transport.get_write_buffer_size()
        if left < self._unread_left:
            self._unread_left, self._unread_until = left, now + timeout_s
        elif now > self._unread_until:
            self._client.abort()
