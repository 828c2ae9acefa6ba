"""Accounts queued calls and their memory per organization.

The organizations share the memory of the queue: each gets at most half of the memory that the others leave, and a small
guaranteed part. So no organization can cause status 429 for another one.
"""

from __future__ import annotations

from moorage.runtime.edge.calls.call import Call
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import AnyFunction
from moorage.runtime.edge.calls.shares import Shares

CALL_BYTES = 2048  # approximate memory of a call besides its params


class Backlog:
    """Counts small calls while they wait, and large ones until they end (maybe unread)."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._bytes = Shares(caps.queue_bytes, caps.queue_bytes_guaranteed, caps.queue_bytes_extra)
        self._waiting: dict[str, int] = {}
        self.functions: set[AnyFunction] = set()  # functions with waiting calls

    @property
    def bytes(self) -> int:
        return self._bytes.total

    @property
    def queued(self) -> int:
        """Number of calls that wait."""
        return sum(self._waiting.values())

    def hold(self, call: Call) -> bool:
        """Count a large call until `release`; return False without room."""
        org, size = call.function.org, size_of(call)
        if not self._bytes.fits(org, size):
            return False
        self._bytes.add(org, size)
        return True

    def release(self, call: Call) -> None:
        self._bytes.remove(call.function.org, size_of(call))

    def has_room(self, call: Call) -> bool:
        """Whether a call may wait; a large one is counted already."""
        function, caps = call.function, self._caps
        if len(function.queue) >= caps.queue or self._waiting.get(function.org, 0) >= caps.org_queue:
            return False
        return call.is_large or self._bytes.fits(function.org, size_of(call))

    def count(self, call: Call, by: int) -> None:
        """Count a call that entered (1) or left (-1) the queue of its function."""
        function = call.function
        left = self._waiting.get(function.org, 0) + by
        if left:
            self._waiting[function.org] = left
        else:
            self._waiting.pop(function.org, None)
        if not call.is_large:
            if by > 0:
                self._bytes.add(function.org, size_of(call))
            else:
                self._bytes.remove(function.org, size_of(call))
        if function.queue:
            self.functions.add(function)
        else:
            self.functions.discard(function)


def size_of(call: Call) -> int:
    return len(call.params) + CALL_BYTES
