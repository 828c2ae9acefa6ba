"""Which kind of server there is for each type that users ask for."""

from __future__ import annotations

from moorage.servers.mariadb import MariaDB
from moorage.servers.ports import Kind
from moorage.servers.postgres import PostgreSQL

_KINDS: dict[str, Kind] = {kind.type: kind for kind in (PostgreSQL(), MariaDB())}


def kind_of(asked: str) -> Kind:
    """Return the kind of a type; one that there is no kind of is a mistake of ours, and raises KeyError."""
    return _KINDS[asked]
