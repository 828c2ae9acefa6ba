"""Limits per function, per organization and of the whole edge."""

from __future__ import annotations

from moorage.core.kit.records import dataclass


@dataclass(frozen=True)
class Caps:
    function_instances: int = 100
    org_instances: int = 1000
    queue: int = 1000  # waiting calls of one function
    org_queue: int = 5000
    queue_bytes: int = 256 * 2**20  # `limit`, `guaranteed` and `extra` of Shares, for waiting calls
    queue_bytes_guaranteed: int = 8 * 2**20
    queue_bytes_extra: int = 64 * 2**20
    freeze_s: float = 10.0  # idle time after which an instance is frozen until its next call
    reap_s: float = 600.0  # idle time after which it ends
