"""Column types of MariaDB and MySQL by their number in the protocol."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.runtime.database_servers.queries.model import Format

BINARY_CHARSET = 63
FLOATS = frozenset(("float", "double"))
# bigint and decimal are texts: JSON parsers would round them.
_TYPES: Mapping[int, tuple[str, Format]] = {
    0: ("decimal", "text"),
    1: ("tinyint", "number"),
    2: ("smallint", "number"),
    3: ("int", "number"),
    4: ("float", "number"),
    5: ("double", "number"),
    6: ("null", "text"),
    7: ("timestamp", "datetime"),
    8: ("bigint", "text"),
    9: ("mediumint", "number"),
    10: ("date", "datetime"),
    11: ("time", "text"),
    12: ("datetime", "datetime"),
    13: ("year", "number"),
    16: ("bit", "hex"),
    245: ("json", "json"),
    246: ("decimal", "text"),
    247: ("enum", "text"),
    248: ("set", "text"),
    255: ("geometry", "hex"),
}
# Types with a text and a binary form.
_STRINGS: Mapping[int, tuple[str, str]] = {
    15: ("varchar", "varbinary"),
    249: ("tinytext", "tinyblob"),
    250: ("mediumtext", "mediumblob"),
    251: ("longtext", "longblob"),
    252: ("text", "blob"),
    253: ("varchar", "varbinary"),
    254: ("char", "binary"),
}


def type_of(number: int, *, is_binary: bool) -> tuple[str, Format]:
    """Return the name of a type and the format of its values."""
    if number in _STRINGS:
        text, binary = _STRINGS[number]
        return (binary, "hex") if is_binary else (text, "text")
    return _TYPES.get(number, ("unknown", "text"))
