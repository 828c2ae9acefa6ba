"""The interface of the database, for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from moorage.core.db.commits import Commits
from moorage.core.db.tx import Tx
from moorage.core.env import Env

T = TypeVar("T")
Unit = Callable[[Tx], T]


class Database(Protocol):
    env: Env
    commits: Commits | None  # None where other processes write too

    @property
    def dialect(self) -> str: ...

    async def write(self, unit: Unit[T]) -> T:
        """Run a unit of work and return after the commit; no effect if it raises."""
        ...

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit of work that only reads, in a thread."""
        ...

    async def peek(self, unit: Unit[T]) -> T:
        """Run a unit of point reads; on SQLite in the event loop (microseconds)."""
        ...

    def close(self) -> None: ...
