"""Servers that the tests of a group share, from the first test that needs one until the last test of the group.

A session fixture would keep a platform running to the end of the whole run; an idle platform uses 1.4 % of a CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class SharedServers:
    def __init__(self) -> None:
        self._running: dict[str, Any] = {}
        self._stack = contextlib.ExitStack()

    def get(self, name: str, start: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the server of this name, and start it if no test of the group has done so."""
        if name not in self._running:
            self._running[name] = self._stack.enter_context(start())
        server: T = self._running[name]
        return server

    def stop(self) -> None:
        self._running.clear()
        self._stack.close()


def group_of(item: pytest.Item | None) -> list[object]:
    return [mark.args for mark in item.iter_markers("group")] if item else []
