"""How much one function, one organization and the gateway as a whole may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caps:
    function_instances: int = 100
    org_instances: int = 1000
    queue: int = 1000  # calls of one function that wait for an instance
    org_queue: int = 5000
    queue_bytes: int = 256 * 2**20  # of all calls that wait; an organization gets half of what the others leave,
    queue_bytes_least: int = 8 * 2**20  # and this in any case,
    queue_bytes_spare: int = 64 * 2**20  # as long as these last
    freeze_s: float = 10.0  # an instance that has been idle for this long is stopped until its next call
    reap_s: float = 600.0  # and ended after this
