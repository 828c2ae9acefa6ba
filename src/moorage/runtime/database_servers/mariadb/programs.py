"""Triggers and events, which are copied to a replica as one statement each.

The client program splits a dump into statements by other rules than the server's, for example for comments. The text of
a trigger or an event is the tenant's own, so a part of it could become a statement of the superuser there. The server
takes one statement per request here. Stored procedures and functions are rows of `mysql.proc` in a dump, and the server
writes the text of all other objects anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pymysql.cursors import DictCursor

_TRIGGERS = """
SELECT trigger_schema AS place, trigger_name AS name FROM information_schema.triggers
ORDER BY trigger_schema, event_object_table, event_manipulation, action_timing, action_order
"""
_EVENTS = "SELECT event_schema AS place, event_name AS name FROM information_schema.events ORDER BY 1, 2"
_SETTINGS = "SET SESSION sql_log_bin = 0, sql_mode = %s, collation_connection = %s, time_zone = %s"
_OWN_ZONE = "SYSTEM"


class Program(msgspec.Struct, frozen=True):
    """A trigger or an event: its statement, and the session settings that it keeps."""

    database: str
    statement: str
    sql_mode: str
    collation: str
    time_zone: str


def read(cursor: DictCursor) -> list[Program]:
    """Return the triggers and events of all databases."""
    kinds = (("TRIGGER", _TRIGGERS, "SQL Original Statement"), ("EVENT", _EVENTS, "Create Event"))
    return [each for kind, query, column in kinds for each in _read(cursor, kind, query, column)]


def create(cursor: DictCursor, programs: Iterable[Program]) -> None:
    """Create triggers and events, without writing them to the log."""
    for program in programs:
        cursor.execute(_SETTINGS, (program.sql_mode, program.collation, program.time_zone))
        cursor.execute(f"USE {quoted(program.database)}")
        cursor.execute(program.statement)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _read(cursor: DictCursor, kind: str, query: str, column: str) -> Iterable[Program]:
    cursor.execute(query)
    for found in list(cursor.fetchall()):
        cursor.execute(f"SHOW CREATE {kind} {quoted(found['place'])}.{quoted(found['name'])}")
        row = cursor.fetchone()
        if row is not None:
            zone = row.get("time_zone") or _OWN_ZONE
            yield Program(found["place"], row[column], row["sql_mode"], row["collation_connection"], zone)
