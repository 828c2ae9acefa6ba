"""The interface of the database, for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from moorage.core.db.tx import Tx
from moorage.core.env import Env

T = TypeVar("T")
Unit = Callable[[Tx], T]


class Database(Protocol):
    env: Env

    @property
    def dialect(self) -> str: ...

    async def write(self, unit: Unit[T]) -> T:
        """Run a unit of work in a transaction and return after the commit. A unit that raises has no effect."""
        ...

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit of work that only reads, in a thread."""
        ...

    async def peek(self, unit: Unit[T]) -> T:
        """Run a unit of point reads; on SQLite in the event loop, because it takes microseconds."""
        ...

    def close(self) -> None: ...
