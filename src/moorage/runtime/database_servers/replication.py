"""Protocol for synchronous replication between a primary and its replica.

While the primary waits for its replica, every acknowledged transaction is on both servers. Calls that turn this waiting
on or off return only once the change applies to every later commit. The product decides which server is the primary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from moorage.runtime.database_servers.mariadb.replication import MariaDBReplication
from moorage.runtime.database_servers.ports import Access, Primary, Software
from moorage.runtime.database_servers.postgres.replication import PostgreSQLReplication


class Replication(Protocol):
    """Replication of one server kind; `number` is the replica's id. Safe to repeat."""

    needs_loading: bool  # `load` must complete the copy on a running server

    def copy(self, software: Software, primary: Access, folder: Path, number: int) -> None:
        """Copy the primary into an empty folder; it retains its log for the replica."""
        ...

    def load(self, software: Software, access: Access, primary: Primary) -> None:
        """Complete a copy through a scratch server that runs on it."""
        ...

    def follow(self, replica: Access) -> None:
        """Resume stopped replication; raises ServerFailed if that is impossible."""
        ...

    def is_following(self, primary: Access, replica: Access, number: int) -> bool: ...

    def is_awaited(self, primary: Access, number: int) -> bool:
        """Tell whether commits wait for this replica."""
        ...

    def await_replica(self, primary: Access, replica: Access, number: int) -> None:
        """Make commits wait for a replica; returns once it is in sync, or raises."""
        ...

    def go_alone(self, primary: Access) -> None:
        """Stop commits from waiting for a replica; releases commits that already wait."""
        ...

    def promote(self, replica: Access) -> None:
        """Apply all received changes and become writable; the primary must be gone."""
        ...

    def trim(self, primary: Access, replica: Access) -> None:
        """Delete the part of the primary's log that the replica has received."""
        ...


_KINDS: dict[str, Replication] = {"postgresql": PostgreSQLReplication(), "mysql": MariaDBReplication()}


def replication_of(type_: str) -> Replication:
    return _KINDS[type_]
