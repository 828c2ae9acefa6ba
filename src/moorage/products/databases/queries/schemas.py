"""Request and response models of queries and tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from moorage.core.http.models import Input, Output
from moorage.core.kit.texts import unusable
from moorage.runtime.database_servers.queries.model import (
    MAX_TABLES,
    Result,
    TableColumn,
    TableDetail,
    TableIndex,
    TableSummary,
)

MAX_SQL_CHARS = 65_536


def _sql(text: str) -> str:
    if problem := unusable(text):
        raise ValueError(problem)
    if not text.strip():
        raise ValueError("must not be empty")
    return text


class DatabaseQueryInput(Input):
    sql: Annotated[str, Field(max_length=MAX_SQL_CHARS, description="One statement."), AfterValidator(_sql)]
    write: bool = Field(default=False, description="Run it in a read-write transaction; needs the admin role.")


class DatabaseQueryColumn(Output, frozen=True):
    name: str
    type: str
    format: Literal["text", "number", "boolean", "json", "hex", "datetime"]


class DatabaseQueryResult(Output, frozen=True):
    columns: list[DatabaseQueryColumn]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    duration_ms: int

    @classmethod
    def of(cls, result: Result, duration_ms: int) -> DatabaseQueryResult:
        return cls(
            columns=[DatabaseQueryColumn(each.name, each.type, each.format) for each in result.columns],
            rows=result.rows,
            row_count=result.row_count,
            truncated=result.truncated,
            duration_ms=duration_ms,
        )


class DatabaseTable(Output, frozen=True):
    schema: str
    name: str
    kind: str
    row_estimate: int | None
    size_bytes: int | None
    comment: str | None

    @classmethod
    def of(cls, table: TableSummary) -> DatabaseTable:
        return cls(table.schema, table.name, table.kind, table.row_estimate, table.size_bytes, table.comment)


class DatabaseTables(Output, frozen=True):
    items: list[DatabaseTable]
    truncated: bool

    @classmethod
    def of(cls, tables: list[TableSummary]) -> DatabaseTables:
        return cls([DatabaseTable.of(each) for each in tables], len(tables) >= MAX_TABLES)


class DatabaseTableColumn(Output, frozen=True):
    name: str
    type: str
    nullable: bool
    default: str | None
    primary_key: bool
    comment: str | None

    @classmethod
    def of(cls, column: TableColumn) -> DatabaseTableColumn:
        return cls(column.name, column.type, column.nullable, column.default, column.is_primary_key, column.comment)


class DatabaseTableIndex(Output, frozen=True):
    name: str
    columns: list[str]
    unique: bool
    primary: bool
    method: str
    size_bytes: int | None

    @classmethod
    def of(cls, index: TableIndex) -> DatabaseTableIndex:
        return cls(index.name, index.columns, index.unique, index.primary, index.method, index.size_bytes)


class DatabaseTableDetail(Output, frozen=True):
    schema: str
    name: str
    kind: str
    row_estimate: int | None
    size_bytes: int | None
    comment: str | None
    columns: list[DatabaseTableColumn]
    indexes: list[DatabaseTableIndex]
    select_sql: str

    @classmethod
    def of(cls, table: TableDetail) -> DatabaseTableDetail:
        summary = table.summary
        return cls(
            schema=summary.schema,
            name=summary.name,
            kind=summary.kind,
            row_estimate=summary.row_estimate,
            size_bytes=summary.size_bytes,
            comment=summary.comment,
            columns=[DatabaseTableColumn.of(each) for each in table.columns],
            indexes=[DatabaseTableIndex.of(each) for each in table.indexes],
            select_sql=table.select_sql,
        )
