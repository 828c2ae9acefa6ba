"""Lookup of the query runner by database type."""

from __future__ import annotations

from moorage.runtime.database_servers.queries.model import QueryRunner
from moorage.runtime.database_servers.queries.mysql import MySQLQueries
from moorage.runtime.database_servers.queries.postgres import PostgreSQLQueries

_RUNNERS: dict[str, QueryRunner] = {"postgresql": PostgreSQLQueries(), "mysql": MySQLQueries()}


def runner_of(type_: str) -> QueryRunner:
    """Return the runner of a type; raises KeyError for an unknown type, which is a bug."""
    return _RUNNERS[type_]
