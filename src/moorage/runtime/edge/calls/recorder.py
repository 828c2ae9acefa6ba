"""Records of calls in the spool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from moorage.runtime.edge import spool
from moorage.runtime.edge.calls.call import Call
from moorage.runtime.edge.calls.instance import PooledFunction
from moorage.runtime.edge.calls.lost_records import LostRecords

_encode = spool.encode


class Spool(Protocol):
    """Destination of records. Appended records survive the end of this process."""

    def append(self, record: bytes, log: bytes | memoryview = b"") -> None: ...

    def append_plain(self, packed: bytes) -> None: ...

    def limit_log(self, log: bytes | memoryview, org_id: int) -> bytes | memoryview: ...


class Recorder:
    """Writes records; one that cannot be written is counted and does not fail its call."""

    def __init__(self, records: Spool, loop: asyncio.AbstractEventLoop) -> None:
        self._records = records
        self._lost = LostRecords(loop)

    def record_start(self, call: Call) -> None:
        function, now_ms = call.function, int(time.time() * 1000)
        self._write(
            _encode(
                spool.START, call.source, True, False, function.id, function.org_id, function.version,
                function.memory_mb, now_ms, 0, 0, call.schedule, call.activation,
            )
        )  # fmt: skip

    def record_end(self, call: Call, run_us: int, now: float, error: str | None, log: bytes | memoryview) -> None:
        function = call.function
        if log:
            log = self._records.limit_log(log, function.org_id)
        wait_us = int((now - call.arrived) * 1e6) - run_us
        record = _encode(
            spool.END, call.source, error is None, call.cold, function.id, function.org_id, function.version,
            function.memory_mb, int(time.time() * 1000) - run_us // 1000, run_us, wait_us if wait_us > 0 else 0,
            call.schedule, call.activation, error.encode("utf-8", "replace") if error else b"", len(log),
        )  # fmt: skip
        self._write(record, log)

    def record_packed(self, records: Sequence[bytes]) -> None:
        """Record the ends of calls with plain replies."""
        try:
            self._records.append_plain(b"".join(records))
        except OSError as problem:
            self._lost.note(problem, len(records))

    def record_late_log(self, function: PooledFunction, activation: bytes, log: bytes) -> None:
        """Record the output of a function after its reply."""
        kept = self._records.limit_log(log, function.org_id)
        record = _encode(
            spool.LATE, spool.WEB, True, False, function.id, function.org_id, function.version,
            function.memory_mb, int(time.time() * 1000), 0, 0, 0, activation, b"", len(kept),
        )  # fmt: skip
        self._write(record, kept)

    def _write(self, record: bytes, log: bytes | memoryview = b"") -> None:
        try:
            self._records.append(record, log)
        except OSError as problem:
            self._lost.note(problem)
