"""A plugin of pytest: print a line when a run was silent for two seconds, so that it does not look stuck."""

from __future__ import annotations

import os
import threading
import time

import pytest

INTERVAL_S = 2.0


class Heartbeat:
    def __init__(self) -> None:
        self._output = os.dup(1)  # pytest captures descriptor 1 later.
        self._started_at = self._told_at = time.monotonic()
        self._done = 0
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._told_at = time.monotonic()
        self._done += report.when == "call"

    def pytest_unconfigure(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S / 4):
            now = time.monotonic()
            if now - self._told_at >= INTERVAL_S:
                self._told_at = now
                os.write(self._output, f"\ntests: {self._done} done, {now - self._started_at:.0f} s\n".encode())


# Worker processes of pytest-xdist have the same plugins, and no terminal.
_HEARTBEAT = None if "PYTEST_XDIST_WORKER" in os.environ else Heartbeat()


def pytest_configure(config: pytest.Config) -> None:
    if _HEARTBEAT is not None:
        config.pluginmanager.register(_HEARTBEAT, "heartbeat")
