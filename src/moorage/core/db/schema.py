"""Metadata and column types of all tables.

Times are milliseconds since the epoch, ids are integers that are never reused, JSON is text.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Index, Integer, MetaData, Table, Text, event

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite assigns rowids only to a column whose type is exactly INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")
Millis = BigInteger()


def table(name: str, *columns: Any) -> Table:
    """Declare a table; `sqlite_autoincrement` prevents the reuse of ids."""
    return Table(name, metadata, *columns, sqlite_autoincrement=True)


def partial_index(name: str, *columns: Column[Any], where: ColumnElement[bool], unique: bool = False) -> Index:
    """Declare an index of the rows that meet a condition."""
    # SQLAlchemy imports a dialect for its keyword arguments, and SQLite needs none of PostgreSQL.
    return Index(name, *columns, unique=unique, sqlite_where=where, info={"where": where})


@event.listens_for(metadata, "before_create")
def _add_conditions(target: MetaData, connection: Any, **_: Any) -> None:
    if connection.dialect.name == "postgresql":
        for index in (each for table in target.tables.values() for each in table.indexes if "where" in each.info):
            index.dialect_kwargs["postgresql_where"] = index.info["where"]


def id_column() -> Column[int]:
    return Column("id", Id, primary_key=True, autoincrement=True)


def text(name: str, *args: Any, nullable: bool = False, **options: Any) -> Column[Any]:
    return Column(name, Text, *args, nullable=nullable, **options)


def millis(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, Millis, nullable=nullable)
