"""Catalog queries of the table browser for MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorage.runtime.database_servers.queries.model import (
    MAX_CATALOG_CHARS,
    TableColumn,
    TableDetail,
    TableIndex,
    TableSummary,
)

SHOWN_ROWS = 100
_KINDS = {"BASE TABLE": "table", "SYSTEM VERSIONED": "table", "VIEW": "view", "SEQUENCE": "sequence"}
_SUMMARY = f"""
SELECT table_schema, table_name, table_type, table_rows, data_length + index_length,
       left(table_comment, {MAX_CATALOG_CHARS})
FROM information_schema.tables WHERE table_schema = %s
"""  # noqa: S608 - a constant
TABLES = _SUMMARY + " ORDER BY 1, 2 LIMIT {most}"
TABLE = _SUMMARY + " AND table_name = %s"
COLUMNS = f"""
SELECT column_name, left(column_type, {MAX_CATALOG_CHARS}), is_nullable, left(column_default, {MAX_CATALOG_CHARS}),
       column_key, left(column_comment, {MAX_CATALOG_CHARS})
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""  # noqa: S608 - a constant
INDEXES = """
SELECT index_name, non_unique, index_type, column_name
FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index
"""
Row = Sequence[Any]


def summary_of(row: Row) -> TableSummary:
    schema, name, kind, rows, size, comment = row
    is_view = kind == "VIEW"  # A view has the comment `VIEW` and no size.
    return TableSummary(
        schema,
        name,
        _KINDS.get(kind, "table"),
        None if is_view or rows is None else int(rows),
        None if is_view or size is None else int(size),
        None if is_view else comment or None,
    )


def detail_of(table: Row, columns: Sequence[Row], indexes: Sequence[Row]) -> TableDetail:
    summary = summary_of(table)
    return TableDetail(
        summary=summary,
        columns=[
            # MariaDB writes a default as an expression.
            TableColumn(
                name, type_, nullable == "YES", None if default == "NULL" else default, key == "PRI", comment or None
            )
            for name, type_, nullable, default, key, comment in columns
        ],
        indexes=_indexes(indexes),
        select_sql=f"SELECT * FROM {_quoted(summary.schema)}.{_quoted(summary.name)} LIMIT {SHOWN_ROWS}",  # noqa: S608 - quoted names
    )


def _indexes(rows: Sequence[Row]) -> list[TableIndex]:
    """Join the columns of each index. An index on an expression has no column name."""
    found: dict[str, TableIndex] = {}
    for name, non_unique, method, column in rows:
        is_new = TableIndex(name, [], int(non_unique) == 0, name == "PRIMARY", str(method).lower(), None)
        found.setdefault(name, is_new).columns.append(column or "(expression)")
    return sorted(found.values(), key=lambda index: (not index.primary, index.name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
