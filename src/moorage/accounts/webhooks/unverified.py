"""Limits of webhook bodies whose signature is not verified yet, because anyone can send them.

Valid deliveries are not counted by the rate limit, so these limits bound the memory and the disk space that
unauthenticated clients use at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from moorage.errors import RateLimited
from moorage.runtime.edge.calls.shares import Shares

MB = 2**20
# The first address gets 24 requests, and each further one at least one, up to 64 requests of all addresses.
REQUESTS, EXTRA_REQUESTS = 48, 16
# One body of the largest size for an address, up to 64 MB for all addresses.
BYTES, GUARANTEED_BYTES, EXTRA_BYTES = 39 * MB, 25 * MB, 25 * MB
_BUSY = "Too many webhook bodies are being received; deliver this one again"


class UnverifiedBodies:
    """Counts the requests and the bytes of unverified bodies, in all and per client address."""

    def __init__(self) -> None:
        self.requests = Shares(REQUESTS, 1, EXTRA_REQUESTS)
        self.bytes = Shares(BYTES, GUARANTEED_BYTES, EXTRA_BYTES)

    @contextlib.contextmanager
    def hold(self, address: str) -> Iterator[Callable[[int], None]]:
        """Count a request until its body is verified or dropped; yield the counter of its bytes.

        Both raise RateLimited over a limit.
        """
        held = 0

        def count(size: int) -> None:
            nonlocal held
            if not self.bytes.fits(address, size):
                raise RateLimited(_BUSY)
            self.bytes.add(address, size)
            held += size

        if not self.requests.fits(address, 1):
            raise RateLimited(_BUSY)
        self.requests.add(address, 1)
        try:
            yield count
        finally:
            self.requests.remove(address, 1)
            self.bytes.remove(address, held)
