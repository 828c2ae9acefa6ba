"""Catalog queries of the table browser for PostgreSQL. They run with `search_path = pg_catalog`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from moorage.runtime.database_servers.queries.model import (
    MAX_CATALOG_CHARS,
    TableColumn,
    TableDetail,
    TableIndex,
    TableSummary,
)

SHOWN_ROWS = 100
_KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}
Texts = Sequence[str | None]

# A table that was never analyzed has -1 rows; the statistics collector knows better.
_SUMMARY = f"""
n.nspname, c.relname, c.relkind::text,
CASE WHEN c.relkind NOT IN ('r', 'p', 'm') THEN NULL WHEN c.reltuples >= 0 THEN c.reltuples::bigint
     ELSE pg_stat_get_live_tuples(c.oid) END,
CASE WHEN c.relkind IN ('r', 'm') THEN pg_total_relation_size(c.oid) END,
left(obj_description(c.oid, 'pg_class'), {MAX_CATALOG_CHARS})
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%'
"""
TABLES = f"SELECT {_SUMMARY} ORDER BY 1, 2 LIMIT {{most}}"
TABLE = f"SELECT c.oid, {_SUMMARY} AND n.nspname = $1 AND c.relname = $2"
COLUMNS = f"""
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       left(pg_get_expr(d.adbin, d.adrelid), {MAX_CATALOG_CHARS}),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
       left(col_description(a.attrelid, a.attnum), {MAX_CATALOG_CHARS})
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""  # noqa: S608 - a constant
INDEXES = f"""
SELECT c.relname, i.indisunique, i.indisprimary, m.amname,
       CASE WHEN c.relkind = 'i' THEN pg_relation_size(c.oid) END,
       (SELECT json_agg(left(pg_get_indexdef(i.indexrelid, n, true), {MAX_CATALOG_CHARS}) ORDER BY n)
        FROM generate_series(1, i.indnkeyatts) n)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
WHERE i.indrelid = $1::oid ORDER BY i.indisprimary DESC, c.relname
"""  # noqa: S608 - a constant


def summary_of(row: Texts) -> TableSummary:
    schema, name, kind, rows, size, comment = row
    return TableSummary(schema or "", name or "", _KINDS[kind or ""], _number(rows), _number(size), comment)


def detail_of(table: Texts, columns: Sequence[Texts], indexes: Sequence[Texts]) -> TableDetail:
    summary = summary_of(table)
    return TableDetail(
        summary=summary,
        columns=[
            TableColumn(name or "", type_ or "", nullable == "t", default, is_key == "t", comment)
            for name, type_, nullable, default, is_key, comment in columns
        ],
        indexes=[
            TableIndex(name or "", json.loads(keys or "[]"), unique == "t", primary == "t", method or "", _number(size))
            for name, unique, primary, method, size, keys in indexes
        ],
        select_sql=f"SELECT * FROM {_quoted(summary.schema)}.{_quoted(summary.name)} LIMIT {SHOWN_ROWS}",  # noqa: S608 - quoted names
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
