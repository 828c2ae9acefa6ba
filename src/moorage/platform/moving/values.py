"""Values of SQLite for the column types of PostgreSQL, and checksums of rows.

SQLite stores any value in any column; PostgreSQL does not. A value that does not fit is reported with its table, row
and column, so that an operator can mend it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from moorage.core.kit.records import dataclass

Row = tuple[Any, ...]
Convert = Callable[[Any], Any]
DIGEST_BYTES = 16


class BadValue(ValueError):
    """PostgreSQL cannot store the value; the message completes "it …"."""


@dataclass
class Summary:
    """Number of rows of a table and a checksum of them, which does not depend on their order."""

    rows: int = 0
    checksum: int = 0

    def add(self, row: Row) -> None:
        digest = hashlib.blake2b(repr(row).encode(), digest_size=DIGEST_BYTES).digest()
        self.rows += 1
        self.checksum = (self.checksum + int.from_bytes(digest)) % 2 ** (8 * DIGEST_BYTES)


def converter(column_type: str) -> Convert | None:
    """Return the conversion of a value to a type of PostgreSQL; None for a type that no table has."""
    return _CONVERTERS.get(column_type)


def convert(row: Sequence[Any], converters: Sequence[Convert]) -> Row:
    """Convert a row; raises BadColumn."""
    converted = []
    for position, (value, change) in enumerate(zip(row, converters, strict=True)):
        try:
            converted.append(None if value is None else change(value))
        except BadValue as error:
            raise BadColumn(position, str(error)) from error
    return tuple(converted)


class BadColumn(ValueError):
    """The value at this position of a row does not fit its column."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position


def read_text(raw: bytes) -> str:
    """Decode a text of SQLite, which may not be UTF-8; `_to_text` refuses such a text with its place."""
    return raw.decode("utf-8", "surrogateescape")


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadValue(f"is no text but {_kind(value)}")
    if "\0" in value:
        raise BadValue("contains the character NUL, which PostgreSQL cannot store in a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadValue("is not UTF-8") from None
    return value


def _to_boolean(value: Any) -> bool:
    if value not in (0, 1):
        raise BadValue("is neither 0 nor 1")
    return bool(value)


def _to_integer(bits: int) -> Convert:
    def change(value: Any) -> int:
        if not isinstance(value, int):
            raise BadValue(f"is no integer but {_kind(value)}")
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise BadValue(f"is {value}, which does not fit into {bits} bits")
        return value

    return change


def _to_float(value: Any) -> float:
    if not isinstance(value, int | float):
        raise BadValue(f"is no number but {_kind(value)}")
    return float(value)


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BadValue(f"is no blob but {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return {str: "a text", bytes: "a blob", int: "an integer", float: "a fraction"}.get(type(value), "of another type")


_CONVERTERS: dict[str, Convert] = {
    "text": _to_text,
    "character varying": _to_text,
    "boolean": _to_boolean,
    "smallint": _to_integer(16),
    "integer": _to_integer(32),
    "bigint": _to_integer(64),
    "double precision": _to_float,
    "bytea": _to_bytes,
}
