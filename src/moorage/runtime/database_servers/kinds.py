"""Lookup of the server kind by database type."""

from __future__ import annotations

from moorage.runtime.database_servers.mariadb.server import MariaDB
from moorage.runtime.database_servers.ports import ServerKind
from moorage.runtime.database_servers.postgres.server import PostgreSQL

_KINDS: dict[str, ServerKind] = {kind.type: kind for kind in (PostgreSQL(), MariaDB())}


def kind_of(type_: str) -> ServerKind:
    """Return the kind of a type; raises KeyError for an unknown type, which is a bug."""
    return _KINDS[type_]
