"""Writes moorage.toml: a new one, or new values in an existing one, whose comments and order stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Table

from moorage.cli.manifest.reading import FILE_NAME, Entry, load, parse
from moorage.cli.manifest.resources import PROJECT, SECTIONS
from moorage.cli.manifest.schema import SCHEMA_FILE
from moorage.cli.manifest.schema import text as schema_text

TITLE = "Settings of this folder. `moorage diff` compares them with the platform."
MAX_NAME = 63


@dataclass(slots=True)
class Draft:
    """Settings that are about to be written. `hints` are comments at the end of `[project]`."""

    project: Entry = field(default_factory=dict)
    sections: dict[str, list[Entry]] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)

    def add(self, section: str, entry: Entry) -> None:
        self.sections.setdefault(section, []).append(entry)


def project_name(text: str) -> str:
    """Return a name for a project from the name of a folder."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME].strip("-")
    return name or "project"


def write(folder: Path, draft: Draft) -> Path:
    """Write the file and its schema; an existing file keeps its comments. Raises ManifestError for a wrong result."""
    path = folder / FILE_NAME
    existing = load(folder)  # raises unless the file is valid
    text = new(draft) if existing is None else merged(path.read_text(encoding="utf-8"), draft)
    parse(text, path)
    path.write_text(text, encoding="utf-8")
    (folder / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
    return path


def new(draft: Draft) -> str:
    """Return a new file."""
    document = tomlkit.document()
    document.add(tomlkit.comment(f":schema ./{SCHEMA_FILE}"))
    document.add(tomlkit.comment(TITLE))
    if draft.project:
        document.add(tomlkit.nl())
        document[PROJECT.section] = _table(draft.project, draft.hints)
    for resource in SECTIONS:
        if entries := draft.sections.get(resource.section):
            array = tomlkit.aot()
            for entry in entries:
                array.append(_table(entry))
            document[resource.section] = array
    text = tomlkit.dumps(document).replace("# :schema", "#:schema", 1)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"([^\n])\n\[", r"\1\n\n[", text))


def merged(text: str, draft: Draft) -> str:
    """Return an existing file with new values; keys and sections that the draft has not stay."""
    document = tomlkit.parse(text)
    table = document.setdefault(PROJECT.section, tomlkit.table())
    for key, value in draft.project.items():
        _set(table, key, value)
    for section, entries in draft.sections.items():
        if plain(document.get(section)) != entries:
            array = tomlkit.aot()
            for entry in entries:
                array.append(_table(entry))
            document[section] = array
    return tomlkit.dumps(document)


def plain(value: Any) -> Any:
    """Return a value of tomlkit as plain Python."""
    return value.unwrap() if hasattr(value, "unwrap") else value


def _set(table: Any, key: str, value: Any) -> None:
    if isinstance(value, Mapping) and isinstance(table.get(key), Table | InlineTable):
        for name, each in value.items():
            _set(table[key], name, each)
    elif plain(table.get(key)) != value:
        table[key] = _item(value)


def _table(entry: Entry, hints: list[str] | None = None) -> Table:
    """Return a table with its simple keys first: they would belong to a nested table behind it."""
    table = tomlkit.table()
    nested = {key: value for key, value in entry.items() if _is_table(value)}
    for key, value in entry.items():
        if key not in nested:
            table[key] = _item(value)
    for hint in hints or ():
        table.add(tomlkit.comment(hint))
    for key, value in nested.items():
        table[key] = _item(value)
    return table


def _is_table(value: Any) -> bool:
    return (isinstance(value, Mapping) and not _is_short(value)) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    )


def _is_short(value: Mapping[str, Any]) -> bool:
    return list(value) == ["env"]


def _item(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        array = tomlkit.aot()
        for each in value:
            array.append(_table(dict(each)))
        return array
    if isinstance(value, Mapping):
        if not _is_short(value):
            return _table(dict(value))
        inline = tomlkit.inline_table()
        inline.update(value)
        return inline
    return tomlkit.item(value)
