"""Which kind of server there is for each type that users ask for."""

from __future__ import annotations

from moorage.runtime.database_servers.mariadb.server import MariaDB
from moorage.runtime.database_servers.ports import Kind
from moorage.runtime.database_servers.postgres.server import PostgreSQL

_KINDS: dict[str, Kind] = {kind.type: kind for kind in (PostgreSQL(), MariaDB())}


def kind_of(asked: str) -> Kind:
    """Return the kind of a type; one that there is no kind of is a mistake of ours, and raises KeyError."""
    return _KINDS[asked]
