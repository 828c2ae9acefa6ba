"""What the platform asks of a pair of servers, one of which follows the other. Which server is which is decided above.

A transaction that was acknowledged is on both servers for as long as the primary waits for its replica. Everything here
that changes whether it waits returns only when that is so for every commit from then on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from moorage.runtime.database_servers.mariadb.replication import MariaDBReplication
from moorage.runtime.database_servers.ports import Access, Primary, Software
from moorage.runtime.database_servers.postgres.replication import PostgreSQLReplication


class Replication(Protocol):
    """One kind of pair. `number` is the replica's, by which its primary knows it. All of this can be repeated."""

    needs_loading: bool  # A copy is only complete when it was loaded into a server that runs on it.

    def copy(self, software: Software, primary: Access, folder: Path, number: int) -> None:
        """Fill an empty folder with what a primary has now; its log is kept for the replica from there on."""
        ...

    def load(self, software: Software, access: Access, primary: Primary) -> None:
        """Complete a copy, through a server that runs on it and that nobody else reaches."""
        ...

    def follow(self, replica: Access) -> None:
        """Let a replica go on following where it does not; raises ServerFailed where it never will again."""
        ...

    def is_following(self, primary: Access, replica: Access, number: int) -> bool: ...

    def is_awaited(self, primary: Access, number: int) -> bool:
        """Tell whether commits wait for this replica."""
        ...

    def await_replica(self, primary: Access, replica: Access, number: int) -> None:
        """Let commits wait for a replica, and return when it has everything; raises ServerFailed if it does not."""
        ...

    def go_alone(self, primary: Access) -> None:
        """Let commits wait for nobody, those as well that wait already."""
        ...

    def promote(self, replica: Access) -> None:
        """Make a replica apply all it has received and take changes of its own; its primary must be gone."""
        ...

    def trim(self, primary: Access, replica: Access) -> None:
        """Remove what a primary has kept of its log, and its replica has."""
        ...


_KINDS: dict[str, Replication] = {"postgresql": PostgreSQLReplication(), "mysql": MariaDBReplication()}


def replication_of(type_: str) -> Replication:
    """Return how servers of a type follow each other."""
    return _KINDS[type_]
