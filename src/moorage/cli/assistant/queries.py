"""SQL statements through the API, with the rows as objects."""

from __future__ import annotations

from typing import Any

from moorage.client import AsyncClient


async def run_statement(client: AsyncClient, name: str, sql: str, *, may_write: bool) -> dict[str, Any]:
    """Run one statement; the platform enforces that it only reads, unless `may_write`."""
    result = await client.databases.query(name, sql=sql, write=may_write)
    names = _unique([column.name for column in result.columns])
    return {
        "columns": {name: column.type for name, column in zip(names, result.columns, strict=True)},
        "rows": [dict(zip(names, row, strict=True)) for row in result.rows],
        "rowCount": result.row_count,
        "truncated": result.truncated,
        "durationMs": result.duration_ms,
    }


def _unique(names: list[str]) -> list[str]:
    """Number names that occur twice, as in a join."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique
