"""A log line for calls that were not recorded."""

from __future__ import annotations

import asyncio

REPORT_INTERVAL_S = 1.0


class LostRecords:
    """Logs the number of unrecorded calls and the cause, at most once a second.

    A full disk or spool does not fail calls.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._problem: OSError | None = None
        self._is_waiting = False

    def note(self, problem: OSError, count: int = 1) -> None:
        self._count += count
        self._problem = problem
        if not self._is_waiting:
            self._report()

    def _report(self) -> None:
        self._is_waiting = self._count > 0
        if self._is_waiting:
            message = f"{self._count} invocation{' was' if self._count == 1 else 's were'} not recorded"
            self._loop.call_exception_handler({"message": message, "exception": self._problem})
            self._count, self._problem = 0, None
            self._loop.call_later(REPORT_INTERVAL_S, self._report)
