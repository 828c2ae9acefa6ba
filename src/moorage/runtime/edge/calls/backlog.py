"""Calls that wait for an instance, and the memory that calls take, counted for each organization.

The queue's memory is shared: an organization gets at most half of what the others leave, and a small part that is kept
for each. So no organization can make calls of another one answer 429, however many and large its own are.
"""

from __future__ import annotations

from moorage.runtime.edge.calls.call import Call
from moorage.runtime.edge.calls.caps import Caps
from moorage.runtime.edge.calls.function import Function
from moorage.runtime.edge.calls.shares import Shares

CALL_BYTES = 2048  # that a call takes beyond its params, about


class Backlog:
    """Small calls count while they wait, large ones from their arrival to their end: an instance may not read them."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._bytes = Shares(caps.queue_bytes, caps.queue_bytes_least, caps.queue_bytes_spare)
        self._waiting: dict[str, int] = {}
        self.functions: set[Function] = set()  # those with calls that wait

    @property
    def bytes(self) -> int:
        return self._bytes.total

    def hold(self, call: Call) -> bool:
        """Count a large call until `release`; return False where its organization has no room for it."""
        org, size = call.function.org, size_of(call)
        if not self._bytes.fits(org, size):
            return False
        self._bytes.add(org, size)
        return True

    def release(self, call: Call) -> None:
        self._bytes.remove(call.function.org, size_of(call))

    def has_room(self, call: Call) -> bool:
        """Tell whether a call may wait. A large one has its memory already."""
        function, caps = call.function, self._caps
        if len(function.queue) >= caps.queue or self._waiting.get(function.org, 0) >= caps.org_queue:
            return False
        return call.is_large or self._bytes.fits(function.org, size_of(call))

    def count(self, call: Call, by: int) -> None:
        """Count a call that was put into its function's queue (1), or taken out (-1)."""
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
