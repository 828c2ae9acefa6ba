"""Calls that could not be recorded: the log says how many, and why, at most once a second."""

from __future__ import annotations

import asyncio

REPORT_S = 1.0


class LostRecords:
    """Counts them. The caller is not made to pay for a full disk or a full spool; the operator hears of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._problem: OSError | None = None
        self._is_waiting = False

    def note(self, problem: OSError, count: int = 1) -> None:
        """Count records that could not be written. The first are reported at once."""
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
            self._loop.call_later(REPORT_S, self._report)
