"""What a store offers, whichever database is behind it."""

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
        """Run a unit in a transaction and return once it is durable. A unit that raises leaves nothing behind."""
        ...

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, away from the event loop."""
        ...

    async def peek(self, unit: Unit[T]) -> T:
        """Run a unit of point reads; on SQLite in the event loop itself, where it costs microseconds."""
        ...

    def close(self) -> None: ...
